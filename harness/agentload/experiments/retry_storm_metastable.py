"""Huang et al.'s MongoDB experiment: a second more, or a little less capacity, and it never comes back."""

from __future__ import annotations

from typing import ClassVar

from agentload.evidence.expectations import Column, Expectation, Found, Measures, Shape, at_least
from agentload.experiments import Arm, Experiment, Source
from agentload.experiments._storm import EXACT, end_goodput, peak_amplification, recovery_s
from agentload.model import Run

LOAD = """\
# A server of {capacity:g} requests a second at {utilisation:.1%} load is slowed down for some seconds.
# Clients wait 3 s, then send again at once, up to four times.
name: retry-storm-metastable
about: One server, first come, first served, nothing bounded, nothing cancelled.
phases:
  - {{name: before, seconds: 10}}
  - {{name: trigger, seconds: {trigger_s}}}
  - {{name: after, seconds: {after_s}}}
drain_s: 15                                              # five attempts of 3 s
provider: {{slots: 1, overflow: queue, latency: {{first_token_ms: {service_ms}, first_token_cv: 0}}}}
faults: [{{kind: slow, phase: trigger, factor: {slower}}}]
gateway: {{policy: none}}                                  # the queue is the server's own
tenants:
  - name: client
    arrivals: {{kind: {arrivals}, rate: {rate}}}
    workload: {{kind: fixed, input_tokens: 24, output_tokens: 1}}
    client: {{kind: hammer, timeout_s: 3, max_attempts: 5}}
checks: [status-codes]
"""
LATE_S = 10
"""The end of the run, in which the service is back or never will be."""
CERTAIN = 10
"""Seeds that a probability of collapse needs."""
RUNS = {"A": (10, 0.775, 1.0), "B": (10, 0.80, 1.0), "C": (9, 0.80, 1.0), "D": (10, 0.80, 0.75)}
"""Seconds of the trigger, capacity lost, load: as in the artefact's four runs."""


class RetryStormMetastable(Experiment):
    """Does a trigger of ten seconds end a service for good, and one of nine not?

    The original was a MongoDB replica set whose primary lost CPU. Here it is one server with exact service
    times: with a metronome's arrivals at 38 % load the four runs separate without any luck, and with Poisson
    arrivals at 37 % (`a` to `d`, a smaller server) in how often they collapse.
    """

    source: ClassVar[Source] = Source(
        paper="Huang et al., Metastable Failures in the Wild, OSDI 2022",
        artefact="github.com/lexiangh/Metastability",
    )
    columns: ClassVar[tuple[Column, ...]] = (
        Column(name="goodput_end", heading="answered at the end", unit="%"),
        Column(name="collapsed", heading="collapsed"),
        Column(name="recovery_s", heading="recovery", unit="s"),
        Column(name="amplification", heading="peak amplification", unit="×"),
    )
    seeds: ClassVar[int] = CERTAIN

    def arms(self) -> tuple[Arm, ...]:
        exact = [_arm(name, "constant", 100, 0.38, 60, once=True) for name in RUNS]
        drawn = [_arm(name.lower(), "poisson", 50, 0.37, 20, once=False) for name in RUNS]
        return (*exact, *drawn)

    def measure(self, arm: Arm, run: Run) -> Measures:  # noqa: ARG002
        goodput = end_goodput(run, "after", LATE_S)
        return {
            "goodput_end": goodput,
            "collapsed": None if goodput is None else float(goodput < 50),
            "recovery_s": recovery_s(run, "after"),
            "amplification": peak_amplification(run),
        }

    def expect(self, found: Found) -> list[Expectation]:
        shape = Shape(self.columns, found)
        for arm in ("A", "C", "D"):
            shape.least(arm, "goodput_end", 90, "recovers", against="B")
        shape.most("B", "goodput_end", 10, "metastable", against="A")
        return [*shape.expectations, *_chances(found)]


def _chances(found: Found) -> list[Expectation]:
    """Random arrivals: collapses counted over the seeds. Fewer seeds than `CERTAIN` say nothing."""

    def more(often: str, seldom: str) -> Expectation:
        counts = [sum(value or 0 for value in found.values(arm, "collapsed")) for arm in (often, seldom)]
        return at_least(
            f"{often} collapses more often than {seldom}",
            [counts[0] - counts[1]] if found.seeds >= CERTAIN else [],
            1,
            published="a simulation of it: a 2, b 5, c 2, d 0 of 10",
            exchange=(often, seldom),
            unit="runs",
        )

    return [more("b", "a"), more("b", "c"), more("a", "d"), more("c", "d")]


def _arm(name: str, arrivals: str, capacity: float, utilisation: float, after_s: int, *, once: bool) -> Arm:
    trigger_s, lost, load = RUNS[name.upper()]
    text = LOAD.format(
        capacity=capacity,
        utilisation=utilisation * load,
        trigger_s=trigger_s,
        after_s=after_s,
        service_ms=1000 / capacity,
        slower=1 / (1 - lost),
        arrivals=arrivals,
        rate=utilisation * load * capacity,
    )
    about = f"{trigger_s} s at -{lost:.1%} and {utilisation * load:.1%} load, {arrivals} arrivals"
    return Arm(
        name=name, about=about, profile=text, mutant="upstream-outlives-client", timing=EXACT, once=once
    )
