"""Azure's limits: counters that start again at nought with every window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_provider.call import Reason
from fake_provider.config import ProviderConfig
from fake_provider.core import Provider
from fake_provider.policies.azure import Window
from provider_helpers import EXACT, MS, NS, play, refusal, request, service


def provider(**fields: object) -> Provider:
    return Provider(ProviderConfig.model_validate({"policy": "azure", "latency": EXACT, **fields}))


def test_a_window_admits_its_limit_and_then_nothing_until_it_ends() -> None:
    core = provider(tokens_per_minute=6_000)
    service(core.arrive(10 * NS, request(max_tokens=5_900, text_chars=0)))
    refused = refusal(core.arrive(20 * NS, request(seq=1, max_tokens=400, text_chars=0)))
    assert (refused.status, refused.reason, refused.retry_after_s) == (429, Reason.TOKENS, 40)
    refusal(core.arrive(60 * NS - MS, request(seq=2, max_tokens=400, text_chars=0)))
    service(core.arrive(60 * NS, request(seq=3, max_tokens=6_000, text_chars=0)))


def test_prompt_and_max_tokens_count_together() -> None:
    core = provider(tokens_per_minute=6_000)
    call = service(core.arrive(0, request(text_chars=401, max_tokens=100)))
    assert call.entry.charged_tokens == 101 + 100


def test_without_max_tokens_the_whole_context_is_reserved() -> None:
    core = provider(tokens_per_minute=6_000, context_tokens=4_096)
    assert service(core.arrive(0, request())).entry.charged_tokens == 4_096
    assert refusal(core.arrive(0, request(seq=1))).reason is Reason.TOKENS
    unknown = provider(tokens_per_minute=6_000)
    assert service(unknown.arrive(0, request(text_chars=120))).entry.charged_tokens == 30


def test_around_an_edge_two_windows_come_at_once() -> None:
    core = provider(tokens_per_minute=6_000)
    service(core.arrive(59 * NS, request(max_tokens=6_000, text_chars=0)))
    service(core.arrive(60 * NS, request(seq=1, max_tokens=6_000, text_chars=0)))
    refusal(core.arrive(61 * NS, request(seq=2, max_tokens=1, text_chars=0)))


def test_a_call_larger_than_the_window_is_promised_nothing() -> None:
    refused = refusal(
        provider(tokens_per_minute=6_000, bucket_s=30).arrive(0, request(max_tokens=3_001, text_chars=0))
    )
    assert (refused.reason, refused.retry_after_s) == (Reason.TOO_LARGE, None)


def test_requests_are_looked_at_over_ten_seconds() -> None:
    core = provider(requests_per_minute=12, retry_after="milliseconds")
    for seq in range(2):
        service(core.arrive(0, request(seq=seq)))
    refused = refusal(core.arrive(2_500 * MS, request(seq=2)))
    assert (refused.reason, refused.retry_after_s, refused.retry_after_ms) == (Reason.REQUESTS, 8, 7_500)
    service(core.arrive(10 * NS, request(seq=3)))


def test_refused_calls_count_when_they_are_to() -> None:
    core = provider(requests_per_minute=12, tokens_per_minute=600, count_refused=True)
    refusal(core.arrive(0, request(max_tokens=601, text_chars=0)))
    service(core.arrive(0, request(seq=1)))
    assert refusal(core.arrive(0, request(seq=2))).reason is Reason.REQUESTS


def test_a_cut_of_the_limit_holds_in_the_window_that_runs() -> None:
    core = provider(tokens_per_minute=6_000)
    service(core.arrive(0, request(max_tokens=3_000, text_chars=0)))
    core.policy.scale(0, 0.5)
    refusal(core.arrive(0, request(seq=1, max_tokens=1, text_chars=0)))
    core.policy.scale(0, 1.0)
    call = service(core.arrive(0, request(seq=2, max_tokens=1_000, text_chars=0)))
    assert core.headers(0, call) == [(b"x-ratelimit-remaining-tokens", b"2000")]
    [level] = core.policy.levels(0)
    assert (level["limit"], level["capacity"], level["level"]) == ("tokens", 6_000, 2_000)
    assert "key" not in str(level["key_digest"])


@given(
    rate=st.integers(60, 60_000),
    length_s=st.floats(0.5, 60),
    asks=st.lists(st.tuples(st.integers(0, 90 * NS), st.integers(0, 2_000)), max_size=40),
)
def test_no_window_admits_more_than_its_limit_and_waits_are_enough(
    rate: int, length_s: float, asks: list[tuple[int, int]]
) -> None:
    window = Window(rate, round(length_s * NS))
    granted: dict[int, int] = {}
    now_ns = 0
    for at_ns, n in sorted(asks):
        now_ns = max(now_ns, at_ns)
        wait_ns = window.wait_ns(n, now_ns)
        if wait_ns is None:
            assert n > window.capacity
            continue
        now_ns += wait_ns
        assert window.wait_ns(n, now_ns) == 0
        window.used += n
        number = now_ns // window.length_ns
        granted[number] = granted.get(number, 0) + n
    assert all(total <= window.capacity + 1e-3 for total in granted.values())


@pytest.mark.parametrize("bucket_s", [1, 60])
def test_one_request_always_fits(bucket_s: int) -> None:
    entries = play(
        provider(requests_per_minute=1, bucket_s=bucket_s),
        [(0, request()), (59 * NS, request(seq=1)), (60 * NS, request(seq=2))],
    )
    assert [entry.ending for entry in entries] == ["completed", "throttled", "completed"]
