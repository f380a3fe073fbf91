"""Does the gateway leave the provider idle while work waits?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName
from agentload.evidence.allowance import admitted, kept_to, permitted, replayable
from agentload.evidence.fairness import TRANSIT_NS
from agentload.evidence.hidden_queue import Wait, waits
from agentload.evidence.history import counted_phases
from agentload.evidence.intervals import (
    Interval,
    above_zero,
    area,
    intersect,
    length_ns,
    merge,
    subtract,
)
from agentload.evidence.startable import UNLIMITED, Change, Sweep
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, finite, milliseconds, seconds, undecided
from agentload.evidence.widths import Widths
from agentload.model import NS, Evidence, Outcome, Run, Status, Verdict
from agentload.promises import SAID_BY, Truth
from fake_provider.config import ProviderConfig

DISPATCH_NS = 10_000_000
"""A call that makes room is followed by the next one this much later at most: the way there and back."""
STALL_RECOVERY_NS = NS // 2
LEAST_WAITING_NS = NS
RULES = (Truth.SLOTS, Truth.TENANT_SLOTS, Truth.CLASSES, Truth.UPSTREAM)
"""By any of these a gateway may rightly leave a slot of the provider idle."""


class WorkConserving(Check):
    """Passes when slots of the provider stand idle for at most 5 % of the time in which work waits for them.

    Counted is slot-time: as many free slots as there is eligible work waiting in the gateway, less 10 ms for
    each dispatch. Work is eligible when it has waited for more than the way through the gateway, its tenant
    is below its cap (`tenant_slots`) and its class below its borrowing limit; slots that its pool keeps for
    other classes (floors, headroom) are not free for it. Where the gateway counts work units, what waits must
    fit into those that are left, as wide as it may be at most, while no wider job has units gathered for it.
    Time in which the provider's own limits, replayed from its ledger, or the lower ones that the gateway was
    told, would not have let the next call through does not count, nor does a wait that the provider asked
    for. A gateway that is fair by leaving capacity unused has only made everybody poorer. Where a target does
    not declare its slots, caps and classes, a provider that is never idle while anything waits passes all the
    same; idleness then decides nothing.
    """

    better_with = frozenset({Truth.SLOTS, Truth.TENANT_SLOTS, Truth.CLASSES, Truth.UPSTREAM})
    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True
    extensive_slots = ("slots", "tenant_slots")

    phases: tuple[PhaseName, ...] = ()
    """By default every recorded phase."""
    slots: int | None = Field(default=None, ge=1)
    """The provider's, by default as in the profile. With neither, one waiting request counts as one slot."""
    tenant_slots: int | None = Field(default=None, ge=1)
    """Calls that the gateway lets one tenant have in flight: by default as it was told (`tenant_slots`, and
    half of a pool's slots where the bundled one is told nothing)."""
    margin: float = Field(default=0.05, ge=0, lt=1)
    """Part of the provider's token and request limits that a gateway may keep back, 0..1."""
    max_idle: float = Field(default=0.05, gt=0, lt=1)
    """Share of the slot-time in which work waited, 0..1."""

    def better(self) -> frozenset[Truth]:
        """Each only excuses idleness: a pass needs none, and the check itself says which a failure wants."""
        return frozenset()

    def judge(self, run: Run) -> Verdict:
        """Sweep over the run: free slots, eligible work, and what the provider would have admitted."""
        if not replayable(run.profile.provider):
            return undecided(self, "when the provider's limit binds cannot be told from its ledger")
        windows = self._windows(run)
        waited = waits(run.records, run.ledger)
        if not windows or not enough(len(run.ledger), 50):
            return undecided(self, f"the provider saw only {len(run.ledger):,} calls: 20 are needed")
        end_ns = max(end for _, end in windows)
        slots = self.slots or run.profile.provider.slots
        idle, eligible = Sweep(run.profile, slots, self.tenant_slots).over(_changes(run, waited))
        contested = intersect(above_zero(eligible, end_ns), windows)
        free = permitted(run.ledger, kept_to(run), (0, end_ns), self.margin)
        idle_in = intersect(contested, free)
        found = _Idleness(
            waited_ns=length_ns(contested),
            idle_ns=area(idle, idle_in),
            dispatches=sum(w.served and w.length_ns > TRANSIT_NS and _ends_in(w, windows) for w in waited),
            slots=_usable(run, slots),
        )
        longest = sorted(intersect(above_zero(idle, end_ns), idle_in), key=lambda i: i[0] - i[1])[:5]
        n = sum(call.started_ns is not None for call in run.ledger)
        unknown = [truth for truth in RULES if not run.knows(truth)]
        if unknown and found.share > self.max_idle and found.waited_ns >= LEAST_WAITING_NS:
            return undecided(self, _may_be_a_rule(found, unknown), n=n, details=found.details())
        return self._conclude(found, longest, n)

    def _conclude(self, found: _Idleness, longest: Sequence[Interval], n: int) -> Verdict:
        if found.waited_ns < LEAST_WAITING_NS:
            return undecided(
                self,
                f"work waited for only {seconds(found.waited_ns)} in all: more load would show whether "
                "anything stands idle meanwhile",
                n=n,
                details=found.details(),
            )
        because = (
            f"work waited for {seconds(found.waited_ns)}; of {seconds(found.whole_ns)} of slot-time "
            f"({found.slots} slots) {seconds(found.idle_ns)} stood idle, {seconds(found.allowed_ns)} of it "
            f"allowed for {found.dispatches:,} dispatches"
        )
        return conclude(
            self,
            Status.PASSED if found.share <= self.max_idle else Status.FAILED,
            because,
            measured=100 * found.share,
            bound=100 * self.max_idle,
            unit="%",
            n=n,
            evidence=[
                Evidence(note=f"idle for {milliseconds(end - start)} while work waited", at_ns=start)
                for start, end in longest
            ],
            details=found.details(),
        )

    def _windows(self, run: Run) -> list[Interval]:
        """The phases to judge, without the moments in which the machine stood still."""
        phases = merge(run.profile.phase_window_ns(name) for name in self.phases or counted_phases(run))
        stalls = merge((s.start_ns, s.end_ns + STALL_RECOVERY_NS) for s in run.health.stalls)
        return subtract(phases, stalls)

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Two slots, and a gateway that polls: each call starts 60 ms after the one before it ended."""
        return cls(), _run(gap_ms=60)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Forty calls that hardly wait."""
        return cls(), _run(gap_ms=60, wait_ms=5)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """The next call starts 3 ms after the last one ended."""
        return cls(), _run(gap_ms=3)


class _Idleness(msgspec.Struct, frozen=True):
    waited_ns: int
    """How long there was eligible work waiting."""
    idle_ns: int
    """Slot-time that stood idle meanwhile, although the provider would have taken the next call."""
    dispatches: int
    """Calls that had waited: each may have taken its 10 ms."""
    slots: int

    @property
    def whole_ns(self) -> int:
        return self.waited_ns * self.slots

    @property
    def allowed_ns(self) -> int:
        return min(self.idle_ns, self.dispatches * DISPATCH_NS)

    @property
    def share(self) -> float:
        return (self.idle_ns - self.allowed_ns) / self.whole_ns if self.whole_ns else 0.0

    def details(self) -> dict[str, Any]:
        return {
            "waited_s": finite(self.waited_ns / NS),
            "idle_slot_s": finite(self.idle_ns / NS),
            "allowed_slot_s": finite(self.allowed_ns / NS),
            "dispatches": self.dispatches,
            "slots": self.slots,
        }


def _usable(run: Run, slots: int | None) -> int:
    """Slots that the gateway may use of the provider's."""
    if slots is None:
        return UNLIMITED
    pools = run.profile.gateway.pools.values()
    return min(slots, sum(pool.slots for pool in pools)) if run.knows(Truth.SLOTS) else slots


def _may_be_a_rule(found: _Idleness, unknown: Sequence[Truth]) -> str:
    keys = ", ".join(SAID_BY[truth] for truth in unknown)
    return (
        f"work waited for {seconds(found.waited_ns)}; {100 * found.share:.1f} % of the slot-time stood idle: "
        f"one of the gateway's own rules may ask for that: say declares: {keys} (or `declares: profile`)"
    )


def _changes(run: Run, waited: Sequence[Wait]) -> list[Change]:
    widths = Widths(run)
    width = {(record.seq, record.attempt): widths.of(record) for record in run.records}
    found: list[Change] = []
    for wait in waited:
        if wait.length_ns > TRANSIT_NS:
            key = (wait.seq, wait.attempt)
            found.append(Change(wait.start_ns + TRANSIT_NS, wait.tenant, 1, 0, key, width[key]))
            found.append(Change(wait.end_ns, wait.tenant, -1, 0, key, width[key]))
    for call in admitted(run.ledger):
        if call.started_ns is not None:
            key = (call.seq or 0, call.attempt or 0)
            found.append(Change(call.started_ns, call.tenant, 0, 1, key, width.get(key, 0)))
            if call.ended_ns is not None:
                found.append(Change(call.ended_ns, call.tenant, 0, -1, key, width.get(key, 0)))
    found.sort(key=lambda change: change.at_ns)
    return found


def _ends_in(wait: Wait, windows: Sequence[Interval]) -> bool:
    return any(start <= wait.end_ns < end for start, end in windows)


def _run(*, gap_ms: float, wait_ms: float = 400.0, calls: int = 40) -> Run:
    """One tenant, two slots, 100 ms of service; each slot's next call starts `gap_ms` after the last."""
    length_s = calls / 2 * (100 + gap_ms) / 1_000
    build = RunBuilder(
        profile(phases={"load": length_s}, tenants={"a": 1.0}, provider=ProviderConfig(slots=2))
    )
    for k in range(calls):
        start_ms = k // 2 * (100 + gap_ms)
        build.answered("a", max(0.0, start_ms - wait_ms), wait_ms=min(wait_ms, start_ms), service_ms=100)
    if wait_ms > gap_ms:  # somebody is still waiting when the last call has gone
        build.ended("a", 0, Outcome.UNFINISHED, after_ms=1_000 * length_s)
    return build.run()
