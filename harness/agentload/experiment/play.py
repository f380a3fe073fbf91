"""The runs of an experiment, and their measures seed by seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from agentload import plan
from agentload.drivers.simulated.recording import Recording
from agentload.evidence.expectations import Found, Measures
from agentload.experiments import Arm, Experiment
from agentload.model import Profile


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """One arm under one seed."""

    arm: str
    seed: int
    fingerprint: str
    digest: str
    measures: Measures


class Play:
    """The runs of an experiment, one after another; `stop`, from a signal handler, say, ends it early."""

    def __init__(self, experiment: Experiment, seeds: Sequence[int]) -> None:
        """Raises ProfileError or UsageError for an arm that cannot be played."""
        self.experiment = experiment
        self.seeds = seeds
        self.arms = experiment.arms()
        self.stopped = False
        self.done = 0
        self._loads = {arm.name: arm.load() for arm in self.arms}
        self._now: Recording | None = None

    @property
    def planned(self) -> int:
        """Runs, all together."""
        return sum(1 if arm.once else len(self.seeds) for arm in self.arms)

    def load(self, arm: Arm) -> Profile:
        """The profile of an arm."""
        return self._loads[arm.name]

    def runs(self) -> Iterator[Played]:
        """Seed after seed, every arm in each; ends early once `stop` was called."""
        for place, seed in enumerate(self.seeds):
            for arm in self.arms:
                if arm.once and place:
                    continue
                played = self._play(arm, seed)
                if self.stopped:
                    return
                self.done += 1
                yield played

    def stop(self) -> None:
        """At the present event; what is unfinished then does not count."""
        self.stopped = True
        if self._now is not None:
            self._now.stop()

    def progress(self) -> str:
        """How far it has come, in words."""
        return f"  {self.done} of {self.planned} runs"

    def _play(self, arm: Arm, seed: int) -> Played:
        load = self._loads[arm.name]
        drawn = plan.draw(load, seed)
        self._now = recording = Recording(load, drawn, arm.make_parts(), arm.timing)
        if self.stopped:
            recording.stop()
        recorded = recording.record()
        measures = {} if self.stopped else self.experiment.measure(arm, recorded)
        digest = recorded.meta["digest"]
        return Played(
            arm=arm.name, seed=seed, fingerprint=drawn.fingerprint, digest=digest, measures=measures
        )


def found_of(arms: Sequence[Arm], seeds: Sequence[int], played: Sequence[Played]) -> Found:
    """The measures by seed, of those seeds under which every arm was played."""
    by_key = {(one.arm, one.seed): one.measures for one in played}
    by_seed: list[dict[str, Measures]] = []
    for seed in seeds:
        keys = {arm.name: (arm.name, seeds[0] if arm.once else seed) for arm in arms}
        if all(key in by_key for key in keys.values()):
            by_seed.append({name: by_key[key] for name, key in keys.items()})
    return Found(by_seed)
