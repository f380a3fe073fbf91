"""The last thing a run prints: verdicts, then tenants, then generator and provider, then paths."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from agentload.model import Severity, Status
from agentload.report import Result, jobs, shares, text

COLOURS: Mapping[str, str] = {Status.PASSED: "green", Status.FAILED: "red", Status.INCONCLUSIVE: "yellow"}
MOST_TENANTS = 12
"""Rows of the tenants table; the busiest come first and the rest is counted."""


def print_result(result: Result, console: Console, paths: Iterable[Path] = ()) -> None:
    """Print everything. Colours and width are the console's business (NO_COLOR, pipes, `width=…`)."""
    never_fail_on_letters(console)
    summary = result.summary
    console.print()
    for _, alike in groupby(summary["checks"], key=_said):
        _print_checks(list(alike), console)
    _print_overall(summary, console)
    console.print()
    _print_tenants(summary, console)
    console.print(_indented(shares.note(summary), 2, console), style="dim")
    hidden = len(text.folded(summary)) - MOST_TENANTS
    if hidden > 0:
        console.print(f"  … and {hidden:,} more tenants, all of them in report.json", style="dim")
    _print_jobs(summary["jobs"], console)
    console.print()
    _print_machinery(summary, console)
    listed = list(paths)
    _print_paths(listed, console)
    _print_next(summary, listed, console)


def never_fail_on_letters(console: Console) -> None:
    """Where the output's encoding lacks a letter, print `?` instead of ending a run with an exception."""
    reconfigure = getattr(console.file, "reconfigure", None)
    if reconfigure is not None and console.options.ascii_only:
        reconfigure(errors="replace")


def _said(check: Mapping[str, Any]) -> tuple[object, ...]:
    """What checks have in common that are told together, as where a run has no ledger: all but their names.

    One that measured something is told alone.
    """
    numbers = text.verdict_numbers(check)
    return check["status"], check["because"], numbers if numbers is None else id(check)


def _print_checks(alike: Sequence[Mapping[str, Any]], console: Console) -> None:
    """`✗ victim-latency  never (bound 2 ×, n 294)` and the sentence below it; or `? no-starvation,
    bounded-queue` and the sentence that is said of both."""
    first = alike[0]
    symbols = text.ASCII_SYMBOLS if console.options.ascii_only else text.SYMBOLS
    sign = Text("  ").append(f"{symbols[first['status']]} ", style=f"bold {COLOURS[first['status']]}")
    if len(alike) > 1:
        names = textwrap.wrap(
            ", ".join(map(_named, alike)), max(20, console.width - 5), break_on_hyphens=False
        )
        for number, line in enumerate(names):
            console.print((Text("    ") if number else sign) + Text(line, style="bold"))
    else:
        _print_numbers(sign, first, console)
    console.print(_indented(text.printable(first["because"]), 4, console), style="dim")


def _named(check: Mapping[str, Any]) -> str:
    severity = "" if check["severity"] == "must" else f" ({check['severity']})"
    return text.printable(check["check"]) + severity


def _print_numbers(line: Text, check: Mapping[str, Any], console: Console) -> None:
    """What was measured, and around it what does not fit below."""
    line.append(text.printable(check["check"]), style="bold")
    line.append("" if check["severity"] == "must" else f" ({check['severity']})", style="dim")
    measured, around = _numbers(check)
    line.append(measured)
    if line.cell_len + len(around) <= console.width:
        console.print(line.append(around))
    else:
        console.print(line)
        console.print(_indented(around.strip(), 4, console))


def _numbers(check: Mapping[str, Any]) -> tuple[str, str]:
    """`  1.08 ×` and ` (bound 2 ×, n 294)`; empty when nothing was measured."""
    numbers = text.verdict_numbers(check)
    if numbers is None:
        return "", ""
    measured, around = numbers
    return f"  {measured}", f" ({around})" if around else ""


def _print_overall(summary: Mapping[str, Any], console: Console) -> None:
    verdict = summary["verdict"]
    line = Text("  ")
    line.append(f"{verdict.upper()}", style=f"bold {COLOURS[verdict]}")
    line.append(f"  {text.printable(summary['profile'])}, {summary['driver']}, seed {summary['seed']}")
    line.append(f", plan {summary['plan']['fingerprint'][:12]}", style="dim")
    console.print()
    console.print(line)
    mutant = text.mutant_line(summary["target"])
    if mutant:
        console.print(_indented(mutant, 2, console), style="yellow")
    if summary["scale"]:
        console.print(_indented(text.scale_line(summary["scale"]), 2, console))
    if summary["interrupted"]:
        console.print(_indented(text.interruption(summary["interrupted"]), 2, console), style="yellow")
    for fault in summary["faults"]:
        console.print(_indented(text.fault_line(fault), 2, console))


def _print_tenants(summary: Mapping[str, Any], console: Console) -> None:
    """With one space between columns where two would not fit, and none at the end of a line."""
    ascii_only = console.options.ascii_only
    table = tenants_table(summary, ascii_only)
    unbounded = console.options.update(width=10 * console.width)
    if Measurement.get(console, unbounded, table).maximum > console.width:
        table = tenants_table(summary, ascii_only, narrow=True)
    for segments in console.render_lines(table, pad=False):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        console.print(line, soft_wrap=True)


def tenants_table(summary: Mapping[str, Any], ascii_only: bool = False, narrow: bool = False) -> Table:
    """One row per tenant, busiest first: its share of the work against its entitlement, latency, endings."""
    shown = text.busiest(text.folded(summary), MOST_TENANTS)
    by_attempt = any(tenant["rejected"] != tenant["refused_attempts"] for _, tenant in shown)
    table = Table(box=None, padding=(0, 0, 0, 1) if narrow else (0, 1), header_style="dim")
    table.add_column("tenant", no_wrap=True, max_width=16, overflow="ellipsis")
    table.add_column("share of work", no_wrap=True)
    refused = "refused\n(attempts)" if by_attempt else "refused"
    for heading in ("p50", "p95", "p99", "answered", refused, "retries"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, tenant in shown:
        table.add_row(*_tenant_cells(name, tenant, ascii_only))
    return table


def _tenant_cells(name: str, tenant: Mapping[str, Any], ascii_only: bool) -> list[Text]:
    share = tenant["work_share"]
    drawn = text.bar(share, tenant["entitled_share"], width=8, ascii_only=ascii_only)
    latency = tenant["latency_ms"]
    return [
        Text(text.printable(name), style="bold"),
        Text(f"{drawn} {text.share(share):>5}"),
        *(Text(text.percentile(latency, quantile)) for quantile in ("p50", "p95", "p99")),
        Text(text.share(tenant["acceptance"])),
        Text(text.refused(tenant, noun="")),
        Text(f"{tenant['retries']:,}"),
    ]


def _print_jobs(found: Mapping[str, Any], console: Console) -> None:
    """What became of durable jobs, a line for each tenant."""
    if found:
        console.print()
        console.print(_indented(f"{jobs.NOTE}; their jobs:", 2, console), style="dim")
    for line in jobs.lines(dict(list(found.items())[:MOST_TENANTS])):
        console.print(_indented(line, 2, console))


def _print_machinery(summary: Mapping[str, Any], console: Console) -> None:
    """Generator (and why it is not to be trusted), provider and hidden queue, a line each."""
    console.print(
        _indented(text.generator_line(summary["generator"], bool(summary["interrupted"])), 2, console)
    )
    for reason in summary["generator"]["reasons"]:
        console.print(_indented(text.printable(reason), 4, console), style="yellow")
    for line in summary["generator"]["withheld"]:
        console.print(_indented(text.printable(line), 4, console), style="yellow")
    console.print(_indented(text.provider_line(summary["provider"]), 2, console))
    queue = text.queue_line(summary["hidden_queue"])
    if queue:
        console.print(_indented(queue, 2, console))


def _print_paths(paths: Sequence[Path], console: Console) -> None:
    if paths:
        console.print()
    for path in paths:
        console.print(Text(f"  {path}"), soft_wrap=True)


def _print_next(summary: Mapping[str, Any], paths: Iterable[Path], console: Console) -> None:
    """After a failure: what explains the first check that failed, and where the evidence is."""
    failed = [check for check in summary["checks"] if check["status"] == Status.FAILED]
    if summary["verdict"] != Status.FAILED or not failed:
        return
    first = next((check for check in failed if check["severity"] == Severity.MUST), failed[0])
    shown = "the evidence is in report.html; " if any(path.suffix == ".html" for path in paths) else ""
    console.print()
    console.print(Text(f"  {shown}what {text.printable(first['check'])} asks, and why:"), soft_wrap=True)
    console.print(Text(f"  agentload explain {text.printable(first['check'])}"), soft_wrap=True)


def _indented(sentence: str, indent: int, console: Console) -> Text:
    margin = " " * indent
    width = max(20, console.width - 1)
    return Text(textwrap.fill(sentence, width, initial_indent=margin, subsequent_indent=margin))
