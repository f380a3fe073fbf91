"""Is idle capacity used, and no more of it than a class may borrow?"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agentload.checks import Check, PhaseName
from agentload.evidence.class_scene import ClassScene
from agentload.evidence.intervals import length_ns
from agentload.evidence.service_classes import ClassViews, backlogged_in, later
from agentload.evidence.verdicts import conclude, finite, seconds, undecided
from agentload.model import NS, Evidence, Run, Status, Verdict

LEAST_NS = NS


class ClassBorrow(Check):
    """Passes when classes use the capacity that the others leave idle, up to what they may borrow.

    Looked at is the time in which the classes have work waiting, from `settle_s` after the start of the
    phase: on average they must have `least` of the slots in service, and no more than `most`. Below `least`,
    capacity stands idle while work waits; above `most`, a borrowing limit is not kept, and whoever lends has
    to wait the longer when its demand returns.
    """

    needs_ledger = True
    stalls_only_worsen = True
    extensive = ("slots",)

    classes: tuple[str, ...] = Field(default=("batch",), min_length=1)
    """The classes that borrow, taken together."""
    phase: PhaseName = "alone"
    """One in which the others want little or nothing."""
    least: float = Field(default=0.5, gt=0, le=1)
    """Share of the slots, 0..1."""
    most: float = Field(default=1.0, gt=0, le=1)
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
        share = view.mean_in_service(waiting) / slots
        return self._conclude(share, slots, waited_ns, n, waiting[0][0])

    def _conclude(self, share: float, slots: int, waited_ns: int, n: int, since_ns: int) -> Verdict:
        too_much = share > self.most
        names = " and ".join(f"'{name}'" for name in self.classes)
        because = (
            f"in '{self.phase}', with work waiting for {seconds(waited_ns)}, {names} had "
            f"{100 * share:.0f} % of {slots} slots in service; at least {100 * self.least:.0f} % should be "
            f"used, and at most {100 * self.most:.0f} % may be"
        )
        details: dict[str, Any] = {
            "share": finite(share, 4),
            "least": self.least,
            "most": self.most,
            "waited_s": finite(waited_ns / NS),
        }
        return conclude(
            self,
            Status.PASSED if self.least <= share <= self.most else Status.FAILED,
            because,
            measured=100 * (share if too_much else 1 - share),
            bound=100 * (self.most if too_much else 1 - self.least),
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
