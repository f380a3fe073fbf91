"""Halved, the longer profiles still hold enough to be judged by, and the reference passes them."""

from __future__ import annotations

import pytest

from agentload import judge, mutants, profile
from agentload.model import Severity, Status
from agentload.simulate import simulate

NAMES = (
    "deadlines",
    "disconnects",
    "herd",
    "liar",
    "limit-edges",
    "long-jobs",
    "overload",
    "retry-storm",
    "runaway-agent",
    "tenant-churn",
    "worker-sweep",
)


@pytest.mark.parametrize(
    ("name", "mutant", "check"),
    [
        ("retry-storm", "age-of-the-newest", "queue-age-alert"),
        ("retry-storm", "evictions-uncounted", "observable"),
        ("limit-edges", "early-retries-served", "retry-identity"),
        ("runaway-agent", "attempts-from-the-header", "retry-identity"),
    ],
)
def test_what_a_gateway_says_of_itself_and_of_retries_is_judged_in_bundled_profiles(
    name: str, mutant: str, check: str
) -> None:
    short = profile.quick(profile.load(profile.find(name)))
    run = simulate(short, short.seed, parts=mutants.parts_of(mutant))
    assert {v.check for v in judge.judge(run) if v.status is Status.FAILED} == {check}


@pytest.mark.parametrize("name", NAMES)
def test_the_quick_version_is_decided_and_passes(name: str) -> None:
    whole = profile.load(profile.find(name))
    short = profile.quick(whole)
    assert short.duration_ns < whole.duration_ns
    found = [v for v in judge.judge(simulate(short, short.seed)) if v.severity is Severity.MUST]
    assert [(v.check, v.because) for v in found if v.status is not Status.PASSED] == []
