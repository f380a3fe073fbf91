"""Is a tenant held to its own limit, and given all of it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from pydantic import Field

from agentload.checks import Check, TenantName
from agentload.evidence.allowance import admitted
from agentload.evidence.envelope import highest_level
from agentload.evidence.history import counted_phases, counted_records, tenant_names
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, finite, undecided
from agentload.model import NS, Evidence, LedgerEntry, Outcome, Run, Status, Verdict
from agentload.promises import Truth
from agentload.scheduler.config import TenantConfig


class TenantLimit(Check):
    """Passes when each tenant is admitted within limit · t + burst over every window, and 90 % of its limit.

    Judged by what reaches the provider for the tenant, whatever window the gateway counts in: fixed windows
    admit twice the limit around their edges, counters that rejected requests also push up admit nothing at
    all. Too much fails in any run; too little only where the tenant asked for it.
    """

    rests_on = frozenset({Truth.TENANT_LIMITS})
    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True
    extensive = ("per_minute", "burst")

    tenants: tuple[TenantName, ...] = ()
    """Tenants or groups to look at; by default all that have a limit."""
    per_minute: float | None = Field(default=None, gt=0)
    """Each tenant's limit, in the unit. By default what the gateway was told of each, requests and tokens:
    `tenants.T.requests_per_minute`, `tokens_per_minute` and `burst_s`."""
    unit: Literal["requests", "tokens"] = "requests"
    """tokens: what the provider charged for the call."""
    burst: float = Field(default=1.0, gt=0)
    """With `per_minute`: what may come at once, in the unit; the capacity of the gateway's bucket."""
    tolerance: float = Field(default=0.02, ge=0, lt=1)
    """Part of the burst by which it may be exceeded."""
    min_admitted: float = Field(default=0.9, ge=0, le=1)
    """Share of min(offered, limit) that must be admitted, 0..1."""

    def rests(self) -> frozenset[Truth]:
        """On nothing where the limit is said here."""
        return self.rests_on if self.per_minute is None else frozenset()

    def judge(self, run: Run) -> Verdict:
        """Each tenant's worst window, and what it got of what it may have."""
        limits = {name: own for name in tenant_names(run, self.tenants) if (own := self._limits(run, name))}
        if not limits:
            return undecided(
                self, "none of these tenants has a limit: say it, `tenant-limit: {per_minute: 600}`"
            )
        use = self._use(run, limits)
        n = sum({one.tenant: one.calls for one in use}.values())
        if not enough(n, 50):
            return undecided(self, f"the provider admitted only {n:,} calls of these tenants: 20 are needed")
        details: dict[str, Any] = {"tenants": _details(use)}
        over = [one for one in use if one.peak > self._most(one)]
        if over:
            details["stands_under_any_load"] = True
            return self._too_much(max(over, key=self._excess), over, n, details)
        return self._within(use, n, details)

    def _most(self, use: _Use) -> float:
        return use.limit.burst * (1 + self.tolerance)

    def _excess(self, use: _Use) -> float:
        return use.peak / use.limit.burst

    def _too_much(self, most: _Use, over: Sequence[_Use], n: int, details: dict[str, Any]) -> Verdict:
        limit = most.limit
        return conclude(
            self,
            Status.FAILED,
            f"{most.tenant} was admitted {most.peak:,.0f} {limit.unit} beyond {limit.per_minute:,g} a "
            f"minute in the window that ended at {most.peak_ns / NS:.2f} s; a burst of {limit.at_once} "
            "is allowed",
            measured=most.peak,
            bound=self._most(most),
            unit=limit.unit,
            n=n,
            evidence=[_at_peak(one) for one in over],
            details=details,
        )

    def _within(self, use: Sequence[_Use], n: int, details: dict[str, Any]) -> Verdict:
        least, most = min(use, key=lambda one: one.share), max(use, key=self._excess)
        return conclude(
            self,
            Status.FAILED if least.share < self.min_admitted else Status.PASSED,
            f"{least.tenant} was admitted {least.admitted:,.0f} of the {least.due:,.0f} {least.limit.unit} "
            f"that it asked for and may have ({100 * least.share:.0f} %); the furthest beyond its rate was "
            f"{most.tenant}, by {most.peak:,.0f} {most.limit.unit} (burst {most.limit.at_once})",
            measured=max(0.0, 100 * (1 - least.share)),
            bound=100 * (1 - self.min_admitted),
            unit="% withheld",
            n=n,
            evidence=[
                Evidence(
                    note=f"{least.tenant}: {least.admitted:,.0f} of {least.due:,.0f} {least.limit.unit}"
                ),
                _at_peak(most),
            ],
            details=details,
        )

    def _limits(self, run: Run, tenant: str) -> list[_Limit]:
        """What it is held to: as said here, else as the gateway was told."""
        if self.per_minute is not None:
            return [_Limit(self.unit, self.per_minute, self.burst)]
        told = run.profile.gateway.tenants.get(tenant, TenantConfig())
        rates: dict[_Unit, float | None] = {
            "requests": told.requests_per_minute,
            "tokens": told.tokens_per_minute,
        }
        return [
            _Limit(unit, rate, max(1.0, rate / 60 * told.burst_s))
            for unit, rate in rates.items()
            if rate is not None
        ]

    def _use(self, run: Run, limits: Mapping[str, list[_Limit]]) -> list[_Use]:
        calls: dict[str, list[LedgerEntry]] = {name: [] for name in limits}
        for call in admitted(run.ledger):
            if call.tenant in calls:
                calls[call.tenant].append(call)
        wanted = dict.fromkeys(calls, 0)
        for record in counted_records(run):
            if record.tenant in wanted and record.attempt == 0 and record.outcome is not Outcome.UNSENT:
                wanted[record.tenant] += 1
        return [
            use
            for name, mine in calls.items()
            if mine or wanted[name]
            for use in _uses(run, name, mine, wanted[name], limits[name])
        ]

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Two a second may come, with a burst of two, and forty come ten a second."""
        return cls(per_minute=120, burst=2), _run(every_ms=100)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Ten calls."""
        return cls(per_minute=120, burst=2), _run(every_ms=100, calls=10)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Two a second may come, and do."""
        return cls(per_minute=120, burst=2), _run(every_ms=500)


_Unit = Literal["requests", "tokens"]


class _Limit(msgspec.Struct, frozen=True):
    unit: _Unit
    per_minute: float
    burst: float

    @property
    def at_once(self) -> str:
        """The burst, in words."""
        return f"{self.burst:,.0f}" if self.burst >= 100 else f"{self.burst:.3g}"

    def cost(self, call: LedgerEntry) -> float:
        return float(call.charged_tokens) if self.unit == "tokens" else 1.0


class _Use(msgspec.Struct, frozen=True):
    tenant: str
    limit: _Limit
    calls: int
    admitted: float
    """In the recorded phases in which it was active."""
    due: float
    """min(offered, each limit) there."""
    peak: float
    peak_ns: int

    @property
    def share(self) -> float:
        return self.admitted / self.due if self.due else 1.0

    def details(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "admitted": finite(self.admitted, 1),
            "due": finite(self.due, 1),
            "peak": finite(self.peak, 1),
            "peak_at_s": finite(self.peak_ns / NS),
        }


def _uses(
    run: Run, tenant: str, calls: Sequence[LedgerEntry], wanted: int, limits: Sequence[_Limit]
) -> list[_Use]:
    """What a tenant had of each of its limits; where it has several, the tightest one says what was due."""
    [during] = [one.during for one in run.profile.tenants if one.name == tenant]
    active = [phase for phase in counted_phases(run) if not during or phase in during]
    windows = [run.profile.phase_window_ns(phase) for phase in active]
    minutes = sum(end - start for start, end in windows) / NS / 60
    means = [sum(map(limit.cost, calls)) / len(calls) if calls else 1.0 for limit in limits]
    due_calls = min(wanted, *(x.per_minute * minutes / mean for x, mean in zip(limits, means, strict=True)))
    uses: list[_Use] = []
    for limit, mean in zip(limits, means, strict=True):
        costs = [(call.arrived_ns, limit.cost(call)) for call in calls]
        counted = [cost for at, cost in costs if any(start <= at < end for start, end in windows)]
        peak, peak_ns = highest_level(costs, limit.per_minute / 60)
        uses.append(_Use(tenant, limit, len(calls), sum(counted), due_calls * mean, peak, peak_ns))
    return uses


def _details(use: Sequence[_Use]) -> dict[str, Any]:
    several = {one.tenant for one in use if sum(one.tenant == other.tenant for other in use) > 1}
    return {
        f"{one.tenant}, {one.limit.unit}" if one.tenant in several else one.tenant: one.details()
        for one in use
    }


def _at_peak(use: _Use) -> Evidence:
    return Evidence(note=f"{use.tenant}: {use.peak:,.0f} {use.limit.unit} above the rate", at_ns=use.peak_ns)


def _run(*, every_ms: float, calls: int = 40) -> Run:
    build = RunBuilder(profile(phases={"load": every_ms * calls / 1_000}, tenants={"a": 1.0}))
    for k in range(calls):
        build.answered("a", every_ms * k)
    return build.run()
