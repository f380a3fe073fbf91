"""What a person sees while a run goes on: a table that refreshes, or plain lines where there is no terminal.

Both views eat the same progress dict, every key of which may be missing:

    elapsed_s, phase, scheduled, issued, in_flight, in_flight_cap, workers
    lateness_ms   {p50, p99}
    tenants       name → {offered, answered, rejected, retries, in_flight, and of the answers of the last
                          seconds recent_p50_ms, recent_p95_ms, recent_p99_ms}
    gateway       {waiting, oldest_age_s}
    notes         lines worth saying now (a fault that began, a worker that was lost)
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agentload.evidence.fairness import entitled_shares
from agentload.model import Profile
from agentload.report import text
from agentload.report.terminal import never_fail_on_letters

Progress = Mapping[str, Any]

REFRESH_S = 0.25
"""At most four refreshes a second: drawing must not make the generator late."""
PLAIN_EVERY_S = 5.0
NOTABLY_LATE_MS = 10.0
"""Less is not worth its place in a plain line."""
SHARES_OVER_S = 5.0
"""As the recorders of `recent_p50_ms` and so on."""
RECENT_OR_NOT = f"share, p50, p95, p99: answers of the last {SHARES_OVER_S:g} s; counts: of the whole run"
"""Stands above the table: refusals flatter these percentiles, unlike those of the final one."""
MOST_TENANTS = 10
_COUNTS = {"answered": "answered", "refused": "rejected", "retries": "retries"}
"""In a plain line, the words for the counts of the tenants; zeros but the first are left out."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = "_.-=+*%#"


class View(Protocol):
    """What a driver talks to."""

    def update(self, progress: Progress) -> None:
        """Show how far the run has come. Cheap when called too often."""
        ...

    def finish(self) -> None:
        """Stop showing; safe to call twice, and after an error."""
        ...


def view(profile: Profile, console: Console) -> View:
    """A live view on a terminal, plain lines anywhere else."""
    return LiveView(profile, console) if console.is_terminal else PlainView(profile, console)


class PlainView:
    """One line at every new phase, and every five seconds of the run."""

    def __init__(self, profile: Profile, console: Console) -> None:
        never_fail_on_letters(console)
        self.profile, self.console = profile, console
        self._phase: str | None = None
        self._next_s = 0.0

    def update(self, progress: Progress) -> None:
        """Print notes at once, and a line when one is due."""
        for note in progress.get("notes", ()):
            self._print(f"           {text.printable(note)}")
        if "elapsed_s" not in progress:
            return
        elapsed_s, phase = float(progress["elapsed_s"]), progress.get("phase")
        if phase != self._phase or elapsed_s >= self._next_s:
            self._phase, self._next_s = phase, elapsed_s + PLAIN_EVERY_S
            self._print(plain_line(progress))

    def finish(self) -> None:
        """Nothing to put away."""

    def _print(self, line: str) -> None:
        self.console.print(Text(line), soft_wrap=True)


class LiveView:
    """A table that redraws itself in place, at most four times a second."""

    def __init__(
        self, profile: Profile, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        never_fail_on_letters(console)
        self.profile, self.console = profile, console
        self._clock = clock
        self._drawn_at = float("-inf")
        self._latest: Progress = {}
        self._notes: deque[str] = deque(maxlen=3)
        self._depths: deque[float] = deque(maxlen=32)
        self._shares = RecentShares({tenant.name: tenant.weight for tenant in profile.tenants})
        live = Live(console=console, auto_refresh=False, transient=True)
        live.start()
        self._live: Live | None = live

    def update(self, progress: Progress) -> None:
        """Remember what happened, and draw when it is time."""
        self._notes.extend(text.printable(note) for note in progress.get("notes", ()))
        if "elapsed_s" in progress:
            self._latest = progress
            self._shares.add(progress)
        now = self._clock()
        if self._live is not None and now - self._drawn_at >= REFRESH_S:
            self._drawn_at = now
            waiting = self._latest.get("gateway", {}).get("waiting")
            if waiting is not None:
                self._depths.append(float(waiting))
            self._live.update(self.render(), refresh=True)

    def finish(self) -> None:
        """Take the picture away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def render(self) -> Group:
        """The picture of the latest progress."""
        ascii_only = self.console.options.ascii_only
        return Group(
            _headline(self.profile, self._latest, self.console.width, ascii_only),
            Text(f"  {RECENT_OR_NOT}", style="dim"),
            _tenants(self._latest, self._shares, ascii_only),
            *_footer(self._latest, self._depths, ascii_only),
            *(Text(f"  {note}", style="yellow") for note in self._notes),
        )


class RecentShares:
    """Shares of the answers of the last seconds, and what weighted fairness would have given for the demand.

    Answers, not work: only the provider's ledger knows the work, and it is read when the run is over.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._seen: deque[tuple[float, dict[str, tuple[int, int]]]] = deque()
        self.answered: dict[str, float] = {}
        """Tenant → share of the answers, 0..1; empty before there were any."""
        self.entitled: dict[str, float] = {}

    def add(self, progress: Progress) -> None:
        """Take note of the counts so far."""
        tenants: Mapping[str, Any] = progress.get("tenants", {})
        counts = {name: (t.get("offered", 0), t.get("answered", 0)) for name, t in tenants.items()}
        now_s = float(progress["elapsed_s"])
        self._seen.append((now_s, counts))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - SHARES_OVER_S:
            self._seen.popleft()
        before = self._seen[0][1]
        answered = {name: count - before.get(name, (0, 0))[1] for name, (_, count) in counts.items()}
        wanted = {
            name: max(
                answered[name], offered - before.get(name, (0, 0))[0], tenants[name].get("in_flight", 0)
            )
            for name, (offered, _) in counts.items()
            if name in self._weights
        }
        total = sum(answered.values())
        if total:
            self.answered = {name: count / total for name, count in answered.items()}
            entitled = entitled_shares(total, self._weights, wanted)
            self.entitled = {name: work / total for name, work in entitled.items()}


def plain_line(progress: Progress) -> str:
    """`15.0 s noise: 1,203 sent, 29 in flight; answered 702, refused 211; waiting 250 …`, no zeros."""
    tenants = progress.get("tenants", {}).values()
    named = {name: _total(tenants, key) for name, key in _COUNTS.items()}
    parts = [
        f"{progress.get('issued', 0):,} sent, {progress.get('in_flight', 0):,} in flight",
        ", ".join(f"{name} {n:,}" for name, n in named.items() if n or name == "answered"),
    ]
    gauge = _gauge(progress)
    late = progress.get("lateness_ms", {}).get("p99")
    parts += [gauge] if gauge and progress["gateway"]["waiting"] else []
    parts += [f"late p99 {text.milliseconds(late)}"] if late is not None and late >= NOTABLY_LATE_MS else []
    phase = text.printable(progress.get("phase") or "draining")
    return f"{progress.get('elapsed_s', 0.0):6.1f} s {phase}: {'; '.join(parts)}"


# --------------------------------------------------------------------------- parts of the picture


def _headline(profile: Profile, progress: Progress, width: int, ascii_only: bool) -> Text:
    total_s = profile.duration_ns / 1e9
    elapsed_s = min(total_s, max(0.0, float(progress.get("elapsed_s", 0.0))))
    full, empty = ("#", "-") if ascii_only else ("━", "╌")
    cells = max(8, min(30, width - 64))
    done = round(cells * elapsed_s / total_s)
    line = Text("  ", no_wrap=True, overflow="ellipsis")
    line.append(text.printable(profile.name), style="bold")
    line.append(f"  {text.printable(progress.get('phase') or 'starting'):<10} ", style="cyan")
    line.append(full * done, style="cyan")
    line.append(empty * (cells - done), style="dim")
    line.append(f" {elapsed_s:.0f}/{total_s:.0f} s")
    if "issued" in progress:
        line.append(f"  {progress['issued']:,}/{progress.get('scheduled', 0):,} sent", style="dim")
    return line


def _tenants(progress: Progress, shares: RecentShares, ascii_only: bool) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("  tenant", no_wrap=True, max_width=16, overflow="ellipsis")
    table.add_column("share", no_wrap=True)
    for heading in ("p50", "p95", "p99", "open", "answered", "refused", "retries"):
        table.add_column(heading, justify="right", no_wrap=True)
    tenants: Mapping[str, Any] = progress.get("tenants", {})
    for name, tenant in text.busiest(tenants, MOST_TENANTS):
        table.add_row(*_cells(name, tenant, shares, ascii_only))
    if len(tenants) > MOST_TENANTS:
        table.add_row(Text(f"  … {len(tenants) - MOST_TENANTS} more", style="dim"))
    return table


def _cells(name: str, tenant: Mapping[str, Any], shares: RecentShares, ascii_only: bool) -> Iterable[Text]:
    share = shares.answered.get(name)
    drawn = text.bar(share, shares.entitled.get(name), width=6, ascii_only=ascii_only)
    refused = tenant.get("rejected", 0)
    yield Text(f"  {text.printable(name)}", style="bold")
    yield Text(f"{drawn} {text.share(share):>5}")
    for quantile in ("p50_ms", "p95_ms", "p99_ms"):
        yield Text(text.milliseconds(tenant.get(f"recent_{quantile}")))
    yield Text(f"{tenant.get('in_flight', 0):,}")
    yield Text(f"{tenant.get('answered', 0):,}")
    yield Text(f"{refused:,}", style="yellow" if refused else "")
    yield Text(f"{tenant.get('retries', 0):,}")


def _footer(progress: Progress, depths: Iterable[float], ascii_only: bool) -> Iterable[Text]:
    gauge = _gauge(progress)
    if gauge:
        line = Text("  gateway    ", no_wrap=True, overflow="ellipsis")
        line.append(sparkline(depths, ascii_only), style="magenta")
        line.append(f" {gauge}")
        yield line
    late = progress.get("lateness_ms", {})
    cap = progress.get("in_flight_cap")
    of_cap = f" of at most {cap:,}" if cap else ""
    yield Text(
        f"  generator  {progress.get('in_flight', 0):,} in flight{of_cap}, "
        f"late p50 {text.milliseconds(late.get('p50'))}, p99 {text.milliseconds(late.get('p99'))}"
    )


def _gauge(progress: Progress) -> str:
    """`waiting 250, oldest 4.1 s`; empty where the gateway shows no gauge."""
    gateway: Mapping[str, Any] = progress.get("gateway") or {}
    if gateway.get("waiting") is None:
        return ""
    age = gateway.get("oldest_age_s")
    oldest = "" if age is None else f", oldest {text.milliseconds(1000 * float(age))}"
    return f"waiting {gateway['waiting']:,.0f}{oldest}"


def sparkline(values: Iterable[float], ascii_only: bool = False) -> str:
    """Values as little columns, the highest full."""
    blocks = _ASCII_BLOCKS if ascii_only else _BLOCKS
    listed = list(values)
    top = max(listed, default=0.0) or 1.0
    return "".join(blocks[min(len(blocks) - 1, int(value / top * len(blocks)))] for value in listed)


def _total(tenants: Iterable[Mapping[str, Any]], key: str) -> int:
    return sum(int(tenant.get(key, 0)) for tenant in tenants)
