"""When the tokens of an answer are due, and what they say."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_provider import keyed
from fake_provider.config import LatencyConfig
from fake_provider.marker import Marker, ack, decode_ack
from fake_provider.reply import ReplyTiming, answer_text
from fake_provider.words import count_tokens

MS = 1_000_000
MARKER = Marker(run=1, tenant=2, seq=3, attempt=0, output_tokens=20)


def plan(
    latency: LatencyConfig, *, output: int = 50, prompt: int = 0, slow: float = 1.0, key: str = "k"
) -> ReplyTiming:
    return ReplyTiming.plan(
        latency,
        now_ns=7,
        input_tokens=prompt,
        output_tokens=output,
        draw=lambda purpose: keyed.uniform(f"{key}/{purpose}"),
        slow=slow,
    )


EXACT = LatencyConfig(first_token_ms=100, first_token_cv=0, inter_token_ms=20)


def test_tokens_are_due_at_absolute_times() -> None:
    timing = plan(EXACT)
    assert [timing.token_ns(i) for i in (0, 1, 49)] == [7 + 100 * MS, 7 + 120 * MS, 7 + 1_080 * MS]
    assert timing.end_ns == 7 + 1_080 * MS


def test_prompts_and_slowness_cost_time() -> None:
    latency = EXACT.model_copy(update={"prefill_ms_per_1000_tokens": 50.0})
    assert plan(latency, prompt=2_000).first_ns == 7 + 200 * MS
    slow = plan(latency, prompt=2_000, slow=3.0)
    assert (slow.first_ns, slow.step_ns) == (7 + 600 * MS, 60 * MS)


def test_the_time_to_first_token_has_the_mean_and_the_spread_that_were_asked_for() -> None:
    latency = LatencyConfig(first_token_ms=250, first_token_cv=0.5)
    times = [(plan(latency, key=str(i)).first_ns - 7) / MS for i in range(4_000)]
    assert fmean(times) == pytest.approx(250, rel=0.03)
    assert pstdev(times) / fmean(times) == pytest.approx(0.5, rel=0.06)


def test_draws_belong_to_their_key() -> None:
    assert (
        keyed.uniform("7/1/2/3/0/first_token") == keyed.uniform("7/1/2/3/0/first_token") == 0.6554313898217016
    )
    assert keyed.uniform("7/1/2/3/0/first_token") != keyed.uniform("7/1/2/3/1/first_token")


@given(st.text())
def test_draws_are_strictly_between_zero_and_one(key: str) -> None:
    assert 0 < keyed.uniform(key) < 1


@given(chunk_ms=st.integers(1, 500), step_ms=st.integers(1, 100), output=st.integers(1, 300))
def test_chunks_lie_apart_as_asked_and_hold_every_token_once(
    chunk_ms: int, step_ms: int, output: int
) -> None:
    latency = EXACT.model_copy(update={"chunk_ms": float(chunk_ms), "inter_token_ms": float(step_ms)})
    timing, sent, due = plan(latency, output=output), 0, []
    while sent < output:
        sent = timing.chunk_end(sent)
        due.append(timing.token_ns(sent - 1))
    assert sent == output
    assert due[0] == timing.first_ns
    assert due[-1] == timing.end_ns
    assert all(later - earlier >= chunk_ms * MS for earlier, later in pairwise(due[:-1]))


def test_without_chunks_every_token_goes_by_itself() -> None:
    timing = plan(EXACT.model_copy(update={"inter_token_ms": 0.0}))
    assert [timing.chunk_end(sent) for sent in range(3)] == [1, 2, 3]


@given(output=st.integers(1, 200), cut=st.integers(0, 200))
def test_an_answer_has_exactly_its_tokens_whole_or_in_pieces(output: int, cut: int) -> None:
    cut = min(cut, output)
    whole = answer_text(MARKER, 3, 0, output)
    assert count_tokens(whole) == output
    assert answer_text(MARKER, 3, 0, cut) + answer_text(MARKER, 3, cut, output) == whole
    assert decode_ack(whole) == (3 if output >= 6 else None)


@given(step_ms=st.integers(0, 50), output=st.integers(1, 50), now_ms=st.integers(0, 3_000))
def test_tokens_until_an_instant_are_those_due_by_it(step_ms: int, output: int, now_ms: int) -> None:
    timing = ReplyTiming(first_ns=100 * MS, step_ns=step_ms * MS, output_tokens=output)
    due = sum(timing.token_ns(i) <= now_ms * MS for i in range(output))
    assert timing.tokens_until(now_ms * MS) == due


def test_an_answer_begins_with_the_acknowledgement() -> None:
    assert answer_text(MARKER, 3, 0, 20).startswith(ack(MARKER) + " ")
    assert count_tokens(answer_text(None, 3, 0, 20)) == 20
