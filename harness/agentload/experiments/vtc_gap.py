"""VTC's service gap: with one queue it grows without end, with fair queueing it stays where it is."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from agentload.evidence.expectations import Column, Expectation, Found, Measures, Shape, Value, divided
from agentload.experiments import Arm, Experiment, Source
from agentload.model import NS, LedgerEntry, Run

INPUT_COST, OUTPUT_COST = 1, 2
"""What a token counts, as in the paper."""
BOUND = 2 * OUTPUT_COST * 10_000
"""2U: U is the larger of the longest input and what all tokens of a batch cost."""
LOAD = """\
# 19 at once (a pool of 10,000 tokens), 11 s each: 1.72 requests a second. All have 256 tokens of prompt
# and 256 of answer.
name: vtc-gap
about: Two tenants, all requests alike.
phases:
{phases}
drain_s: {drain_s}
provider: {{slots: 19, latency: {{first_token_ms: 43, first_token_cv: 0, inter_token_ms: 43}}}}
gateway:
  policy: {policy}
  pools:
    shared:
      slots: 19
      tenant_slots: 19
      classes:
        standard: {{max_queue: 100000, tenant_max_queue: 100000, max_wait_s: 86400}}
tenants:
  - name: first
    during: [{during}]
    arrivals: {{kind: uniform, rate: {first}}}
    workload: &request {{kind: fixed, input_tokens: 256, max_tokens: 256, output_tokens: 256, stream: true}}
    client: &once {{kind: no-retry, timeout_s: 3600}}
  - name: second
    arrivals: {{kind: uniform, rate: {second}}}
    workload: *request
    client: *once
checks: [status-codes]
"""
TICK_S = 10
"""Between two looks at what has been served."""
NO_LIFT, NO_LIFT_MUTANT = "return, no lift", "idle-tenants-bank-credit"
RETURNS_S, WATCHED_S = 300, 120
"""When the one that was away comes back, and how long its share is looked at."""


class VtcGap(Experiment):
    """Does a tenant that sends twice as much get twice as much, for as long as it goes on?

    `overload`: two tenants at 1.5 and 3 requests a second, capacity 1.72. `on-off`: a quiet one at 0.5, every
    other minute, beside one at 2. `return`: one of two overloading tenants is away for four minutes; without
    the lift on its return it has all that time to catch up with.
    """

    source: ClassVar[Source] = Source(
        paper="Sheng et al., Fairness in Serving Large Language Models (VTC), OSDI 2024",
        arxiv="2401.00588",
        artefact="github.com/Ying1123/VTC-artifact",
    )
    columns: ClassVar[tuple[Column, ...]] = (
        Column(name="gap", heading="largest gap", unit="tokens"),
        Column(name="growth", heading="second half ÷ first", unit="×"),
        Column(name="ratio", heading="served, more ÷ less", unit="×"),
        Column(name="ttft_s", heading="quiet one's mean TTFT", unit="s"),
        Column(name="share_back", heading="share of the returned", unit="%"),
    )

    def arms(self) -> tuple[Arm, ...]:
        scenes = {"overload": _OVERLOAD, "on-off": _ON_OFF, "return": _RETURN}
        usual = [
            Arm(name=f"{name}, {policy}", about=scene.about, profile=scene.load(policy))
            for name, scene in scenes.items()
            for policy in ("fifo", "sfq")
        ]
        return (
            *usual,
            Arm(name=NO_LIFT, about=_RETURN.about, profile=_RETURN.load("sfq"), mutant=NO_LIFT_MUTANT),
        )

    def measure(self, arm: Arm, run: Run) -> Measures:
        measures: dict[str, Value] = dict.fromkeys((column.name for column in self.columns), None)
        if arm.name.startswith("overload"):
            measures |= _gaps(run)
        elif arm.name.startswith("on-off"):
            measures["ttft_s"] = _mean_ttft_s(run, run.profile.tenants[0].name)
        else:
            measures["share_back"] = _share_back(run)
        return measures

    def expect(self, found: Found) -> list[Expectation]:
        shape = Shape(self.columns, found)
        fifo, sfq = "overload, fifo", "overload, sfq"
        shape.least(fifo, "gap", BOUND, "237,738", against=sfq)
        shape.most(sfq, "gap", BOUND, "9,050; 2U is 40,000", against=fifo)
        shape.least(fifo, "growth", 1.7, "linear: 2", against=sfq)
        shape.most(sfq, "growth", 1.4, "flat: 1", against=fifo)
        shape.least(fifo, "ratio", 1.8, "2.00, as they ask", against=sfq)
        shape.most(sfq, "ratio", 1.1, "0.96", against=fifo)
        shape.ratio_least("ttft_s", "on-off, fifo", "on-off, sfq", 20, "24: 85.2 s and 3.5 s")
        shape.most("return, sfq", "share_back", 55, "50.2 %", against=NO_LIFT)
        shape.least(NO_LIFT, "share_back", 75, "83.5 %", against="return, sfq")
        shape.most("return, fifo", "share_back", 10, "1.9 %", against="return, sfq")
        return shape.expectations


# --------------------------------------------------------------------------- loads


class _Scene(NamedTuple):
    about: str
    phases: dict[str, int]
    """Name → seconds."""
    during: str
    """The phases of the first tenant; empty: all."""
    rates: tuple[float, float]
    drain_s: int = 0

    def load(self, policy: str) -> str:
        phases = [f"  - {{name: {name}, seconds: {seconds}}}" for name, seconds in self.phases.items()]
        return LOAD.format(
            policy=policy,
            phases="\n".join(phases),
            during=self.during,
            first=self.rates[0],
            second=self.rates[1],
            drain_s=self.drain_s,
        )


_OVERLOAD = _Scene("1.5 and 3 requests a second for ten minutes", {"load": 600}, "", (1.5, 3))
_ON_OFF = _Scene(
    "0.5 a second every other minute, beside 2",
    {f"{'on' if k % 2 else 'off'}-{k}": 60 for k in range(1, 11)},
    ", ".join(f"on-{k}" for k in range(1, 11, 2)),
    (0.5, 2),
    drain_s=400,  # until everybody has been served
)
_RETURN = _Scene(
    "3 and 3 a second; the first is away for four minutes",
    {"before": 60, "away": 240, "back": 120},
    "before, back",
    (3, 3),
)


# --------------------------------------------------------------------------- measures


def served(run: Run, tenant: str, until_ns: int) -> float:
    """Weighted tokens served up to an instant: the prompt when service begins, the answer as it is made."""
    calls = (call for call in run.ledger if call.tenant == tenant and call.started_ns is not None)
    return sum(_served_of(call, until_ns) for call in calls)


def _served_of(call: LedgerEntry, until_ns: int) -> float:
    start_ns, end_ns = call.started_ns or 0, call.ended_ns
    if until_ns <= start_ns:
        return 0.0
    if end_ns is None or end_ns <= until_ns:
        made = 1.0
    else:
        made = (until_ns - start_ns) / (end_ns - start_ns)
    return INPUT_COST * call.input_tokens + OUTPUT_COST * call.output_tokens * made


def _gaps(run: Run) -> dict[str, Value]:
    first, second = (tenant.name for tenant in run.profile.tenants)
    ticks = range(TICK_S, run.profile.duration_ns // NS + 1, TICK_S)
    curve = [(served(run, first, tick * NS), served(run, second, tick * NS)) for tick in ticks]
    gaps = [abs(more - less) for less, more in curve]
    half = len(gaps) // 2
    return {
        "gap": max(gaps),
        "growth": divided(max(gaps[half:]), max(gaps[:half])),
        "ratio": divided(curve[-1][1], curve[-1][0]),
    }


def _mean_ttft_s(run: Run, tenant: str) -> Value:
    mine = [record for record in run.records if record.tenant == tenant]
    begun = [(r.first_token_ns - r.first_due_ns) / NS for r in mine if r.first_token_ns is not None]
    return sum(begun) / len(begun) if len(begun) == len(mine) > 0 else None


def _share_back(run: Run) -> Value:
    first, second = (_between(run, tenant.name) for tenant in run.profile.tenants)
    return divided(100 * first, first + second)


def _between(run: Run, tenant: str) -> float:
    start_ns = RETURNS_S * NS
    return served(run, tenant, start_ns + WATCHED_S * NS) - served(run, tenant, start_ns)
