"""The bundled profiles in virtual time: the reference passes, the naive gateway is caught, on every seed."""

from __future__ import annotations

import pytest

from agentload import judge, profile
from agentload.model import Profile, Run, Status
from agentload.simulate import simulate

SEEDS = (1, 2, 3, 4, 5)


def noisy_neighbor() -> Profile:
    """The quick version: as many samples as its percentiles need, in less time."""
    return profile.quick(profile.load(profile.find("noisy-neighbor")))


def statuses(run: Run) -> list[tuple[str, Status]]:
    return [(verdict.check, verdict.status) for verdict in judge.judge(run)]


@pytest.mark.parametrize("seed", SEEDS)
def test_noisy_neighbor_passes_with_fair_queueing(seed: int) -> None:
    found = statuses(simulate(noisy_neighbor(), seed))
    assert [name for name, status in found if status is not Status.PASSED] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_noisy_neighbor_fails_the_victims_of_a_naive_gateway(seed: int) -> None:
    found = dict(statuses(simulate(noisy_neighbor(), seed, policy="fifo")))
    assert found["victim-latency"] is Status.FAILED
    assert found["victim-goodput"] is Status.FAILED


def test_steady_raises_no_alarm() -> None:
    run = simulate(profile.load(profile.find("steady")), 1)
    assert {status for _, status in statuses(run)} == {Status.PASSED}


def test_weighted_fair_serves_work_by_weight() -> None:
    run = simulate(profile.load(profile.find("weighted-fair")), 1)
    assert {status for _, status in statuses(run)} == {Status.PASSED}
    start_ns, end_ns = run.profile.phase_window_ns("small")
    work = {"gold": 0, "silver": 0, "bronze": 0}
    for call in run.ledger:
        if call.tenant in work and call.started_ns is not None and start_ns <= call.started_ns < end_ns:
            work[call.tenant] += call.input_tokens + call.output_tokens
    total = sum(work.values())
    shares = {tenant: round(100 * tokens / total) for tenant, tokens in work.items()}
    assert shares == {"gold": 50, "silver": 30, "bronze": 20}
    assert run.health.trustworthy
    assert run.driver == "simulated"
