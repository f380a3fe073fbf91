"""Weights 5, 3 and 2: what they buy, with start-time fair queueing and with the article's sketch."""

from __future__ import annotations

from typing import ClassVar

from agentload.evidence.expectations import Column, Expectation, Found, Measures, Shape
from agentload.evidence.fairness import served_work, services, shares, within
from agentload.experiments import Arm, Experiment, Source
from agentload.model import NS, Run

LOAD = """\
# Three tenants that always have work waiting; {units:g} work units a job, 16 jobs at once, 64 a second.
name: five-three-two
about: Closed loops with weights 5, 3 and 2, all jobs alike.
phases: [{{name: load, seconds: 50}}]
provider: {{slots: 16, latency: {{first_token_ms: 250, first_token_cv: 0, inter_token_ms: 0}}}}
gateway:
  policy: {policy}
  pools: {{shared: {{slots: 16, tenant_slots: 16, capacity_units: 1000}}}}
tenants:
  - name: five
    weight: 5
    users: 32
    workload: &job {{kind: fixed, input_tokens: 24, max_tokens: {tokens}, output_tokens: {tokens}}}
    client: &once {{kind: no-retry, timeout_s: 600}}
  - {{name: three, weight: 3, users: 32, workload: *job, client: *once}}
  - {{name: two, weight: 2, users: 32, workload: *job, client: *once}}
checks: [weighted-share]
"""
WEIGHTS = {"five": 5, "three": 3, "two": 2}
WARM_UP_NS = 5 * NS
PROMPT = 40
"""What the gateway takes a prompt of 24 words for: a quarter of its letters."""
SIZES = (1, 5, 8.4, 10)
"""Work units. Each call of the sketch gives 10 credits (5 + 3 + 2) and takes what one job costs."""
UNWEIGHTED = "fifo, 1 units"


class FiveThreeTwo(Experiment):
    """Do weights 5, 3 and 2 buy 50, 30 and 20 % of the work?

    The example is Temporal's, and the article's. Its `choose_next`, as published, credits every lane on every
    call: with jobs of less than 10 units the largest weight has most credit for ever.
    """

    source: ClassVar[Source] = Source(
        paper="The Queue Is Part of the Agent (choose_next); Temporal, Task Queue Priority and Fairness"
    )
    columns: ClassVar[tuple[Column, ...]] = (
        *(Column(name=name, heading=f"weight {weight}", unit="%") for name, weight in WEIGHTS.items()),
        Column(name="off", heading="furthest off", unit="points"),
    )

    def arms(self) -> tuple[Arm, ...]:
        weighted = [_arm(policy, units) for policy in ("article-drr", "sfq") for units in SIZES]
        return (*weighted, _arm("fifo", 1))

    def measure(self, arm: Arm, run: Run) -> Measures:  # noqa: ARG002
        taken_up = within(services(run.ledger), (WARM_UP_NS, run.profile.duration_ns))
        if not taken_up:
            return dict.fromkeys((column.name for column in self.columns), None)
        got = {name: 100 * share for name, share in shares(served_work(taken_up, WEIGHTS)).items()}
        return got | {"off": max(abs(got[name] - 10 * weight) for name, weight in WEIGHTS.items())}

    def expect(self, found: Found) -> list[Expectation]:
        shape = Shape(self.columns, found)
        small, middle, fair = _name("article-drr", 1), _name("article-drr", 5), _name("sfq", 1)
        shape.least(small, "five", 99, "100 %", against=fair)
        shape.most(small, "three", 1, "0 %", against=fair)
        shape.most(small, "two", 1, "0 %", against=fair)
        shape.least(middle, "five", 62, "66.7 %", against=fair)
        shape.most(middle, "two", 10, "6.7 %", against=fair)
        for units in SIZES:
            shape.most(_name("sfq", units), "off", 0.5, "0", against=UNWEIGHTED)
        shape.most(_name("article-drr", 10), "off", 1.5, "0", against=small)
        return shape.expectations


def _name(policy: str, units: float) -> str:
    return f"{policy}, {units:g} units"


def _arm(policy: str, units: float) -> Arm:
    tokens = round(units * 1000) - PROMPT
    text = LOAD.format(policy=policy, units=units, tokens=tokens)
    return Arm(name=_name(policy, units), about=f"jobs of {units:g} units, {policy}", profile=text)
