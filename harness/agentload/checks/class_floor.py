"""Does a protected class keep its floor when others want everything?"""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName
from agentload.evidence.class_scene import ClassScene
from agentload.evidence.history import counted_phases
from agentload.evidence.intervals import area, intersect, length_ns, merge
from agentload.evidence.service_classes import (
    ClassView,
    ClassViews,
    at_most,
    backlogged_in,
    class_share,
    waited_ns,
)
from agentload.evidence.statistics import enough, percentile
from agentload.evidence.verdicts import conclude, finite, seconds, undecided
from agentload.model import NS, Evidence, Profile, Run, Status, Verdict
from agentload.promises import Truth
from agentload.scheduler.pool import ROUNDING

MS = 1_000_000
CONTESTED_NS = NS
"""So long others must have had work waiting, or nobody was after the floor."""


class ClassFloor(Check):
    """Passes when a class has its floor whenever it wants it, however much the others want.

    While the class has work waiting in the gateway, as many of its calls must be in service at the provider
    as its floor says; of that slot-time at most `max_missing` may be missing. And in a phase in which it uses
    no more than a third of its floor, so that its bursts fit in, it should not wait at all: `max_wait_ms`
    bounds the 95th percentile of its wait in the gateway there. A floor that was lent out is missed for as
    long as the borrowers' calls take, however readily it is given back. Others must have had work waiting
    meanwhile, or nothing follows.
    """

    rests_on = frozenset({Truth.CLASSES})
    needs_ledger = True
    stalls_only_worsen = True
    extensive_slots = ("slots",)

    service_class: str = "guaranteed"
    floor: float | None = Field(default=None, gt=0, le=1)
    """Share of the slots, 0..1, rounded down to whole ones. By default what the gateway keeps for the class:
    `min_units`, or what of its nominal share is not lendable."""
    slots: int | None = Field(default=None, ge=1)
    """The provider's, by default as in the profile."""
    phases: tuple[PhaseName, ...] = ()
    """By default every recorded phase."""
    max_missing: float = Field(default=0.1, gt=0, lt=1)
    """Share of the floor's slot-time, 0..1."""
    max_wait_ms: float = Field(default=100.0, gt=0)
    """Of the p95 of its waits in phases in which it uses no more than a third of its floor."""

    def judge(self, run: Run) -> Verdict:
        """What of the floor was missing while the class waited, and how long it waited below it."""
        floor = self._floor_slots(run.profile)
        if isinstance(floor, str):
            return undecided(self, floor)
        views = ClassViews(run)
        mine, others = views.of([self.service_class]), views.others([self.service_class])
        phases = self.phases or tuple(counted_phases(run))
        found = _Found.of(run, phases, floor, mine, others)
        n = sum(phase.calls for phase in found.phases)
        if not enough(n, 50):
            return undecided(
                self, f"class '{self.service_class}' sent only {n:,} requests: at least 20 are needed", n=n
            )
        if found.contested_ns < CONTESTED_NS:
            return undecided(
                self,
                f"others had work waiting for only {seconds(found.contested_ns)}: nobody was after the floor",
                n=n,
            )
        return self._conclude(found, floor, n)

    def _floor_slots(self, of: Profile) -> int | str:
        """The floor, or what it would take to know it."""
        if self.floor is None:
            share = class_share(of, self.service_class)
            if share is None or not share.floor_slots:
                return (
                    f"the gateway keeps no slot for a class '{self.service_class}': say its share as `floor`"
                )
            return share.floor_slots
        slots = self.slots or of.provider.slots
        if slots is None:
            return "the provider has no slots: say how many there are as `slots`"
        return int(self.floor * slots + ROUNDING)

    def _conclude(self, found: _Found, floor: int, n: int) -> Verdict:
        slow = [p for p in found.phases if p.judged and p.p95_wait_ns > self.max_wait_ms * MS]
        if slow:
            worst = max(slow, key=lambda phase: phase.p95_wait_ns)
            status, measured, bound, unit = Status.FAILED, worst.p95_wait_ns / MS, self.max_wait_ms, "ms"
            because = (
                f"in '{worst.name}' class '{self.service_class}' used {worst.held:.1f} slots of its floor of "
                f"{floor}, and yet the p95 of its wait was {seconds(worst.p95_wait_ns)}"
            )
        else:
            status = Status.PASSED if found.missing <= self.max_missing else Status.FAILED
            measured, bound, unit = 100 * found.missing, 100 * self.max_missing, "%"
            because = (
                f"class '{self.service_class}' had work waiting for {seconds(found.waited_ns)}; of its floor "
                f"of {floor} slots {100 * found.missing:.1f} % were missing meanwhile"
                + "".join(
                    f"; in '{p.name}' the p95 of its wait was {seconds(p.p95_wait_ns)}"
                    for p in found.phases
                    if p.judged
                )
            )
        return conclude(
            self,
            status,
            because,
            measured=measured,
            bound=bound,
            unit=unit,
            n=n,
            evidence=[Evidence(note=phase.note, at_ns=phase.start_ns) for phase in slow or found.phases],
            details=found.details(),
        )

    def rests(self) -> frozenset[Truth]:
        """On nothing where it is said here."""
        return self.rests_on if self.floor is None else frozenset()

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Its floor of four slots is lent out, and it waits 400 ms for each of its few calls."""
        return _CHECK, _run(wait_ms=400)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Ten calls of the class."""
        return _CHECK, _run(wait_ms=400, calls=10)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Its calls start at once; the others wait."""
        return _CHECK, _run(wait_ms=2)


class _InPhase(msgspec.Struct, frozen=True):
    name: str
    start_ns: int
    calls: int
    held: float
    """Slots that the class had in service on average."""
    p95_wait_ns: float
    judged: bool
    """It used no more than a third of its floor, often enough for a percentile."""

    @property
    def note(self) -> str:
        return f"'{self.name}': {self.held:.1f} slots used, p95 of the wait {seconds(self.p95_wait_ns)}"


class _Found(msgspec.Struct, frozen=True):
    phases: list[_InPhase]
    waited_ns: int
    missing: float
    """Share of the floor's slot-time, 0..1."""
    contested_ns: int

    @classmethod
    def of(cls, run: Run, phases: tuple[str, ...], floor: int, mine: ClassView, others: ClassView) -> _Found:
        windows = merge(run.profile.phase_window_ns(phase) for phase in phases)
        waiting = backlogged_in(mine, windows)
        waited_ns_, whole = length_ns(waiting), floor * length_ns(waiting)
        held = area(at_most(mine.in_service, floor), waiting)
        return cls(
            phases=[_in_phase(run, phase, floor, mine) for phase in phases],
            waited_ns=waited_ns_,
            missing=(whole - held) / whole if whole else 0.0,
            contested_ns=length_ns(intersect(others.backlog, windows)),
        )

    def details(self) -> dict[str, Any]:
        return {
            "waited_s": finite(self.waited_ns / NS),
            "missing_share": finite(self.missing, 4),
            "phases": {
                p.name: {
                    "calls": p.calls,
                    "slots_used": finite(p.held),
                    "p95_wait_ms": finite(p.p95_wait_ns / MS),
                    "waits_judged": p.judged,
                }
                for p in self.phases
            },
        }


def _in_phase(run: Run, phase: str, floor: int, mine: ClassView) -> _InPhase:
    window = run.profile.phase_window_ns(phase)
    waited = waited_ns(mine, window)
    held = mine.mean_in_service([window])
    p95 = percentile(waited, 95) if waited else 0.0
    return _InPhase(phase, window[0], len(waited), held, p95, held <= floor / 3 and enough(len(waited), 95))


_CHECK = ClassFloor(service_class="high", floor=0.25)


def _run(*, wait_ms: float, calls: int = 80) -> Run:
    """Sixteen slots that a low class always wants; a high one calls for 100 ms, ten times a second."""
    scene = ClassScene({"high": "high", "low": "low"}, slots=16, phases={"load": calls / 10})
    for k in range(calls):
        scene.build.answered("high", 100 * k, wait_ms=wait_ms, service_ms=100)
    scene.backlog("low", 0, 100 * calls, slots=12, service_ms=500)
    return scene.build.run()
