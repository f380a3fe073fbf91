"""Is idle capacity used, and no more of it than a class may borrow?"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agentload.checks import Check, PhaseName
from agentload.evidence.class_scene import ClassScene
from agentload.evidence.intervals import length_ns
from agentload.evidence.service_classes import ClassViews, backlogged_in, later, most_slots
from agentload.evidence.verdicts import conclude, finite, listed, seconds, undecided
from agentload.model import NS, Evidence, Profile, Run, Status, Verdict
from agentload.promises import Truth

LEAST_NS = NS
LEAST_PART, MOST_PART = 0.87, 1.067


class ClassBorrow(Check):
    """Passes when classes use the capacity that the others leave idle, up to what they may borrow.

    Looked at is the time in which the classes have work waiting, from `settle_s` after the start of the
    phase: on average they must have `least` of the slots in service, and no more than `most`. Below `least`,
    capacity stands idle while work waits; above `most`, a borrowing limit is not kept, and whoever lends has
    to wait the longer when its demand returns.
    """

    rests_on = frozenset({Truth.CLASSES})
    needs_ledger = True
    stalls_only_worsen = True
    extensive_slots = ("slots",)

    classes: tuple[str, ...] = Field(default=("batch",), min_length=1)
    """The classes that borrow, taken together."""
    phase: PhaseName = "alone"
    """One in which the others want little or nothing."""
    least: float | None = Field(default=None, gt=0, le=1)
    """Share of the slots, 0..1. By default 0.87 of what the gateway's configuration lets them use: their
    limits together, less what is kept for the others."""
    most: float | None = Field(default=None, gt=0, le=1)
    """By default 1.067 of that: a call is a moment longer at the provider than the gateway counts it."""
    slots: int | None = Field(default=None, ge=1)
    """The provider's, by default as in the profile."""
    settle_s: float = Field(default=2.0, ge=0)

    def judge(self, run: Run) -> Verdict:
        """The classes' mean share of the slots while they had work waiting."""
        slots = self.slots or run.profile.provider.slots
        if slots is None:
            return undecided(self, "the provider has no slots: say how many there are as `slots`")
        view = ClassViews(run).of(self.classes)
        window = run.profile.phase_window_ns(self.phase)
        waiting = backlogged_in(view, later(window, round(self.settle_s * NS)))
        n = sum(window[0] <= wait.start_ns < window[1] for wait in view.waits)
        waited_ns = length_ns(waiting)
        if waited_ns < LEAST_NS:
            return undecided(
                self,
                f"in '{self.phase}' the classes had work waiting for only {seconds(waited_ns)}, not 1 s",
                n=n,
            )
        bounds = self._bounds(run.profile, slots)
        if bounds is None:
            return undecided(self, f"the gateway has no class {listed(self.classes)}: say `least`", n=n)
        share = view.mean_in_service(waiting) / slots
        return self._conclude(share, bounds, slots, waited_ns, n, waiting[0][0])

    def rests(self) -> frozenset[Truth]:
        """On nothing where both bounds are said here."""
        return self.rests_on if self.least is None or self.most is None else frozenset()

    def _bounds(self, of: Profile, slots: int) -> tuple[float, float] | None:
        """(least, most) as shares of the slots; None where nobody has said them."""
        may = most_slots(of, self.classes, self.phase)
        if may is None and self.least is None:
            return None
        allowed = 1.0 if may is None else may / slots
        return self.least or LEAST_PART * allowed, self.most or min(1.0, MOST_PART * allowed)

    def _conclude(
        self, share: float, bounds: tuple[float, float], slots: int, waited_ns: int, n: int, since_ns: int
    ) -> Verdict:
        least, most = bounds
        too_much = share > most
        names = " and ".join(f"'{name}'" for name in self.classes)
        because = (
            f"in '{self.phase}', with work waiting for {seconds(waited_ns)}, {names} had "
            f"{100 * share:.0f} % of {slots:,} slots in service; at least {100 * least:.0f} % should be "
            f"used, and at most {100 * most:.0f} % may be"
        )
        details: dict[str, Any] = {
            "share": finite(share, 4),
            "least": least,
            "most": most,
            "waited_s": finite(waited_ns / NS),
        }
        return conclude(
            self,
            Status.PASSED if least <= share <= most else Status.FAILED,
            because,
            measured=100 * (share if too_much else 1 - share),
            bound=100 * (most if too_much else 1 - least),
            unit="% used" if too_much else "% idle",
            n=n,
            evidence=[Evidence(note=f"{share * slots:.1f} calls in service on average", at_ns=since_ns)],
            details=details,
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Three of sixteen slots are used while work waits and nobody else wants any."""
        return _CHECK, _run(slots=3)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Half a second of backlog, after two to settle."""
        return _CHECK, _run(slots=3, length_s=2.5)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Nine of sixteen, three times its own share."""
        return _CHECK, _run(slots=9)


_CHECK = ClassBorrow(classes=("low",), phase="alone", least=0.5, most=0.65)


def _run(*, slots: int, length_s: float = 8.0) -> Run:
    scene = ClassScene({"high": "high", "low": "low"}, slots=16, phases={"alone": length_s})
    scene.backlog("low", 0, 1_000 * length_s, slots=slots, service_ms=500)
    return scene.build.run()
