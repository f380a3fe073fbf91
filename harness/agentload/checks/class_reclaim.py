"""Does lent capacity come back when its owner's demand returns?"""

from __future__ import annotations

import math
from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName
from agentload.evidence.class_scene import ClassScene
from agentload.evidence.intervals import Interval, Step, area, value_at
from agentload.evidence.service_classes import ClassViews, at_most, class_share
from agentload.evidence.statistics import enough
from agentload.evidence.verdicts import conclude, finite, undecided
from agentload.model import NS, Evidence, Outcome, Profile, Run, Status, Verdict
from agentload.promises import Truth
from agentload.scheduler.pool import ROUNDING

WINDOW_NS, STEP_NS = NS, NS // 10


class ClassReclaim(Check):
    """Passes when a class whose demand returns has what it is due again within `within_s`.

    Due is what it wants, up to its nominal share of the slots. It is back at the first second over which it
    has `part` of that in service, and from there to the end of the phase it must keep as much. Calls are not
    preempted, so it takes as long as the borrowers' calls; capacity that never comes back is a class that is
    starved in silence. When it returns, some of its share must be in others' hands, or nothing follows.
    """

    rests_on = frozenset({Truth.CLASSES})
    needs_ledger = True
    stalls_only_worsen = True
    extensive_slots = ("slots",)

    service_class: str = "guaranteed"
    phase: PhaseName = "return"
    """It begins with the return of the class's demand."""
    share: float | None = Field(default=None, gt=0, le=1)
    """The class's nominal share of the slots, 0..1. By default as the gateway was told."""
    slots: int | None = Field(default=None, ge=1)
    """The provider's, by default as in the profile."""
    within_s: float = Field(default=3.0, gt=0)
    part: float = Field(default=0.85, gt=0, le=1)
    """Of what is due, over a second and over the rest of the phase."""

    def judge(self, run: Run) -> Verdict:
        """When the class had its due again, and whether it kept it."""
        slots = self.slots or run.profile.provider.slots
        if slots is None:
            return undecided(self, "the provider has no slots: say how many there are as `slots`")
        nominal = self._nominal_slots(run.profile, slots)
        if nominal is None:
            return undecided(
                self, f"the gateway has no class '{self.service_class}': say its share as `share`"
            )
        views = ClassViews(run)
        mine, others = views.of([self.service_class]), views.others([self.service_class])
        window = run.profile.phase_window_ns(self.phase)
        n = sum(window[0] <= wait.start_ns < window[1] for wait in mine.waits)
        if not enough(n, 50):
            return undecided(
                self,
                f"class '{self.service_class}' sent only {n:,} requests in '{self.phase}': 20 are needed",
                n=n,
            )
        lent = value_at(others.in_service, window[0] - 1) - (slots - nominal)
        if lent <= 0:
            return undecided(
                self,
                f"nothing of its share was lent when class '{self.service_class}' returned in '{self.phase}'",
                n=n,
            )
        due = at_most(mine.demand, nominal)
        return self._conclude(_reclaimed(mine.in_service, due, window, self.part), nominal, lent, n, window)

    def _nominal_slots(self, of: Profile, slots: int) -> int | None:
        if self.share is not None:
            return int(self.share * slots + ROUNDING)
        share = class_share(of, self.service_class)
        return None if share is None else share.nominal_slots

    def _conclude(self, found: _Return, nominal: int, lent: int, n: int, window: Interval) -> Verdict:
        never = math.isinf(found.after_ns)
        kept = found.kept >= self.part
        prompt = found.after_ns <= self.within_s * NS
        returned = (
            f"{lent:,} of the {nominal:,} slots of class '{self.service_class}' were lent when it returned; "
        )
        if never:
            because = returned + f"it never had {100 * self.part:.0f} % of its due back in '{self.phase}'"
        else:
            because = returned + (
                f"it had its due back {found.after_ns / NS:.1f} s later, and then {100 * found.kept:.0f} % "
                f"of it to the end of '{self.phase}'"
            )
        details: dict[str, Any] = {
            "lent_slots": lent,
            "reclaimed_after_s": finite(found.after_ns / NS),
            "kept_share": finite(found.kept, 4),
        }
        lost = prompt and not kept
        return conclude(
            self,
            Status.PASSED if prompt and kept else Status.FAILED,
            because,
            measured=100 * (1 - found.kept) if lost else found.after_ns / NS,
            bound=100 * (1 - self.part) if lost else self.within_s,
            unit="%" if lost else "s",
            n=n,
            evidence=[Evidence(note="its demand returned", at_ns=window[0])],
            details=details,
        )

    def rests(self) -> frozenset[Truth]:
        """On nothing where it is said here."""
        return self.rests_on if self.share is None else frozenset()

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """The borrowers keep twelve of sixteen slots; the class that owns eight stays at four."""
        return _CHECK, _run(back=4)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Others never had more than their own share: there was nothing to give back."""
        return _CHECK, _run(back=8, lent=8)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Half a second later it has its eight slots."""
        return _CHECK, _run(back=8)


class _Return(msgspec.Struct, frozen=True):
    after_ns: float
    """From the phase's start; +infinity: never."""
    kept: float
    """Part of its due that it had from then on, 0..1."""


def _reclaimed(held: list[Step], due: list[Step], window: Interval, part: float) -> _Return:
    start, end = window
    for at_ns in range(start, end - WINDOW_NS + 1, STEP_NS):
        second = [(at_ns, at_ns + WINDOW_NS)]
        wanted = area(due, second)
        if wanted >= WINDOW_NS and area(held, second) >= part * wanted:
            rest = [(at_ns, end)]
            return _Return(at_ns - start, min(1.0, area(held, rest) / area(due, rest)))
    return _Return(math.inf, 0.0)


_CHECK = ClassReclaim(service_class="high", phase="return", share=0.5)


def _run(*, back: int, lent: int = 12) -> Run:
    """Low holds `lent` slots alone; then high returns, gets four at once and `back` of them after 500 ms."""
    phases = {"alone": 4.0, "return": 6.0}
    scene = ClassScene({"high": "high", "low": "low"}, slots=16, phases=phases)
    scene.backlog("low", 0, 4_500, slots=lent, service_ms=500)
    scene.backlog("low", 4_500, 10_000, slots=16 - back, service_ms=500)
    scene.backlog("high", 4_000, 4_500, slots=4, service_ms=500)
    for _ in range(8):  # what waits while it has only four
        scene.build.answered("high", 4_000, wait_ms=500, service_ms=100)
    scene.backlog("high", 4_500, 10_000, slots=back, service_ms=500)
    for _ in range(8):
        scene.build.ended("high", 4_500, Outcome.UNFINISHED, after_ms=5_500)
    return scene.build.run()
