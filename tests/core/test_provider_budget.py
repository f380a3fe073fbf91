"""Buckets, costs and rate-limit headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_provider.budget import NS, Bucket, go_duration, openai_cost, rate_limit_headers

MS = 1_000_000


@pytest.mark.parametrize(
    ("limit", "used", "requested", "wait_ms"),
    [
        (10_000, 8_554, 3_082, 9_816),
        (30_000, 14_567, 24_754, 18_642),
        (30_000, 29_937, 385, 644),
        (30_000, 18_928, 11_159, 174),
        (30_000, 28_039, 3_906, 3_890),
    ],
)
def test_waits_are_those_of_real_openai_refusals(limit: int, used: int, requested: int, wait_ms: int) -> None:
    bucket = Bucket(limit, 60, 0)
    bucket.take(used)
    assert bucket.used() == pytest.approx(used)
    wait_ns = bucket.wait_ns(requested, 0)
    assert wait_ns is not None
    assert wait_ns / MS == pytest.approx(wait_ms, abs=0.001)


def test_after_the_wait_the_tokens_are_there() -> None:
    bucket = Bucket(30_000, 60, 0)
    bucket.take(29_000)
    wait_ns = bucket.wait_ns(5_000, 0)
    assert wait_ns == 8 * NS
    assert bucket.wait_ns(5_000, wait_ns) == 0


@given(
    per_minute=st.floats(1, 1e7),
    bucket_s=st.floats(0.5, 120),
    asks=st.lists(st.tuples(st.integers(0, 3 * NS), st.floats(0, 1e5)), max_size=60),
)
def test_no_more_is_granted_than_a_full_bucket_and_what_flowed_in(
    per_minute: float, bucket_s: float, asks: list[tuple[int, float]]
) -> None:
    bucket = Bucket(per_minute, bucket_s, 0)
    now_ns, granted = 0, 0.0
    for gap_ns, n in asks:
        now_ns += gap_ns
        wait_ns = bucket.wait_ns(n, now_ns)
        if wait_ns == 0:
            bucket.take(n)
            granted += n
        elif wait_ns is None:
            assert n > bucket.capacity
        else:
            now_ns += wait_ns
            assert bucket.wait_ns(n, now_ns) == 0
            bucket.take(n)
            granted += n
    assert granted <= bucket.capacity + now_ns / NS * per_minute / 60 + 1e-3 * (1 + len(asks))


def test_more_than_a_full_bucket_never_fits() -> None:
    bucket = Bucket(60_000, 2, 0)
    assert bucket.capacity == 2_000
    assert bucket.wait_ns(2_000, 0) == 0
    assert bucket.wait_ns(2_001, 0) is None


def test_a_bucket_may_go_into_debt() -> None:
    bucket = Bucket(60, 60, 0)
    bucket.take(90)
    assert bucket.level == -30
    assert bucket.wait_ns(1, 0) == 31 * NS


def test_a_rounding_error_is_not_waited_for() -> None:
    bucket = Bucket(60, 60, 0)
    bucket.take(59.0 + 1e-9)
    assert bucket.wait_ns(1, 0) == 0


def test_a_new_limit_keeps_the_bucket_as_full_as_it_was() -> None:
    bucket = Bucket(60_000, 60, 0)
    bucket.take(45_000)
    bucket.resize(12_000, 0)
    assert (bucket.level, bucket.capacity) == (3_000, 12_000)
    bucket.resize(60_000, 5 * NS)
    assert bucket.level == pytest.approx(20_000)


def test_a_clock_that_steps_back_changes_nothing() -> None:
    bucket = Bucket(60, 60, 10 * NS)
    bucket.take(10)
    bucket.refill(0)
    assert bucket.level == 50


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (999_999, "0s"),
        (12 * MS, "12ms"),
        (2_640_000, "2ms"),
        (644 * MS, "644ms"),
        (1_000 * MS, "1s"),
        (7_660 * MS, "7.66s"),
        (9_816 * MS, "9.816s"),
        (59_999 * MS, "59.999s"),
        (119_700 * MS, "1m59.7s"),
        (179_560 * MS, "2m59.56s"),
        (360_000 * MS, "6m0s"),
        (3_661_000 * MS, "1h1m1s"),
        (3_600_000 * MS, "1h0m0s"),
    ],
)
def test_durations_are_printed_as_go_does(duration_ns: int, text: str) -> None:
    assert go_duration(duration_ns) == text


@pytest.mark.parametrize(
    ("chars", "max_tokens", "cost"),
    [(0, None, 0), (1, None, 1), (4, None, 1), (5, None, 2), (400, 16, 100), (400, 500, 500)],
)
def test_a_call_costs_the_larger_of_its_declaration_and_its_size(
    chars: int, max_tokens: int | None, cost: int
) -> None:
    assert openai_cost(chars, max_tokens) == cost


def test_headers_are_openais() -> None:
    requests, tokens = Bucket(5_000, 60, 0), Bucket(60_000, 60, 0)
    requests.take(1)
    tokens.take(3_000)
    assert dict(rate_limit_headers(requests, tokens)) == {
        b"x-ratelimit-limit-requests": b"5000",
        b"x-ratelimit-limit-tokens": b"60000",
        b"x-ratelimit-limit-project-tokens": b"60000",
        b"x-ratelimit-remaining-requests": b"4999",
        b"x-ratelimit-remaining-tokens": b"57000",
        b"x-ratelimit-remaining-project-tokens": b"57000",
        b"x-ratelimit-reset-requests": b"12ms",
        b"x-ratelimit-reset-tokens": b"3s",
        b"x-ratelimit-reset-project-tokens": b"3s",
    }


def test_what_is_not_limited_has_no_headers() -> None:
    assert rate_limit_headers(None, None) == []
    assert len(rate_limit_headers(Bucket(60, 60, 0), None)) == 3


def test_a_bucket_in_debt_says_that_nothing_remains() -> None:
    tokens = Bucket(60, 60, 0)
    tokens.take(100)
    assert dict(rate_limit_headers(None, tokens))[b"x-ratelimit-remaining-tokens"] == b"0"
