"""Are there ever more calls at the provider than the gateway may have there?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from pydantic import Field

from agentload.checks import Check
from agentload.evidence.allowance import admitted
from agentload.evidence.intervals import Interval, overlap_count
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.evidence.verdicts import conclude, seconds, undecided
from agentload.model import CallEnding, Evidence, LedgerEntry, Profile, Run, Status, Verdict
from agentload.promises import Truth


class ConcurrencyCap(Check):
    """Passes when there are never more calls at the provider than the gateway's cap, in all or per tenant.

    A cap that holds on average is none: a permit that is given back when the handler returns, and not when
    the stream ends, or a counter that lives in a rate window, shows only here. Counted are the calls that the
    provider has admitted, from their arrival to their end; one whose client left counts as ended
    `cancel_grace_ms` earlier than the provider noticed.
    """

    rests_on = frozenset({Truth.SLOTS, Truth.TENANT_SLOTS})
    needs_ledger = True
    zero_tolerance = True
    extensive_slots = ("total", "per_tenant")

    total: int | None = Field(default=None, ge=1)
    """By default the slots of all pools of the profile's gateway."""
    per_tenant: int | None = Field(default=None, ge=1)
    """By default the tenants' own `slots`, or the pools' `tenant_slots`, where the profile sets them; else
    tenants are not looked at."""
    cancel_grace_ms: float = Field(default=100.0, ge=0)

    def judge(self, run: Run) -> Verdict:
        """The highest number of calls at once, in all and for each tenant."""
        calls = admitted(run.ledger)
        if not enough(len(calls), 50):
            return undecided(
                self, f"the provider admitted only {len(calls):,} calls: at least 20 are needed", n=len(calls)
            )
        peaks = [*self._total(run, calls), *self._tenants(run, calls)]
        if not peaks:
            return undecided(self, "none of the tenants whose cap is known sent anything", n=len(calls))
        over = [peak for peak in peaks if peak.count > peak.cap]
        worst = max(peaks, key=lambda peak: peak.count / peak.cap)
        return conclude(
            self,
            Status.FAILED if over else Status.PASSED,
            f"{worst.who} had up to {worst.count:,} calls at the provider at once, at {seconds(worst.at_ns)}"
            f"; the cap is {worst.cap:,}{self._not_judged(run)}",
            measured=worst.count,
            bound=worst.cap,
            unit="calls",
            n=len(calls),
            evidence=[
                Evidence(note=f"{peak.who}: {peak.count:,} calls, cap {peak.cap:,}", at_ns=peak.at_ns)
                for peak in sorted(over or [worst], key=lambda peak: -peak.count / peak.cap)
            ],
            details={"peaks": {peak.who: {"calls": peak.count, "cap": peak.cap} for peak in peaks}},
        )

    def rests(self) -> frozenset[Truth]:
        """On nothing where a cap is said here."""
        return frozenset() if self.total or self.per_tenant else self.rests_on

    def _not_judged(self, run: Run) -> str:
        """What else the target might have promised."""
        if not self.total and not run.knows(Truth.SLOTS):
            return "; all tenants together are not judged: the target declares no slots"
        if not self.per_tenant and not run.knows(Truth.TENANT_SLOTS):
            return "; single tenants are not judged: the target declares no tenant slots"
        return ""

    def _total(self, run: Run, calls: Sequence[LedgerEntry]) -> list[_Peak]:
        if not self.total and not run.knows(Truth.SLOTS):
            return []
        cap = self.total or sum(pool.slots for pool in run.profile.gateway.pools.values())
        return [self._peak("all tenants", calls, cap)]

    def _tenants(self, run: Run, calls: Sequence[LedgerEntry]) -> list[_Peak]:
        caps = self._caps(run.profile) if self.per_tenant or run.knows(Truth.TENANT_SLOTS) else {}
        mine: dict[str, list[LedgerEntry]] = {}
        for call in calls:
            if call.tenant in caps:
                mine.setdefault(call.tenant, []).append(call)
        return [self._peak(tenant, own, caps[tenant]) for tenant, own in mine.items()]

    def _caps(self, of: Profile) -> dict[str, int]:
        caps: dict[str, int] = {}
        for pool in of.gateway.pools.values():
            cap = self.per_tenant or (pool.tenant_slots and pool.tenant_slots * pool.lanes_each)
            if cap is not None:
                caps |= {t.name: cap for t in of.tenants if t.service_class in pool.classes}
        own = {name: one.slots for name, one in of.gateway.tenants.items() if one.slots is not None}
        return caps if self.per_tenant else caps | own

    def _peak(self, who: str, calls: Iterable[LedgerEntry], cap: int) -> _Peak:
        at_ns, count = max(
            overlap_count(self._stay(call) for call in calls),
            key=lambda step: step[1],
            default=(0, 0),
        )
        return _Peak(who, count, cap, at_ns)

    def _stay(self, call: LedgerEntry) -> Interval:
        if call.ended_ns is None:
            return call.arrived_ns, _NEVER_NS
        grace_ns = round(self.cancel_grace_ms * MS) if call.ending is CallEnding.CANCELLED else 0
        return call.arrived_ns, max(call.arrived_ns, call.ended_ns - grace_ns)

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Permits come back before the streams end: five calls at once under a cap of four."""
        return cls(total=4), _run(every_ms=20)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Ten calls."""
        return cls(total=4), _run(every_ms=20, calls=10)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Four at once."""
        return cls(total=4), _run(every_ms=25)


_NEVER_NS = 2**63


class _Peak(msgspec.Struct, frozen=True):
    who: str
    count: int
    cap: int
    at_ns: int


def _run(*, every_ms: float, calls: int = 40) -> Run:
    """Calls of 100 ms."""
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(calls):
        build.answered("a", every_ms * k, service_ms=100)
    return build.run()
