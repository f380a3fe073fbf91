"""The last thing a run prints: verdicts, then tenants, then generator and provider, then paths."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from agentload.model import Status
from agentload.report import Result, jobs, shares, text

COLOURS: Mapping[str, str] = {Status.PASSED: "green", Status.FAILED: "red", Status.INCONCLUSIVE: "yellow"}
MOST_TENANTS = 12
"""Rows of the tenants table; the busiest come first and the rest is counted."""


def print_result(result: Result, console: Console, paths: Iterable[Path] = ()) -> None:
    """Print everything. Colours and width are the console's business (NO_COLOR, pipes, `width=…`)."""
    never_fail_on_letters(console)
    summary = result.summary
    console.print()
    checks = summary["checks"]
    for check, following in zip_longest(checks, checks[1:]):
        _print_check(check, console, once=following is not None and _alike(check, following))
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
    _print_paths(paths, console)


def never_fail_on_letters(console: Console) -> None:
    """Where the output's encoding lacks a letter, print `?` instead of ending a run with an exception."""
    reconfigure = getattr(console.file, "reconfigure", None)
    if reconfigure is not None and console.options.ascii_only:
        reconfigure(errors="replace")


def _alike(check: Mapping[str, Any], following: Mapping[str, Any]) -> bool:
    """Whether all that is to be said of two checks is the same sentence, as where a run has no ledger."""
    said = [(one["status"], one["because"], text.verdict_numbers(one)) for one in (check, following)]
    return said[0] == said[1] and said[0][2] is None


def _print_check(check: Mapping[str, Any], console: Console, *, once: bool = False) -> None:
    """`✗ victim-latency  never (bound 2 ×, n 294)` and the sentence below it; `once`: the next says it."""
    status, severity = check["status"], check["severity"]
    symbols = text.ASCII_SYMBOLS if console.options.ascii_only else text.SYMBOLS
    line = Text("  ")
    line.append(f"{symbols[status]} ", style=f"bold {COLOURS[status]}")
    line.append(text.printable(check["check"]), style="bold")
    line.append("" if severity == "must" else f" ({severity})", style="dim")
    measured, around = _numbers(check)
    line.append(measured)
    if line.cell_len + len(around) <= console.width:
        console.print(line.append(around))
    else:
        console.print(line)
        console.print(_indented(around.strip(), 4, console))
    if not once:
        console.print(_indented(text.printable(check["because"]), 4, console), style="dim")


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


def _print_paths(paths: Iterable[Path], console: Console) -> None:
    listed = list(paths)
    if listed:
        console.print()
    for path in listed:
        console.print(Text(f"  {path}"), soft_wrap=True)


def _indented(sentence: str, indent: int, console: Console) -> Text:
    margin = " " * indent
    width = max(20, console.width - 1)
    return Text(textwrap.fill(sentence, width, initial_indent=margin, subsequent_indent=margin))
