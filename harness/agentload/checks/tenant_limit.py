"""Is a tenant held to its own limit, and given all of it?"""

from __future__ import annotations

from collections.abc import Sequence
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


class TenantLimit(Check):
    """Passes when each tenant is admitted within limit · t + burst over every window, and 90 % of its limit.

    Judged by what reaches the provider for the tenant, whatever window the gateway counts in: fixed windows
    admit twice the limit around their edges, counters that rejected requests also push up admit nothing at
    all. Too much fails in any run; too little only where the tenant asked for it.
    """

    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True
    extensive = ("per_minute", "burst")

    tenants: tuple[TenantName, ...] = ()
    """Tenants or groups that have this limit; by default all."""
    per_minute: float | None = Field(default=None, gt=0)
    """Each tenant's limit as the gateway was told it. Without it there is nothing to judge."""
    unit: Literal["requests", "tokens"] = "requests"
    """tokens: what the provider charged for the call."""
    burst: float = Field(default=1.0, gt=0)
    """What may come at once, in the unit: the capacity of the gateway's bucket."""
    tolerance: float = Field(default=0.02, ge=0, lt=1)
    """Part of the burst by which it may be exceeded."""
    min_admitted: float = Field(default=0.9, ge=0, le=1)
    """Share of min(offered, limit) that must be admitted, 0..1."""

    def judge(self, run: Run) -> Verdict:
        """Each tenant's worst window, and what it got of what it may have."""
        if self.per_minute is None:
            return undecided(self, "say the tenants' limit: `tenant-limit: {per_minute: 600}`")
        use = self._use(run)
        n = sum(one.calls for one in use)
        if not enough(n, 50):
            return undecided(self, f"the provider admitted only {n} calls of these tenants: 20 are needed")
        details: dict[str, Any] = {"tenants": {one.tenant: one.details() for one in use}}
        bound = self.burst * (1 + self.tolerance)
        most = max(use, key=lambda one: one.peak)
        if most.peak > bound:
            details["stands_under_any_load"] = True
            return conclude(
                self,
                Status.FAILED,
                f"{most.tenant} was admitted {most.peak:.0f} {self.unit} beyond {self.per_minute:g} a "
                f"minute in the window that ended at {most.peak_ns / NS:.2f} s; a burst of {self.burst:g} "
                "is allowed",
                measured=most.peak,
                bound=bound,
                unit=self.unit,
                n=n,
                evidence=[_at_peak(one, self.unit) for one in use if one.peak > bound],
                details=details,
            )
        least = min(use, key=lambda one: one.share)
        return conclude(
            self,
            Status.FAILED if least.share < self.min_admitted else Status.PASSED,
            f"{least.tenant} was admitted {least.admitted:.0f} of the {least.due:.0f} {self.unit} that it "
            f"asked for and may have ({100 * least.share:.0f} %); nobody more than {most.peak:.0f} at once "
            f"beyond the rate (burst {self.burst:g})",
            measured=max(0.0, 100 * (1 - least.share)),
            bound=100 * (1 - self.min_admitted),
            unit="% withheld",
            n=n,
            evidence=[
                Evidence(note=f"{least.tenant}: {least.admitted:.0f} of {least.due:.0f} {self.unit}"),
                _at_peak(most, self.unit),
            ],
            details=details,
        )

    def _use(self, run: Run) -> list[_Use]:
        calls: dict[str, list[LedgerEntry]] = {name: [] for name in tenant_names(run, self.tenants)}
        for call in admitted(run.ledger):
            if call.tenant in calls:
                calls[call.tenant].append(call)
        wanted = dict.fromkeys(calls, 0)
        for record in counted_records(run):
            if record.tenant in wanted and record.attempt == 0 and record.outcome is not Outcome.UNSENT:
                wanted[record.tenant] += 1
        return [
            self._use_of(run, name, mine, wanted[name])
            for name, mine in calls.items()
            if mine or wanted[name]
        ]

    def _use_of(self, run: Run, tenant: str, calls: Sequence[LedgerEntry], wanted: int) -> _Use:
        per_s = (self.per_minute or 0.0) / 60
        windows = [run.profile.phase_window_ns(phase) for phase in counted_phases(run)]
        costs = [(call.arrived_ns, self._cost(call)) for call in calls]
        counted = [cost for at, cost in costs if any(start <= at < end for start, end in windows)]
        mean = sum(cost for _, cost in costs) / len(costs) if costs else 1.0
        limit = per_s * sum(end - start for start, end in windows) / NS
        peak, peak_ns = highest_level(costs, per_s)
        return _Use(tenant, len(calls), sum(counted), min(limit, wanted * mean), peak, peak_ns)

    def _cost(self, call: LedgerEntry) -> float:
        return float(call.charged_tokens) if self.unit == "tokens" else 1.0

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


class _Use(msgspec.Struct, frozen=True):
    tenant: str
    calls: int
    admitted: float
    """In the recorded phases."""
    due: float
    """min(offered, limit) there."""
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


def _at_peak(use: _Use, unit: str) -> Evidence:
    return Evidence(note=f"{use.tenant}: {use.peak:.0f} {unit} above the rate", at_ns=use.peak_ns)


def _run(*, every_ms: float, calls: int = 40) -> Run:
    build = RunBuilder(profile(phases={"load": every_ms * calls / 1_000}, tenants={"a": 1.0}))
    for k in range(calls):
        build.answered("a", every_ms * k)
    return build.run()
