"""Do live and simulated agree? The run of a folder beside a simulation of the same profile and seed.

What differs is what the simulator leaves out: the machine. Sockets, processes and a busy processor cost a
live run milliseconds; so latencies may differ by 15 %, shares by 2 points, and verdicts not at all.

Where clients come back after refusals, a millisecond decides who is served next, and everything after that is
another story: the same plan over a network a fraction of a millisecond slower differs from itself. So a
number that differs is compared with such simulations too, and is explained when one of them agrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from agentload import judge, rundir, screen
from agentload.drivers.simulated.network import Timing
from agentload.errors import ExitCode, UsageError
from agentload.model import Run, Status
from agentload.report import facts, terminal, text
from agentload.simulate import simulate

SHARE_POINTS = 2.0
"""Shares of work, acceptance: percentage points."""
LATENCY_RATIO = 0.15
LATENCY_FLOOR_MS = 5.0
"""Differences below this are timers and loopback, whatever they are in per cent."""
REFUSED_SHARE = 0.05
"""Refused attempts may differ by so much of the attempts."""
ONE_WAY_US = (50, 150, 200, 300, 500, 1_000)
"""Microseconds from part to part in the simulations that a difference is compared with (the simulator's own
is 100). Live, a message waits for one or two event loops that are busy with others."""
BUSY = 0.02
"""Share of the time that the load generator waited for a processor above which a live run is no yardstick."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One number (or verdict) of both runs."""

    metric: str
    live: str
    simulated: str
    difference: str
    agrees: bool
    excusable: bool = True
    """It may depend on chance; a verdict must not."""
    explained: bool = False
    """It differs, and so do simulations over slightly slower or faster networks."""


def run(folder: Path) -> int:
    """The command: prints `metric | live | simulated | difference`.

    Returns 0 when everything agrees, 1 when something does not, and 3 when something does not but the live
    run's machine was too busy to say whose fault it is. Raises AgentloadError for a folder it cannot use.
    """
    recorded = rundir.load(folder)
    _refuse_others(folder, recorded)
    rows = compare(recorded)
    console = screen.console()
    terminal.never_fail_on_letters(console)
    console.print(_table(rows, recorded, console.options.ascii_only))
    apart = [row.metric for row in rows if not row.agrees and not row.explained]
    explained = [row.metric for row in rows if row.explained]
    console.print(_conclusion(recorded, apart, explained), soft_wrap=True)
    if not apart:
        return ExitCode.PASSED
    return ExitCode.INCONCLUSIVE if recorded.health.run_queue_wait > BUSY else ExitCode.FAILED


def compare(recorded: Run) -> list[Row]:
    """Everything that both runs say about themselves, side by side."""
    live = _summary(recorded)
    rows = _rows(live, _simulated(recorded, Timing()))
    for one_way_us in ONE_WAY_US:
        if not any(_wants_explaining(row) for row in rows):
            break
        others = _rows(live, _simulated(recorded, Timing(one_way_ns=one_way_us * 1_000)))
        agreeing = {row.metric for row in others if row.agrees}
        rows = [_explained(row) if row.metric in agreeing else row for row in rows]
    return rows


def _wants_explaining(row: Row) -> bool:
    return row.excusable and not row.agrees and not row.explained


def _explained(row: Row) -> Row:
    return msgspec.structs.replace(row, explained=True) if _wants_explaining(row) else row


def _simulated(recorded: Run, timing: Timing) -> dict[str, Any]:
    return _summary(simulate(recorded.profile, recorded.plan.seed, timing=timing))


def _rows(live: Mapping[str, Any], simulated: Mapping[str, Any]) -> list[Row]:
    rows = list(_verdict_rows(live["checks"], simulated["checks"]))
    for name, tenant in live["tenants"].items():
        rows += _tenant_rows(name, tenant, simulated["tenants"][name])
    rows += _provider_rows(live["provider"], simulated["provider"])
    return rows


def _summary(of: Run) -> dict[str, Any]:
    verdicts = judge.judge(of)
    return facts.summarise(of, verdicts, judge.overall(verdicts))


def _refuse_others(folder: Path, recorded: Run) -> None:
    if recorded.interrupted:
        raise UsageError(f"{folder}: the run was cut short ({recorded.interrupted}), so the two cannot agree")
    if recorded.driver == "simulated":
        raise UsageError(
            f"{folder}: is a simulation itself; agree wants the folder of a live run (agentload run)"
        )
    if recorded.meta.get("target", {}).get("kind") != "bundled":
        raise UsageError(f"{folder}: not a run of the bundled gateway, and no other can be simulated")


# --------------------------------------------------------------------------- rows


def _verdict_rows(live: list[dict[str, Any]], simulated: list[dict[str, Any]]) -> Iterator[Row]:
    for one, other in zip(live, simulated, strict=True):
        same = one["status"] == other["status"]
        # What only a process has (memory) leaves nothing to judge in a simulation: no difference, but said.
        unseen = other["status"] == Status.INCONCLUSIVE and not other["n"]
        yield Row(
            metric=f"verdict {one['check']}",
            live=_verdict(one),
            simulated=_verdict(other),
            difference="same" if same else "not simulated" if unseen else "DIFFERS",
            agrees=same or unseen,
            excusable=False,
        )


def _verdict(check: Mapping[str, Any]) -> str:
    return f"{check['status']} {text.quantity(check['measured'], '', check['censored'])}"


def _tenant_rows(name: str, live: Mapping[str, Any], simulated: Mapping[str, Any]) -> Iterator[Row]:
    yield _share_row(f"{name}: share of work", live["work_share"], simulated["work_share"])
    yield _share_row(f"{name}: answered", live["acceptance"], simulated["acceptance"])
    some_unanswered = live["acceptance"] != 1 or simulated["acceptance"] != 1
    for quantile in ("p50", "p95"):
        yield _latency_row(f"{name}: {quantile}", live["latency_ms"], simulated["latency_ms"], quantile)
        if some_unanswered:
            of_answered = (live["answered_latency_ms"], simulated["answered_latency_ms"])
            yield _latency_row(f"{name}: {quantile} of answered", *of_answered, quantile)
    attempts = max(live["attempts"], simulated["attempts"], 1)
    yield _count_row(f"{name}: refused", live["refused_attempts"], simulated["refused_attempts"], attempts)


def _provider_rows(live: Mapping[str, Any], simulated: Mapping[str, Any]) -> Iterator[Row]:
    offered = max(live["offered"], simulated["offered"], 1)
    for ending in ("offered", "completed", "throttled", "cancelled"):
        yield _count_row(f"provider: {ending}", live[ending], simulated[ending], offered)


def _share_row(metric: str, live: float | None, simulated: float | None) -> Row:
    points = None if live is None or simulated is None else 100 * (simulated - live)
    return Row(
        metric=metric,
        live=text.share(live),
        simulated=text.share(simulated),
        difference=text.NOTHING if points is None else f"{points:+.1f} points",
        agrees=live == simulated if points is None else abs(points) <= SHARE_POINTS,
    )


def _latency_row(metric: str, live: Mapping[str, Any], simulated: Mapping[str, Any], quantile: str) -> Row:
    one, other = live[quantile], simulated[quantile]
    shown = [text.milliseconds(value[quantile], value["censored"]) for value in (live, simulated)]
    if one is None or other is None:
        return Row(
            metric=metric,
            live=shown[0],
            simulated=shown[1],
            difference="same" if shown[0] == shown[1] else "DIFFERS",
            agrees=shown[0] == shown[1],
        )
    return Row(
        metric=metric,
        live=shown[0],
        simulated=shown[1],
        difference=f"{100 * (other - one) / one:+.1f} %" if one else text.NOTHING,
        agrees=abs(other - one) <= max(LATENCY_FLOOR_MS, LATENCY_RATIO * one),
    )


def _count_row(metric: str, live: int, simulated: int, of: int) -> Row:
    return Row(
        metric=metric,
        live=f"{live:,}",
        simulated=f"{simulated:,}",
        difference=f"{simulated - live:+,}",
        agrees=abs(simulated - live) <= max(2.0, REFUSED_SHARE * of),
    )


# --------------------------------------------------------------------------- what is shown


def _table(rows: list[Row], recorded: Run, ascii_only: bool) -> Table:
    symbols = text.ASCII_SYMBOLS if ascii_only else text.SYMBOLS
    title = f"{recorded.profile.name}, seed {recorded.plan.seed}, plan {recorded.plan.fingerprint[:12]}"
    table = Table(box=None, padding=(0, 1), header_style="dim", title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("metric", no_wrap=True)
    for heading in (recorded.driver, "simulated", "difference"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        status = _status(row)
        symbol = Text(symbols[status], style=terminal.COLOURS[status])
        table.add_row(symbol, Text(text.printable(row.metric)), row.live, row.simulated, row.difference)
    return table


def _status(row: Row) -> Status:
    if row.agrees:
        return Status.PASSED
    return Status.INCONCLUSIVE if row.explained else Status.FAILED


def _conclusion(recorded: Run, apart: list[str], explained: list[str]) -> str:
    waited = f"the load generator waited {recorded.health.run_queue_wait:.1%} of the time for a processor"
    if not apart and explained:
        return (
            f"they agree but for {', '.join(explained)}: as far apart as simulations among themselves,"
            f" when their network is a fraction of a millisecond slower or faster ({waited})"
        )
    if not apart:
        return f"they agree ({waited})"
    busy = recorded.health.run_queue_wait > BUSY
    advice = f", over {BUSY:.0%}: compare again on a quieter machine" if busy else ""
    return f"they differ in {', '.join(apart)} ({waited}{advice})"
