"""Token pools: admission by entitlement in front of a backend of sixteen slots, or none."""

from __future__ import annotations

from typing import ClassVar

from agentload.evidence.expectations import (
    Column,
    Expectation,
    Found,
    Measures,
    Shape,
    Value,
    at_most,
    divided,
)
from agentload.evidence.history import requests_of
from agentload.experiments import Arm, Experiment, Source
from agentload.experiments._requests import most_waiting, per_cent, quantile_s
from agentload.model import NS, Run

LOAD = """\
# A call is one unit and one slot, and takes 6.08 s: 2.6 calls a second. (34 requests that wait for 16 slots,
# and 19 s from end to end, as published, are 6.08 s a call.) From 60 s to 90 s 1.2 + 2.9 a second are wanted.
name: token-pool
about: A guaranteed tenant at 46 % of a backend of 16 slots, and spot traffic that floods it for 30 s.
phases:
  - {{name: before, seconds: 60}}
  - {{name: overload, seconds: 30}}
  - {{name: after, seconds: 90}}
drain_s: 120
provider:
  slots: 16
  overflow: queue
  latency: {{first_token_ms: 6080, first_token_cv: {cv}, inter_token_ms: 0}}
gateway:
  policy: {policy}
  estimation: {{safety_multiplier: 1}}
  pools:
    shared:
      capacity_units: 16
      slots: 16
      tenant_slots: 16
      classes:
        guaranteed: {{nominal_share: 0.75, min_units: {floor}, max_queue: 0}}
        spot: {{nominal_share: 0.25, max_queue: 0}}
tenants:
  - name: guaranteed
    class: guaranteed
    arrivals: {{kind: poisson, rate: 1.2}}
    workload: &call {{kind: fixed, input_tokens: 24, max_tokens: 950, output_tokens: 950}}
    client: &once {{kind: no-retry, timeout_s: 600}}
  - name: spot
    class: spot
    during: [before, after]
    arrivals: {{kind: poisson, rate: 0.8}}
    workload: *call
    client: *once
  - name: flood
    class: spot
    during: [overload]
    arrivals: {{kind: poisson, rate: 2.9}}
    workload: *call
    client: *once
checks: [status-codes]
"""
SERVICE_S = 6.08
OPEN, CAPPED, POOL = "no admission", "16 in flight", "token pool"
UNEVEN = ", uneven"


class TokenPool(Experiment):
    """Does admission by entitlement keep a guaranteed tenant's latency flat while spot traffic floods?

    Every call that is admitted is served at once, and the others are refused: nothing queues. `16 in flight`
    bounds what is admitted, but keeps nothing for the guaranteed; `token pool` keeps twelve slots for them.
    Rejections stand beside the latency: whoever refuses enough is fast.
    """

    source: ClassVar[Source] = Source(
        paper="Cunningham, Token Management in Multi-Tenant AI Inference Platforms, 2026", arxiv="2603.00356"
    )
    columns: ClassVar[tuple[Column, ...]] = (
        Column(name="waiting", heading="most waiting"),
        Column(name="p95_s", heading="guaranteed p95", unit="s"),
        Column(name="slowest_s", heading="slowest", unit="s"),
        Column(name="refused", heading="refused", unit="%"),
        Column(name="spot_refused", heading="spot refused", unit="%"),
    )
    seeds: ClassVar[int] = 3

    def arms(self) -> tuple[Arm, ...]:
        return (
            _arm(OPEN, "everything goes to the backend at once", policy="none"),
            _arm(CAPPED, "what finds no slot is refused, whoever it is", policy="fifo"),
            _arm(POOL, "the same, and twelve slots are the guaranteed tenant's", policy="sfq", floor=12),
            _arm(OPEN + UNEVEN, "calls of 6 s on average, CV 0.5", policy="none", cv=0.5),
            _arm(POOL + UNEVEN, "calls of 6 s on average, CV 0.5", policy="sfq", floor=12, cv=0.5),
        )

    def measure(self, arm: Arm, run: Run) -> Measures:  # noqa: ARG002
        guaranteed, spot = (requests_of(run, names) for names in (["guaranteed"], ["spot", "flood"]))
        served = [request for request in guaranteed if request.answered]
        slowest_s = max((request.latency_ns / NS for request in served), default=None)
        return {
            "waiting": most_waiting(run),
            "p95_s": quantile_s(served, 95),
            "slowest_s": slowest_s,
            "refused": per_cent((one for one in guaranteed if one.refused), guaranteed),
            "spot_refused": per_cent((one for one in spot if one.refused), spot),
        }

    def expect(self, found: Found) -> list[Expectation]:
        shape = Shape(self.columns, found)
        shape.most(POOL, "waiting", 0, "0", against=OPEN)
        shape.least(OPEN, "waiting", 20, "34", against=POOL)
        shape.most(POOL, "slowest_s", SERVICE_S + 0.1, "bounded", against=OPEN)
        shape.least(OPEN, "slowest_s", 2 * SERVICE_S, "over 19 s", against=POOL)
        shape.ratio_least("p95_s", OPEN, POOL, 2, "unbounded ÷ bounded")
        name = "refused ÷ spot refused"
        shape.inside(at_most, POOL, name, _whose_refusals, 0.25, "spot is throttled", against=CAPPED)
        shape.most(POOL + UNEVEN, "waiting", 0, "0", against=OPEN + UNEVEN)
        shape.least(OPEN + UNEVEN, "waiting", 20, "34", against=POOL + UNEVEN)
        return shape.expectations


def _whose_refusals(one: Measures) -> Value:
    return divided(one["refused"], one["spot_refused"])


def _arm(name: str, about: str, *, policy: str, floor: int = 0, cv: float = 0.0) -> Arm:
    return Arm(name=name, about=about, profile=LOAD.format(policy=policy, floor=floor, cv=cv))
