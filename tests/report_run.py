"""A realistic run for the report tests: a noisy neighbour of four tenants over 43 s, about 5,000 attempts.

A small queueing model makes it (32 slots, a token bucket, one bounded queue), so that what a report draws
hangs together: refusals come when the queue is full, the hidden queue is what waits, the ledger what was
served.
`fair=False` is a gateway with one shared queue, in which the flood takes everything.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

import msgspec

from agentload import plan as planning
from agentload.judge import overall
from agentload.model import (
    NS,
    Arrival,
    CallEnding,
    Distribution,
    Evidence,
    Fault,
    GeneratorHealth,
    LedgerEntry,
    Outcome,
    Phase,
    Profile,
    RequestRecord,
    Run,
    Sample,
    Severity,
    Spec,
    Stall,
    Status,
    Tenant,
    Verdict,
)
from agentload.report import Result
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig
from fake_provider.config import ProviderConfig

MS = 1_000_000
SLOTS = 32
QUEUE = 256
CALLS_PER_S = 53.3
BURST = 107.0
TOKENS = 120
QUIET = ("quiet-1", "quiet-2", "quiet-3")


def profile(tenants: tuple[str, ...] = (*QUIET, "flood")) -> Profile:
    """The card's noisy-neighbor, as profile.py would make it."""
    return Profile(
        name="noisy-neighbor",
        about="One tenant floods at five times the capacity while three quiet ones stay under their share.",
        seed=7,
        phases=(
            Phase(name="warm-up", seconds=3, record=False),
            Phase(name="baseline", seconds=15),
            Phase(name="noise", seconds=15, replays="baseline"),
            Phase(name="recovery", seconds=10),
        ),
        tenants=tuple(_tenant(name) for name in tenants),
        provider=ProviderConfig(tokens_per_minute=384_000, bucket_s=2, slots=SLOTS),
        gateway=GatewayConfig(
            pools={
                "agent-shared": PoolConfig(slots=SLOTS, classes={"standard": ClassConfig(max_queue=QUEUE)})
            }
        ),
        checks=(Spec(kind="victim-latency"),),
    )


def _tenant(name: str) -> Tenant:
    flood = name == "flood"
    return Tenant(
        name=name,
        group="flood" if flood else name.rsplit("-", 1)[0],
        arrivals=Spec(kind="uniform", params={"rate": 267 if flood else 6.5}),
        during=("noise",) if flood else (),
        workload=Spec(
            kind="chat", params={"input_tokens": 30, "max_tokens": 48, "output_tokens": {"min": 8, "max": 24}}
        ),
        client=Spec(kind="no-retry"),
    )


@dataclass
class _Job:
    arrival: Arrival
    sent_ns: int
    service_ns: int


@dataclass
class _Model:
    """The gateway and the provider in one: waits, refusals, service."""

    fair: bool
    random: Random
    waiting: dict[str, deque[_Job]] = field(default_factory=dict)
    served: dict[str, float] = field(default_factory=dict)
    ending: list[tuple[int, int, _Job, int]] = field(default_factory=list)
    tokens: float = BURST
    filled_ns: int = 0
    records: list[RequestRecord] = field(default_factory=list)
    ledger: list[LedgerEntry] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def depth(self) -> int:
        return sum(len(queue) for queue in self.waiting.values())

    def arrive(self, job: _Job) -> None:
        lane = job.arrival.tenant if self.fair else "all"
        queue = self.waiting.setdefault(lane, deque())
        if self.depth() < QUEUE:
            queue.append(job)
            return
        longest = max(self.waiting.values(), key=len)
        if self.fair and longest is not queue:
            self.refuse(longest.pop(), job.sent_ns)
            queue.append(job)
        else:
            self.refuse(job, job.sent_ns)

    def refuse(self, job: _Job, now_ns: int) -> None:
        seconds = 1 + self.depth() // 60
        self.record(
            job,
            now_ns + round(self.random.uniform(1.5, 5) * MS),
            Outcome.REJECTED,
            status=429,
            retry_after=str(seconds),
            retry_after_s=float(seconds),
            reason="queue_full",
        )

    def record(self, job: _Job, ended_ns: int, outcome: Outcome, **more: object) -> None:
        arrival = job.arrival
        self.records.append(
            RequestRecord(
                seq=arrival.seq,
                attempt=0,
                tenant=arrival.tenant,
                service_class=arrival.service_class,
                phase=arrival.phase,
                due_ns=arrival.due_ns,
                first_due_ns=arrival.due_ns,
                sent_ns=job.sent_ns,
                ended_ns=ended_ns,
                outcome=outcome,
                final=True,
                input_tokens=arrival.job.input_tokens,
                declared_output_tokens=arrival.job.declared_output_tokens,
                planned_output_tokens=arrival.job.output_tokens,
                **more,  # type: ignore[arg-type]
            )
        )

    def start_some(self, now_ns: int) -> None:
        self.tokens = min(BURST, self.tokens + (now_ns - self.filled_ns) / NS * CALLS_PER_S)
        self.filled_ns = now_ns
        while len(self.ending) < SLOTS and self.tokens >= 1 and self.depth():
            lane = min(
                (lane for lane, queue in self.waiting.items() if queue), key=lambda k: self.served.get(k, 0)
            )
            floor = min(self.served.get(k, 0) for k, queue in self.waiting.items() if queue)
            self.served[lane] = max(self.served.get(lane, 0), floor) + 1
            job = self.waiting[lane].popleft()
            self.tokens -= 1
            heapq.heappush(self.ending, (now_ns + job.service_ns, job.arrival.seq, job, now_ns))

    def end_one(self) -> None:
        ended_ns, seq, job, started_ns = heapq.heappop(self.ending)
        arrival = job.arrival
        first = started_ns + (ended_ns - started_ns) // 3
        self.record(
            job,
            ended_ns,
            Outcome.ANSWERED,
            status=200,
            first_token_ns=first,
            last_token_ns=ended_ns,
            output_tokens=arrival.job.output_tokens,
            stream=True,
            own_answer=True,
            server_queue_ns=started_ns - job.sent_ns,
        )
        self.ledger.append(
            LedgerEntry(
                call=len(self.ledger),
                arrived_ns=started_ns,
                started_ns=started_ns,
                ended_ns=ended_ns,
                ending=CallEnding.COMPLETED,
                tenant=arrival.tenant,
                seq=seq,
                attempt=0,
                charged_tokens=TOKENS,
                input_tokens=arrival.job.input_tokens,
                output_tokens=arrival.job.output_tokens,
            )
        )

    def sample(self, now_ns: int) -> None:
        oldest = min((q[0].sent_ns for q in self.waiting.values() if q), default=now_ns)
        values = {"waiting": float(self.depth()), "in_flight": float(len(self.ending))}
        values["oldest_age_ms"] = (now_ns - oldest) / MS
        self.samples.append(Sample(at_ns=now_ns, source="gateway", values=values))


@lru_cache(maxsize=8)
def run(fair: bool = True, tenants: tuple[str, ...] = (*QUIET, "flood")) -> Run:
    """The whole run. Cached: treat it as read-only."""
    shape = profile(tenants)
    plan = planning.draw(shape, shape.seed)
    random = Random(f"7/{fair}")
    model = _Model(fair, random)
    _play(model, plan.arrivals, random)
    model.records.sort(key=lambda record: record.ended_ns)
    return Run(
        profile=shape,
        plan=plan,
        driver="live",
        records=model.records,
        ledger=model.ledger,
        samples=model.samples,
        health=health(len(plan.arrivals)),
        meta={
            "started": "2026-01-02T03:04:05+00:00",
            "command": ["agentload", "run", "noisy-neighbor"],
            "versions": {"agentload": "0.1.0", "python": "3.11.7"},
        },
    )


def with_fault() -> Run:
    """The same, and its provider was away for a while."""
    made = run()
    outage = Fault(kind="outage", at_s=20.0, seconds=4.5)
    return msgspec.structs.replace(made, profile=made.profile.model_copy(update={"faults": (outage,)}))


@lru_cache(maxsize=2)
def result(fair: bool = True) -> Result:
    """The run, judged and summed up. Cached: treat it as read-only."""
    found = verdicts(fair)
    return Result.of(run(fair), found, overall(found))


def _play(model: _Model, plan: tuple[Arrival, ...], random: Random) -> None:
    jobs = [
        _Job(a, a.due_ns + round(random.expovariate(1) * MS / 2), round(random.gammavariate(16, 1 / 64) * NS))
        for a in plan
    ]
    pending = deque(sorted(jobs, key=lambda job: job.sent_ns))
    end = round(44 * NS)
    for now in range(0, end, 5 * MS):
        while model.ending and model.ending[0][0] <= now:
            model.end_one()
        while pending and pending[0].sent_ns <= now:
            model.arrive(pending.popleft())
        model.start_some(now)
        if now % (100 * MS) == 0:
            model.sample(now)
    while model.ending:
        model.end_one()
    for queue in model.waiting.values():
        for job in queue:
            model.record(job, end, Outcome.UNFINISHED)


def health(scheduled: int) -> GeneratorHealth:
    """A generator that did its work, with one short stall."""
    return GeneratorHealth(
        scheduled=scheduled,
        issued=scheduled,
        lateness_ms=Distribution(p50=0.4, p95=1.1, p99=2.3, p999=6.0, n=scheduled),
        trustworthy=True,
        stalls=[Stall(start_ns=9_200 * MS, end_ns=9_290 * MS, where="worker 0")],
        run_queue_wait=0.02,
        cpu=0.31,
        peak_in_flight=290,
        in_flight_cap=4000,
    )


def verdicts(fair: bool = True) -> list[Verdict]:
    """What a judge might say about such a run: every status, severity and shape of a number."""
    return [
        Verdict(
            check="victim-latency",
            status=Status.PASSED if fair else Status.FAILED,
            because="the quiet tenants' pooled p95 with noise is 1.1 times the one without"
            if fair
            else "half of the quiet tenants' requests were never answered during the noise",
            measured=1.08 if fair else None,
            censored=not fair,
            bound=2.0,
            unit="×",
            n=294,
            details={
                "baseline_p95_ms": 372.4,
                "noise_p95_ms": 402.1,
                "per_tenant": {"quiet-1": 1.1, "quiet-2": 1.0},
            },
        ),
        Verdict(
            check="bounded-queue",
            status=Status.PASSED,
            because="the hidden queue stayed at 256 or below and stopped growing",
            measured=256,
            bound=300,
            unit="requests",
            n=430,
            evidence=[
                Evidence(note="deepest", at_ns=24 * NS),
                Evidence(note="oldest waiter", seq=77, at_ns=30 * NS),
            ],
        ),
        Verdict(
            check="retry-after-spread",
            status=Status.INCONCLUSIVE,
            because="only 40 promises came due, 200 are needed; a longer noise phase would decide it",
            severity=Severity.SHOULD,
            bound=6,
            n=40,
        ),
        Verdict(
            check="provider-limit",
            status=Status.PASSED,
            because="at most 100 % of burst + rate·t was offered",
            measured=0.99,
            bound=1.04,
            unit="of the limit",
            n=1650,
        ),
    ]
