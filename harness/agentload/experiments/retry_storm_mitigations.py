"""What ends a retry storm: bounds, budgets and deadlines do, backoff does not."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.evidence.expectations import Column, Expectation, Found, Measures, Shape
from agentload.experiments import Arm, Experiment, Source
from agentload.experiments._storm import EXACT, NeverStops, end_goodput, peak_amplification, recovery_s
from agentload.model import NS, Run
from agentload.mutants.unbounded_queue import UnboundedQueue
from agentload.mutants.upstream_outlives_client import UpstreamOutlivesClient
from agentload.scheduler.admission import Admission
from agentload.scheduler.work import Request

CAPACITY = 50
PATIENCE_S = 3
LOAD = """\
# A server of {capacity} requests a second loses four fifths of its capacity for 10 s; clients wait 3 s.
name: retry-storm-mitigations
about: One server behind a gateway with one slot, first come, first served.
phases:
  - {{name: before, seconds: 5}}
  - {{name: trigger, seconds: 10}}
  - {{name: after, seconds: {after_s}}}
  - {{name: tail, seconds: 15, record: false}}              # so long a request may take: 5 attempts
provider: {{slots: 1, latency: {{first_token_ms: {service_ms}, first_token_cv: 0}}}}
faults: [{{kind: slow, phase: trigger, factor: 5}}]
gateway:
  policy: fifo
  pools:
    shared:
      slots: 1
      tenant_slots: 1
      classes:
        standard: {{max_queue: {queue}, tenant_max_queue: {queue}, max_wait_s: 86400}}
tenants:
  - name: client
    arrivals: {{kind: poisson, rate: {rate}}}
    workload: {{kind: fixed, input_tokens: 24, output_tokens: 1}}
    client: {client}
checks: [status-codes]
"""
ENDLESS = 1_000_000
BOUNDED = 2 * CAPACITY
"""Two seconds of work: less than the clients' patience."""
ONCE = "{kind: no-retry, timeout_s: 3}"
AT_ONCE = "{kind: hammer, timeout_s: 3, max_attempts: 5}"
BUDGET = "{kind: hammer, timeout_s: 3, max_attempts: 5, retry_budget: 0.1}"
JITTER = "{kind: full-jitter, timeout_s: 3, max_attempts: 5, base_s: 1, cap_s: 120}"
LOADS = (0.6, 0.8)
AFTER_S, SLOW_S = 45, 120
"""Watched after the trigger. At 80 % load and 10 % retries the backlog is worked off with a tenth of the
capacity, which takes a minute."""
PROFILE, UNTIL = "retry-storm", "recovery"
"""The bundled profile, and its phase after the trigger. All its clients wait two seconds here: those who wait
for thirty are answered by a gateway that is down for everybody else."""
IMPATIENT = ("tenants.patient.client.timeout_s=2",)
REFERENCE, UNBOUNDED = f"{PROFILE}: bounded", f"{PROFILE}: unbounded"


class _Admission(Admission):
    """Knows how long its clients wait, so that it can tell what is not worth starting."""

    def submit(self, now_ns: int, request: Request) -> None:
        request.deadline_ns = now_ns + PATIENCE_S * NS
        super().submit(now_ns, request)


_BLIND = Parts(lifecycle=NeverStops)
"""It never learns that a client has left."""
_SEES = UpstreamOutlivesClient().parts()
"""It does while the request is queued; what it has begun it ends."""
_FORESEES = replace(_SEES, admission=_Admission)
_MITIGATIONS: dict[str, tuple[str, str, int, Parts]] = {
    "no retry": ("clients give up", ONCE, ENDLESS, _BLIND),
    "4 at once": ("four re-sends, no wait", AT_ONCE, ENDLESS, _BLIND),
    "full jitter": ("four re-sends after U(0, 2^i) s", JITTER, ENDLESS, _BLIND),
    "budget": ("retries are 10 % of first attempts at most", BUDGET, ENDLESS, _BLIND),
    "bounded queue": ("2 s of work may wait", AT_ONCE, BOUNDED, _BLIND),
    "queue + budget": ("both", BUDGET, BOUNDED, _BLIND),
    "drop expired": ("who has left is not served", AT_ONCE, ENDLESS, _SEES),
    "drop infeasible": ("nor who will have left when it is done", AT_ONCE, ENDLESS, _FORESEES),
}


class RetryStormMitigations(Experiment):
    """Which of the usual remedies lets a service come back after its capacity has?

    The storm of `retry-storm-metastable` at 60 and 80 % load, with one remedy each; and the bundled profile
    `retry-storm`, against the reference gateway and against one without bounds that cancels nothing.
    """

    source: ClassVar[Source] = Source(
        paper="Huang et al., Metastable Failures in the Wild, OSDI 2022 (the storm)",
        artefact="github.com/lexiangh/Metastability",
    )
    columns: ClassVar[tuple[Column, ...]] = (
        Column(name="goodput_end", heading="answered at the end", unit="%"),
        Column(name="recovery_s", heading="recovery", unit="s"),
        Column(name="amplification", heading="peak amplification", unit="×"),
    )

    def arms(self) -> tuple[Arm, ...]:
        grid = [_arm(remedy, load) for load in LOADS for remedy in _MITIGATIONS]
        about = "the bundled profile against the reference gateway"
        sound = Arm(name=REFERENCE, about=about, profile=PROFILE, settings=IMPATIENT)
        settings = (*IMPATIENT, "gateway.policy=fifo")
        parts = Parts(lifecycle=NeverStops, gateway_config=UnboundedQueue().parts().gateway_config)
        about = "the same without bounds, where nothing is cancelled"
        naive = Arm(name=UNBOUNDED, about=about, profile=PROFILE, settings=settings, parts=parts)
        return (*grid, sound, naive)

    def measure(self, arm: Arm, run: Run) -> Measures:
        bundled = arm.profile == PROFILE
        phase = UNTIL if bundled else "after"
        whole_s = next(one.seconds for one in run.profile.phases if one.name == phase)
        return {
            "goodput_end": end_goodput(run, phase, whole_s if bundled else 10),
            "recovery_s": recovery_s(run, phase),
            "amplification": peak_amplification(run),
        }

    def expect(self, found: Found) -> list[Expectation]:
        shape = Shape(self.columns, found)
        for load in LOADS:
            _at(shape, load)
        # Dropping only what has expired serves those who expire while they are served.
        low, high = (_name("drop expired", load) for load in LOADS)
        shape.least(low, "recovery_s", 5, "15–21 s", against=_name("bounded queue", LOADS[0]))
        shape.most(high, "goodput_end", 50, "3 %, never back", against=_name("bounded queue", LOADS[1]))
        shape.most(REFERENCE, "recovery_s", 2, "within 2 s", against=UNBOUNDED)
        shape.most(UNBOUNDED, "goodput_end", 10, "below 10 %", against=REFERENCE)
        return shape.expectations


def _at(shape: Shape, load: float) -> None:
    """What holds at every load."""
    none, jitter, once, budget, queue, both, foreseen = (
        _name(remedy, load)
        for remedy in (
            "4 at once", "full jitter", "no retry", "budget", "bounded queue", "queue + budget",
            "drop infeasible",
        )
    )  # fmt: skip
    shape.most(none, "goodput_end", 10, "0 %, never back", against=queue)
    shape.most(jitter, "goodput_end", 10, "0 %: backoff delays, it does not shed", against=queue)
    shape.least(once, "goodput_end", 90, "98–100 %", against=none)
    shape.least(budget, "goodput_end", 90, "98–100 %", against=none)
    shape.most(budget, "amplification", 2, "1.4–1.5 ×", against=none)
    shape.most(queue, "recovery_s", 2, "0–1 s", against=none)
    shape.most(both, "recovery_s", 2, "0–1 s", against=none)
    shape.most(both, "amplification", 2, "1.4–1.5 ×", against=queue)
    shape.most(foreseen, "recovery_s", 2, "0 s", against=none)


def _name(remedy: str, load: float) -> str:
    return f"{remedy} at {load:.0%}"


def _arm(remedy: str, load: float) -> Arm:
    about, client, queue, parts = _MITIGATIONS[remedy]
    text = LOAD.format(
        capacity=CAPACITY,
        service_ms=1000 / CAPACITY,
        rate=load * CAPACITY,
        client=client,
        queue=queue,
        after_s=SLOW_S if remedy == "budget" else AFTER_S,
    )
    return Arm(name=_name(remedy, load), about=about, profile=text, parts=parts, timing=EXACT)
