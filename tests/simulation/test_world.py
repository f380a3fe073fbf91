"""The world as a whole: exchanging parts, invariants, stopping, and many tenants in little memory."""

from __future__ import annotations

import gc
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from random import Random

import pytest

from agentload import judge, plan, profile
from agentload.behaviours import Attempt, Behaviour
from agentload.behaviours.hammer import Hammer
from agentload.behaviours.no_retry import NoRetry
from agentload.drivers.simulated.client import Demand
from agentload.drivers.simulated.invariants import InvariantError
from agentload.drivers.simulated.network import Timing
from agentload.drivers.simulated.parts import Parts
from agentload.drivers.simulated.recording import Recording
from agentload.drivers.simulated.world import Sinks, World
from agentload.errors import UsageError
from agentload.gateway.lifecycle import RequestLifecycle, Step
from agentload.gateway.protocol import CancelUpstream
from agentload.gateway.settings import GatewaySettings
from agentload.model import NS, Arrival, CallEnding, Job, Outcome, Profile, Run, Status
from agentload.scheduler.admission import Admission
from agentload.scheduler.config import GatewayConfig, UpstreamLimits
from agentload.scheduler.policies.fifo import Fifo
from agentload.scheduler.work import Request
from agentload.simulate import simulate
from fake_provider.config import LatencyConfig, ProviderConfig
from fake_provider.core import Provider

SHORT = ["phases.baseline.seconds=3", "phases.noise.seconds=3", "phases.recovery.seconds=1"]


def short(*settings: str) -> Profile:
    return profile.load(profile.find("noisy-neighbor"), [*SHORT, *settings])


# --------------------------------------------------------------------------- parts


class KeepsCalling(RequestLifecycle):
    """Does not close the call to the provider when its client has left."""

    def handle(self, now_ns: int, event: object) -> Step:
        step = super().handle(now_ns, event)
        return [one for one in step if not isinstance(one, CancelUpstream)]


class Generous(Admission):
    """Forgets to count what it refuses."""

    def submit(self, now_ns: int, request: Request) -> None:
        super().submit(now_ns, request)
        self._counters.refused = 0


class Impatient(Behaviour):
    """Leaves after 0.2 s and does not come back."""

    timeout_s: float = 0.2

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:
        return None


class Overloaded(Provider):
    """Forgets how many calls it serves."""

    def _slot_free(self) -> bool:
        return True


def endings(run: Run) -> dict[CallEnding, int]:
    counted = defaultdict[CallEnding, int](int)
    for call in run.ledger:
        counted[call.ending] += 1
    return counted


def test_a_policy_can_be_exchanged() -> None:
    assert (
        simulate(short(), 1, parts=Parts(policy=Fifo)).records == simulate(short(), 1, policy="fifo").records
    )


def test_an_unknown_policy_is_an_error_of_one_line() -> None:
    with pytest.raises(UsageError, match="no policies named 'sfk'"):
        simulate(short(), 1, policy="sfk")


def test_a_lifecycle_can_be_exchanged() -> None:
    leaving = Parts(behaviour=lambda _, __: Impatient())
    reference = endings(simulate(short(), 1, parts=leaving))
    mutant = Parts(behaviour=leaving.behaviour, lifecycle=KeepsCalling, watched=False)
    assert reference[CallEnding.CANCELLED] > 50
    assert endings(simulate(short(), 1, parts=mutant))[CallEnding.CANCELLED] == 0


def test_clients_can_be_exchanged_one_by_one() -> None:
    parts = Parts(behaviour=lambda tenant, own: Hammer(max_attempts=3) if tenant.name == "flood" else own)
    run = simulate(short(), 1, parts=parts)
    assert {record.attempt for record in run.records if record.tenant == "flood"} == {0, 1, 2}
    assert {record.attempt for record in run.records if record.tenant != "flood"} == {0}


def test_configurations_can_be_exchanged() -> None:
    parts = Parts(
        gateway_config=lambda config: config.model_copy(update={"policy": "fifo"}),
        provider_config=lambda config: config.model_copy(update={"slots": 1}),
        settings=GatewaySettings(answer_margin_s=0.5),
    )
    run = simulate(short(), 1, parts=parts)
    assert {call.status for call in run.ledger} >= {200, 503}
    assert (
        run.profile.gateway.policy == "sfq"
    )  # the profile is what was asked for, the mutant is what was run


# --------------------------------------------------------------------------- invariants


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (Parts(admission=Generous), r"offered \d+ is not refused 0 \+ admitted \d+, after \w+\("),
        (
            Parts(provider=Overloaded, provider_config=lambda c: c.model_copy(update={"slots": 4})),
            "in 4 slots",
        ),
    ],
    ids=["counters", "slots"],
)
def test_a_violated_invariant_ends_the_run_and_says_after_which_event(parts: Parts, told: str) -> None:
    with pytest.raises(InvariantError, match=told):
        simulate(short(), 1, parts=parts)


def test_a_mutant_may_violate_an_invariant_and_be_left_to_the_checks() -> None:
    assert simulate(short(), 1, parts=Parts(admission=Generous, watched=False)).records


def test_the_reference_is_looked_at_all_the_time() -> None:
    chosen = short()
    recording = Recording(chosen, plan.draw(chosen, 1))
    recording.record()
    assert recording.world.watch.looks > recording.world.kernel.events / 100
    assert recording.world.gateway.open_exchanges == 0
    assert recording.world.gateway.core.open_requests == 0
    assert recording.world.provider.core.in_service == 0


# --------------------------------------------------------------------------- endings


def test_what_is_open_when_the_drain_ends_is_unfinished_and_named() -> None:
    chosen = short("provider.latency.first_token_ms=60000", "drain_s=1")
    run, horizon_ns = simulate(chosen, 1), chosen.duration_ns + NS
    assert {record.outcome for record in run.records} == {Outcome.UNFINISHED, Outcome.REJECTED}
    assert {r.ended_ns for r in run.records if r.outcome is Outcome.UNFINISHED} == {horizon_ns}
    assert endings(run)[CallEnding.OPEN] == 0  # their connections were closed


def test_a_stopped_run_names_every_request() -> None:
    chosen = short()
    drawn = plan.draw(chosen, 1)
    recording = Recording(chosen, drawn)
    recording.world.kernel.at(6 * NS, lambda _: recording.stop())
    run = recording.record()
    assert run.interrupted == "interrupted by the user"
    assert sorted({record.seq for record in run.records}) == list(range(len(drawn.arrivals)))
    assert {record.outcome for record in run.records} >= {
        Outcome.ANSWERED,
        Outcome.UNFINISHED,
        Outcome.UNSENT,
    }
    assert not run.health.trustworthy
    assert {verdict.status for verdict in judge.judge(run)} <= {Status.INCONCLUSIVE, Status.PASSED}


# --------------------------------------------------------------------------- many tenants


class Everyone(dict[str, Behaviour]):
    def __missing__(self, tenant: str) -> Behaviour:
        return NoRetry()


class Places(dict[str, int]):
    def __missing__(self, tenant: str) -> int:
        return int(tenant[1:]) % 100


JOB = Job(input_tokens=24, output_tokens=2, declared_output_tokens=48)


def test_memory_is_flat_however_many_tenants_come_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of memory in use after so many thousand one-shot tenants: exact, unlike a process's size."""
    monkeypatch.setattr("fake_provider.core._VISITS_KEPT", 500)
    blocks: dict[int, int] = {}
    seen = 6_000

    def arrivals() -> Iterator[Arrival]:
        for seq in range(seen):
            if seq % 1_000 == 0:
                gc.collect()
                blocks[seq // 1_000] = sys.getallocatedblocks()
            yield Arrival(
                seq=seq,
                tenant=f"t{seq}",
                service_class="standard",
                phase="load",
                due_ns=seq * NS // 2,
                job=JOB,
            )

    demand = Demand(
        arrivals=arrivals(),
        behaviours=Everyone(),
        places=Places(),
        seed=1,
        horizon_ns=seen * NS // 2 + 10 * NS,
    )
    world = World(
        GatewayConfig(max_tenants=500),
        ProviderConfig(max_ledger_entries=0, latency=LatencyConfig(first_token_cv=0)),
        demand,
        timing=Timing(sample_ns=60 * NS),
    )
    world.run()
    assert world.clients.records == seen
    assert blocks[5] == pytest.approx(blocks[2], rel=0.01)


def test_ten_thousand_tenants_run() -> None:
    random, outcomes = Random(1), defaultdict[Outcome, int](int)
    due = sorted(random.randrange(20 * NS) for _ in range(10_000))
    arrivals = [
        Arrival(seq=n, tenant=f"t{n}", service_class="standard", phase="load", due_ns=at, job=JOB)
        for n, at in enumerate(due)
    ]

    def keep(record: object) -> None:
        outcomes[record.outcome] += 1  # type: ignore[attr-defined]

    demand = Demand(arrivals=arrivals, behaviours=Everyone(), places=Places(), seed=1, horizon_ns=60 * NS)
    world = World(GatewayConfig(), ProviderConfig(slots=16), demand, sinks=Sinks(record=keep))
    world.run()
    assert sum(outcomes.values()) == 10_000
    assert outcomes[Outcome.ANSWERED] > 1_000
    assert outcomes[Outcome.REJECTED] > 1_000


# --------------------------------------------------------------------------- models


def test_what_exceeds_one_models_limit_is_served_by_its_fallback() -> None:
    limit = {"tokens_per_minute": 76_800}
    own = {**limit, "bucket_s": 0.5, "fallback": "spare", "fallback_after_s": 0.2}
    chosen = short()
    provider = ProviderConfig.model_validate(
        {**chosen.provider.model_dump(), "tokens_per_minute": None, "model_limits": {"fake-model": limit}}
    )
    upstream = UpstreamLimits.model_validate({"models": {"fake-model": own}})
    gateway = chosen.gateway.model_copy(update={"upstream": upstream})
    run = simulate(chosen.model_copy(update={"provider": provider, "gateway": gateway}), 1)
    calls = Counter((entry.model, entry.ending) for entry in run.ledger)
    assert calls["spare", CallEnding.COMPLETED] > 50
    assert calls["fake-model", CallEnding.COMPLETED] > 50
    assert {ending for _, ending in calls} <= {CallEnding.COMPLETED, CallEnding.CANCELLED}
