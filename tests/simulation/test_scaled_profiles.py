"""Profiles of other sizes: the reference gateway passes them, and a broken one fails as at full size."""

from __future__ import annotations

import pytest

from agentload import judge, profile
from agentload.model import Severity, Status, Verdict
from agentload.profile.scale import least, most, scaled
from agentload.simulate import parts_of, simulate

SCALES = (0.25, 0.5, 2.0, 4.0)
EVERY = [
    (name, factor)
    for name in profile.names()
    for factor in SCALES
    if least(profile.load(profile.find(name))).factor <= factor
    and factor <= most(profile.load(profile.find(name))).factor
]


def verdicts(
    name: str, factor: float, policy: str | None = None, mutant: str | None = None, seed: int = 1
) -> list[Verdict]:
    chosen = scaled(profile.load(profile.find(name)), factor)
    found = judge.judge(simulate(chosen, seed, policy=policy, parts=parts_of(mutant)))
    return [verdict for verdict in found if verdict.severity is Severity.MUST]


def not_passed(found: list[Verdict]) -> list[tuple[str, str]]:
    return [(one.check, one.because) for one in found if one.status is not Status.PASSED]


def failed(found: list[Verdict]) -> set[str]:
    return {one.check for one in found if one.status is Status.FAILED}


@pytest.mark.parametrize(("name", "factor"), [("noisy-neighbor", 0.25), ("weighted-fair", 0.25)])
def test_a_quarter_of_the_size_is_decided_and_passes(name: str, factor: float) -> None:
    assert not_passed(verdicts(name, factor)) == []


def test_a_quarter_of_the_size_fails_a_naive_gateway() -> None:
    assert failed(verdicts("noisy-neighbor", 0.25, policy="fifo")) == {"victim-latency", "victim-goodput"}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "factor"), EVERY, ids=[f"{name}-{factor:g}" for name, factor in EVERY])
def test_every_profile_passes_at_every_size(name: str, factor: float) -> None:
    assert not_passed(verdicts(name, factor)) == []


BROKEN = [
    ("noisy-neighbor", "fifo", None, "victim-goodput"),
    ("weighted-fair", "fifo", None, "weighted-share"),
    ("retry-storm", None, "ghosts-are-served", "no-ghosts"),
    ("herd", None, "same-retry-after-for-all", "retry-after-spread"),
    ("limit-edges", None, "limits-in-fixed-windows", "tenant-limit"),
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("factor", SCALES)
@pytest.mark.parametrize(("name", "policy", "mutant", "check"), BROKEN, ids=[one[0] for one in BROKEN])
def test_a_broken_gateway_fails_at_every_size(
    name: str, policy: str | None, mutant: str | None, check: str, factor: float
) -> None:
    if (name, factor) not in EVERY:
        pytest.skip("cannot be scaled so far, and says so")
    assert check in failed(verdicts(name, factor, policy, mutant))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_three_calls_a_second_are_enough_for_a_verdict(seed: int) -> None:
    """The least that noisy-neighbor allows: for gateways that carry some 20 requests a second."""
    assert not_passed(verdicts("noisy-neighbor", 0.0625, seed=seed)) == []
