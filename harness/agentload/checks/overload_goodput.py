"""Does overload cost useful work, or only turn away what is too much?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName
from agentload.evidence.history import counted_phases, logical_requests
from agentload.evidence.intervals import Interval, clip, length_ns
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, finite, undecided
from agentload.model import NS, CallEnding, Evidence, LedgerEntry, Outcome, Run, Status, Verdict
from fake_provider.config import ProviderConfig

DIGITS = 9
"""Sums of seconds are not exact; what differs in the tenth digit is equal."""
OVERLOADED = 1.2
"""Offered work, as a multiple of capacity, from which a phase counts as overloaded by itself."""


class OverloadGoodput(Check):
    """Passes when useful completions reach 90 % of the provider's capacity, at every overload.

    Useful is the work of a call whose client got the answer: what was computed for somebody who had left, and
    what was cut or tried again, is not. Capacity is what binds at the provider, its slots (counted in
    slot-time) or its token limit (in charged tokens), whichever is used more; or, with `capacity: busy`, the
    slot-time that its calls really took, where the provider is not meant to be full: then only waste counts.
    Offered is what open loops send; a closed loop sends less when it gets less, so that what counts of it is
    how many of its users want something, against as many calls at once as the capacity allows.
    (What the token bucket held at the beginning comes on top: a gateway that keeps some of the limit back
    never gets all of that.) A gateway that collapses at ten times the load may look well at two.
    """

    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True

    phases: tuple[PhaseName, ...] = ()
    """By default every recorded phase in which 1.2 × the capacity or more was offered."""
    capacity: Literal["limit", "busy"] = "limit"
    min_goodput: float = Field(default=0.9, gt=0, le=1)
    """Share of the capacity, 0..1."""

    def judge(self, run: Run) -> Verdict:
        """Useful work over capacity, phase by phase; the worst decides."""
        useful = _useful(run)
        loads = [
            load
            for phase in self.phases or counted_phases(run)
            if (load := self._load(run, phase, useful)) is not None
        ]
        judged = [load for load in loads if load.multiple >= self._least_multiple]
        missing = [phase for phase in self.phases if phase not in {load.phase for load in judged}]
        details = {"phases": {load.phase: load.details() for load in loads}}
        if not judged:
            return undecided(self, _why_not(loads), details=details)
        worst = min(judged, key=lambda load: load.goodput)
        failed = worst.goodput < self.min_goodput
        if missing and not failed:
            return undecided(self, _why_not([x for x in loads if x.phase in missing]), details=details)
        return conclude(
            self,
            Status.FAILED if failed else Status.PASSED,
            f"in '{worst.phase}', with {worst.multiple:.1f} × the capacity offered, useful completions were "
            f"{100 * worst.goodput:.0f} % of it ({worst.useful:,.0f} of {worst.capacity:,.0f} {worst.unit}, "
            f"{worst.source}); {worst.wasted:,} of {worst.calls:,} calls were of no use to anybody",
            measured=100 * (1 - worst.goodput),
            bound=100 * (1 - self.min_goodput),
            unit="% of capacity lost",
            n=worst.calls,
            evidence=[
                Evidence(
                    note=f"'{x.phase}': {x.multiple:.1f} × offered, {100 * x.goodput:.0f} % useful",
                    at_ns=x.window[0],
                )
                for x in sorted(judged, key=lambda load: load.goodput)
            ],
            details=details,
        )

    @property
    def _least_multiple(self) -> float:
        if not self.phases:
            return OVERLOADED
        # What was used is never more than was offered, retries aside: any load shows what was wasted of it.
        return 1.0 if self.capacity == "limit" else 0.0

    def _load(self, run: Run, phase: str, useful: set[int]) -> _Load | None:
        """None when too few calls were completed to tell what one costs, or nothing bounds the provider."""
        window = run.profile.phase_window_ns(phase)
        calls = [c for c in run.ledger if c.started_ns is not None and _touches(c, window)]
        if not enough(sum(call.ending is CallEnding.COMPLETED for call in calls), 50):
            return None
        demand = _Demand.of(run, phase, window)
        loads = [
            _Load.of(resource, phase, window, calls, useful, demand)
            for resource in self._resources(run, window)
        ]
        return max(loads, key=lambda load: load.used, default=None)

    def _resources(self, run: Run, window: Interval) -> list[_Resource]:
        provider, length_s = run.profile.provider, (window[1] - window[0]) / NS
        if self.capacity == "busy":
            return [_Resource("slot-seconds", "what its calls took of the provider's slots", None)]
        found: list[_Resource] = []
        if provider.slots is not None:
            name = f"the provider's {provider.slots} slots"
            found.append(_Resource("slot-seconds", name, provider.slots * length_s))
        if provider.tokens_per_minute is not None:
            name = f"the provider's {provider.tokens_per_minute:g} tokens a minute"
            found.append(_Resource("tokens", name, provider.tokens_per_minute / 60 * length_s))
        return found

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Every other call is for a client that has left."""
        return cls(), _run(abandoned_every=2)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Eight calls."""
        return cls(), _run(abandoned_every=2, calls=8)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """What is too much is refused; what is served is useful."""
        return cls(), _run(abandoned_every=1_000)


class _Resource(msgspec.Struct, frozen=True):
    unit: Literal["slot-seconds", "tokens"]
    name: str
    capacity: float | None
    """What there was of it in the window; None: what the calls took."""

    def amount(self, call: LedgerEntry, window: Interval) -> float:
        """What of it a call used within a window."""
        if self.unit == "tokens":
            return float(call.charged_tokens) if window[0] <= call.arrived_ns < window[1] else 0.0
        start_ns = call.started_ns or call.arrived_ns
        end_ns = window[1] if call.ended_ns is None else call.ended_ns
        return length_ns(clip([(start_ns, end_ns)], window)) / NS

    def cost(self, call: LedgerEntry) -> float:
        """What of it a whole call uses."""
        if self.unit == "tokens" or call.started_ns is None or call.ended_ns is None:
            return float(call.charged_tokens)
        return (call.ended_ns - call.started_ns) / NS


class _Demand(msgspec.Struct, frozen=True):
    """What was wanted in one phase."""

    requests: int
    """Logical requests."""
    of_open_loops: int
    users: float
    """Users of closed loops who wanted something, on average: from when it was due until it ended."""

    @classmethod
    def of(cls, run: Run, phase: str, window: Interval) -> _Demand:
        closed = {tenant.name for tenant in run.profile.tenants if tenant.awaits_answers}
        sent = [record for record in run.records if record.outcome is not Outcome.UNSENT]
        mine = {record.seq: record.tenant for record in sent if record.phase == phase}
        wanting = [
            (one.first.first_due_ns, one.last.ended_ns)
            for one in logical_requests(record for record in sent if record.tenant in closed)
        ]
        return cls(
            requests=len(mine),
            of_open_loops=sum(tenant not in closed for tenant in mine.values()),
            users=length_ns(clip(wanting, window)) / (window[1] - window[0]),
        )

    def multiple(self, calls: float, at_once: float) -> float:
        """Of a capacity of so many calls in the phase, so many of them at once."""
        return max(self.requests / calls, self.of_open_loops / calls + self.users / at_once)


class _Load(msgspec.Struct, frozen=True):
    """One phase, in the unit of what bound it."""

    phase: str
    window: Interval
    unit: str
    source: str
    """What the capacity is that of."""
    capacity: float
    used: float
    """By all calls, as a part of the capacity."""
    useful: float
    multiple: float
    """Offered work over capacity."""
    calls: int
    wasted: int

    @classmethod
    def of(
        cls,
        resource: _Resource,
        phase: str,
        window: Interval,
        calls: Sequence[LedgerEntry],
        useful: set[int],
        demand: _Demand,
    ) -> _Load:
        taken = sum(resource.amount(call, window) for call in calls)
        gained = sum(resource.amount(call, window) for call in calls if call.call in useful)
        capacity = taken if resource.capacity is None else resource.capacity
        whole = [call for call in calls if call.ending is CallEnding.COMPLETED]
        fitting = capacity * len(whole) / sum(resource.cost(call) for call in whole)
        at_once = fitting * sum(map(_service_ns, whole)) / len(whole) / (window[1] - window[0])
        return cls(
            phase=phase,
            window=window,
            unit=resource.unit,
            source=resource.name,
            capacity=capacity,
            used=taken / capacity if capacity else 0.0,
            useful=gained,
            multiple=round(demand.multiple(fitting, at_once), DIGITS) if fitting and at_once else 0.0,
            calls=len(calls),
            wasted=sum(call.call not in useful for call in calls),
        )

    @property
    def goodput(self) -> float:
        return round(min(1.0, self.useful / self.capacity), DIGITS) if self.capacity else 0.0

    def details(self) -> dict[str, Any]:
        return {
            "offered_multiple": finite(self.multiple),
            "capacity": finite(self.capacity, 1),
            "unit": self.unit,
            "of": self.source,
            "useful": finite(self.useful, 1),
            "used": finite(self.used, 4),
            "goodput": finite(self.goodput, 4),
            "calls": self.calls,
            "wasted_calls": self.wasted,
        }


def _useful(run: Run) -> set[int]:
    """The numbers of the calls that brought their client its answer."""
    answered = {(r.seq, r.attempt) for r in run.records if r.outcome is Outcome.ANSWERED}
    return {
        call.call
        for call in run.ledger
        if call.ending is CallEnding.COMPLETED and (call.seq, call.attempt) in answered
    }


def _service_ns(call: LedgerEntry) -> int:
    return (call.ended_ns or call.arrived_ns) - (call.started_ns or call.arrived_ns)


def _touches(call: LedgerEntry, window: Interval) -> bool:
    end_ns = window[1] if call.ended_ns is None else call.ended_ns
    return call.arrived_ns < window[1] and end_ns > window[0]


def _why_not(loads: Sequence[_Load]) -> str:
    if not loads:
        return (
            "no phase had 20 completed calls and a provider with slots or a token limit: longer phases, "
            "or `capacity: busy`"
        )
    most = max(loads, key=lambda load: load.multiple)
    return (
        f"at most {most.multiple:.2f} × the capacity ({most.source}) was offered, in '{most.phase}': "
        "raise the load, or lower the provider's limits"
    )


def _run(*, abandoned_every: int, calls: int = 200) -> Run:
    """Two slots, 100 ms a call, ten seconds; twice as much is wanted as fits."""
    build = RunBuilder(profile(phases={"overload": 10.0}, provider=ProviderConfig(slots=2)))
    for k in range(calls):
        at_ms = k // 2 * 100
        build.refused("b", at_ms)
        if k % abandoned_every == abandoned_every - 1:
            record = build.ended("a", at_ms, Outcome.ABANDONED, after_ms=50)
            build.call(record, at_ms, at_ms + 100, CallEnding.COMPLETED)
        else:
            build.answered("a", at_ms, service_ms=100)
    return build.run()
