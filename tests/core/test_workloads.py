"""Workloads: sizes within their bounds, means as written, and always the same number of draws."""

from __future__ import annotations

from random import Random
from statistics import mean, stdev
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agentload import workloads
from agentload.model import Job, Spec
from agentload.workloads import _sizes

EXAMPLES: dict[str, dict[str, Any]] = {
    "chat": {"output_tokens": {"min": 8, "max": 24}, "max_tokens": 48, "stream": 0.5, "deadline_s": 1.5},
    "fixed": {"output_tokens": 16, "max_tokens": 48},
    "pareto": {"mean_output_tokens": 16, "alpha": 1.2, "clip": 8},
    "mix": {
        "parts": [
            {"share": 0.25, "kind": "chat", "workflow": "qa", "output_tokens": {"min": 1, "max": 8}},
            {"share": 0.75, "kind": "fixed", "workflow": "report", "output_tokens": 500},
        ]
    },
}


def jobs(kind: str, params: dict[str, Any], n: int = 4000, seed: object = 1) -> list[Job]:
    made, random = workloads.make(Spec(kind=kind, params=params)), Random(str(seed))
    return [made.draw(random, 0) for _ in range(n)]


class CountingRandom(Random):
    """Counts its draws, and fails on anything but `random()`."""

    draws = 0

    def random(self) -> float:
        self.draws += 1
        return super().random()

    def getrandbits(self, k: int, /) -> int:
        raise AssertionError("only random() is stable across Pythons")


def test_there_is_an_example_of_each() -> None:
    assert sorted(EXAMPLES) == workloads.SEAM.names()


@pytest.mark.parametrize("kind", EXAMPLES)
@settings(max_examples=50, deadline=None)
@given(seed=st.integers())
def test_a_draw_takes_the_same_number_of_random_numbers_every_time(kind: str, seed: int) -> None:
    made, random = workloads.make(Spec(kind=kind, params=EXAMPLES[kind])), CountingRandom(seed)
    made.draw(random, 0)
    first = random.draws
    for _ in range(20):
        made.draw(random, 0)
    assert random.draws == 21 * first


@pytest.mark.parametrize(
    ("kind", "params", "same"),
    [
        ("fixed", {}, True),
        ("fixed", {"input_tokens": {"min": 30, "max": 30}, "stream": True, "deadline_s": 1.5}, True),
        ("fixed", {"input_tokens": {"min": 30, "max": 31}}, False),
        ("fixed", {"input_tokens": {"mean": 300, "cv": 1.2}}, False),
        ("fixed", {"stream": 0.5}, False),
        ("chat", {}, False),
    ],
)
def test_a_workload_without_chance_says_so(kind: str, params: dict[str, Any], same: bool) -> None:
    drawn = set(jobs(kind, params, n=200))
    always = workloads.make(Spec(kind=kind, params=params)).always()
    assert (drawn == {always}) is same
    assert (always is not None) is same


@pytest.mark.parametrize("kind", EXAMPLES)
def test_equal_sources_give_equal_jobs(kind: str) -> None:
    assert jobs(kind, EXAMPLES[kind], 50) == jobs(kind, EXAMPLES[kind], 50)


def test_chat_ranges_are_uniform_with_both_ends() -> None:
    drawn = jobs("chat", EXAMPLES["chat"])
    outputs = [job.output_tokens for job in drawn]
    assert set(outputs) == set(range(8, 25))
    assert mean(outputs) == pytest.approx(16, rel=0.02)
    assert sum(job.stream for job in drawn) / len(drawn) == pytest.approx(0.5, abs=0.03)
    assert {(job.input_tokens, job.declared_output_tokens, job.deadline_ns) for job in drawn} == {
        (24, 48, 1_500_000_000)
    }


def test_the_service_time_of_the_usual_chat_has_a_quarter_of_variation() -> None:
    """100 ms lognormal (CV 0.4) and 10 ms for each further token: what the bundled profiles promise."""
    source = Random("first")
    times = [
        _sizes.lognormal(100, 0.4, source.random()) + 10 * (job.output_tokens - 1)
        for job in jobs("chat", EXAMPLES["chat"], 20_000)
    ]
    assert mean(times) == pytest.approx(250, rel=0.01)
    assert stdev(times) / mean(times) == pytest.approx(0.25, abs=0.01)


def test_lognormal_sizes_have_their_mean_and_are_cut() -> None:
    sizes = [
        j.output_tokens for j in jobs("chat", {"output_tokens": {"mean": 300, "cv": 1.2, "clip": 8}}, 20_000)
    ]
    assert mean(sizes) == pytest.approx(300, rel=0.03)
    assert max(sizes) <= 2400
    assert min(sizes) >= 1


def test_the_model_stops_at_max_tokens() -> None:
    drawn = jobs("chat", {"output_tokens": {"min": 8, "max": 24}, "max_tokens": 10}, 500)
    assert {job.output_tokens for job in drawn} == {8, 9, 10}


@settings(max_examples=30, deadline=None)
@given(alpha=st.floats(1.05, 5), clip=st.floats(2, 50), average=st.floats(8, 2000))
def test_a_pareto_keeps_its_mean_whatever_the_tail(alpha: float, clip: float, average: float) -> None:
    """Integrates the quantile function: E[X] is its mean over u."""
    steps = 20_000
    values = [_sizes.clipped_pareto(average, alpha, clip, (i + 0.5) / steps) for i in range(steps)]
    assert mean(values) == pytest.approx(average, rel=0.005)
    assert max(values) <= clip * average * (1 + 1e-9)


def test_a_pareto_is_heavy() -> None:
    sizes = sorted(j.output_tokens for j in jobs("pareto", EXAMPLES["pareto"], 20_000))
    assert mean(sizes) == pytest.approx(16, rel=0.03)
    assert max(sizes) == 128
    assert sizes[len(sizes) // 2] < 10
    assert sum(sizes[-2000:]) > 0.4 * sum(sizes)


def test_fixed_jobs_are_equal() -> None:
    assert len(set(map(repr, jobs("fixed", EXAMPLES["fixed"], 100)))) == 1


def test_streams_by_true_and_false() -> None:
    assert all(job.stream for job in jobs("chat", {"stream": True}, 50))
    assert not any(job.stream for job in jobs("chat", {"stream": False}, 50))


def test_a_prompt_always_has_room_for_the_marker() -> None:
    assert min(j.input_tokens for j in jobs("chat", {"input_tokens": {"mean": 20, "cv": 1}})) == 13


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({}, "needs min and max, or mean"),
        ({"min": 3}, "needs min and max, or mean"),
        ({"min": 3, "max": 4, "mean": 3}, "takes min and max, or mean, not both"),
        ({"min": 5, "max": 4}, "min 5 is larger than max 4"),
        ("many", "must be a number of tokens"),
        (True, "must be a number of tokens"),
    ],
)
def test_sizes_that_make_no_sense(size: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        workloads.make(Spec(kind="chat", params={"output_tokens": size}))


def test_a_mix_has_its_shares_and_every_part_its_own_sizes() -> None:
    drawn = jobs("mix", EXAMPLES["mix"])
    questions = [job for job in drawn if job.workflow == "qa"]
    assert len(questions) / len(drawn) == pytest.approx(0.25, abs=0.02)
    assert {job.output_tokens for job in questions} == set(range(1, 9))
    assert {job.output_tokens for job in drawn if job.workflow == "report"} == {500}


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (
            {"share": 0.5, "kind": "chat", "output_tokens": "many"},
            r"parts\[1\].output_tokens: .*number of tokens",
        ),
        ({"share": 0.5, "kind": "chta"}, r"parts\[1\]: no workloads named 'chta' .did you mean 'chat'"),
        ({"share": 0.4, "kind": "chat"}, "must add up to 1, got 0.9"),
        ({"kind": "chat"}, "share\n  Field required"),
    ],
)
def test_mixes_that_make_no_sense(part: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        workloads.make(Spec(kind="mix", params={"parts": [{"share": 0.5, "kind": "fixed"}, part]}))
