"""The provider's limits, replayed from its ledger: equal to what the provider itself would have said."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.evidence.allowance import admitted, permitted, told_to_wait
from agentload.evidence.envelope import highest_level
from agentload.evidence.synthetic import MS
from agentload.model import NS, CallEnding, LedgerEntry
from agentload.provider_records import ledger_from_provider
from fake_provider.call import CallRequest
from fake_provider.config import ProviderConfig
from fake_provider.core import Provider

CALLER = ("key", "m")


def call(at_ms: float, tokens: int = 40, ending: CallEnding = CallEnding.COMPLETED) -> LedgerEntry:
    at_ns = round(at_ms * MS)
    return LedgerEntry(
        call=at_ns,
        arrived_ns=at_ns,
        ended_ns=at_ns,
        ending=ending,
        model="m",
        charged_tokens=tokens,
        started_ns=at_ns if ending is CallEnding.COMPLETED else None,
    )


def seconds(intervals: list[tuple[int, int]]) -> list[tuple[float, float]]:
    return [(start / NS, end / NS) for start, end in intervals]


def test_between_two_calls_it_is_from_when_the_bucket_holds_the_second() -> None:
    # 40 tokens/s, a bucket of 80. At 0 it is full; 80 taken leaves 0; 40 are there 1 s later.
    provider = ProviderConfig(tokens_per_minute=2_400, bucket_s=2)
    calls = [call(0, 80), call(1_500), call(2_500)]
    # At 1.5 s it held 60 and lost 40: the third one's 40 are there when 20 more have come, at 2.0 s. At 2.5 s
    # again 60 − 40 = 20 are left, and another of 40 would have had to wait for 0.5 s.
    assert seconds(permitted(calls, provider, (0, 4 * NS))) == [(1.0, 1.5), (2.0, 2.5), (3.0, 4.0)]


def test_without_limits_the_next_call_could_always_have_come() -> None:
    assert seconds(permitted([call(500)], ProviderConfig(), (0, NS))) == [(0.0, 1.0)]
    assert seconds(permitted([], ProviderConfig(tokens_per_minute=60), (0, NS))) == [(0.0, 1.0)]


def test_requests_per_minute_have_a_bucket_of_their_own() -> None:
    provider = ProviderConfig(requests_per_minute=60, bucket_s=1)
    assert seconds(permitted([call(0), call(1_500)], provider, (0, 2 * NS))) == [(1.0, 1.5)]


def test_a_margin_makes_the_bucket_smaller_and_slower() -> None:
    provider = ProviderConfig(tokens_per_minute=2_400, bucket_s=2)
    # Half of it: 20 tokens/s, a bucket of 40. The second call's 40 are there after 2 s.
    assert seconds(permitted([call(0), call(3_000)], provider, (0, 3 * NS), margin=0.5)) == [(2.0, 3.0)]


def test_refused_calls_cost_nothing_and_their_promise_is_a_time_without_calls() -> None:
    refused = call(1_000, ending=CallEnding.THROTTLED)
    refused.not_before_ns = 3 * NS
    calls = [call(0), refused, call(4_000)]
    assert [c.arrived_ns for c in admitted(calls)] == [0, 4 * NS]
    assert told_to_wait(calls) == [(NS, 3 * NS)]
    assert seconds(permitted(calls, ProviderConfig(), (0, 4 * NS))) == [(0.0, 1.0), (3.0, 4.0)]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), rpm=st.sampled_from([None, 300.0]), bucket_s=st.sampled_from([1.0, 3.0]))
def test_it_agrees_with_the_provider_itself(seed: int, rpm: float | None, bucket_s: float) -> None:
    """At random instants before each admitted call, the provider is asked whether it would take it now."""
    random = Random(seed)
    config = ProviderConfig(tokens_per_minute=6_000, requests_per_minute=rpm, bucket_s=bucket_s)
    provider = Provider(config)
    now_ns, asked = 0, []
    for _ in range(40):
        max_tokens = random.randint(1, 100)
        cost = max_tokens
        # The next call will be this one: look at a few instants, then let it come when it fits.
        for _ in range(3):
            now_ns += random.randint(1, 400) * MS
            fits = not provider.policy.shortages(now_ns, CALLER, cost)
            asked.append((now_ns, fits))
        while provider.policy.shortages(now_ns, CALLER, cost):
            now_ns += 50 * MS
        now_ns += 1
        provider.arrive(
            now_ns,
            CallRequest(api_key="key", model="m", text_chars=4, input_tokens=1, max_tokens=max_tokens),
        )
    raw = [msgspec.structs.asdict(entry) for entry in provider.ledger.entries]
    ledger = ledger_from_provider(raw, ["a"], 0)
    free = permitted(ledger, config, (0, now_ns))
    for at_ns, fits in asked:
        assert any(start <= at_ns < end for start, end in free) == fits


def test_the_highest_level_is_the_worst_of_all_windows() -> None:
    # 10/s leak. 5 at 0, 5 at 0.1 s (5 − 1 + 5 = 9), 5 at 1 s (9 − 9 + 5).
    amounts = [(0, 5.0), (NS // 10, 5.0), (NS, 5.0)]
    assert highest_level(amounts, 10) == (pytest.approx(9.0), NS // 10)
    assert highest_level([], 10) == (0.0, 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=12))
def test_the_highest_level_equals_brute_force_over_windows(steps: list[tuple[int, int]]) -> None:
    amounts, at_ns = [], 0
    for gap, amount in steps:
        at_ns += gap * NS // 10
        amounts.append((at_ns, float(amount)))
    worst = max(
        sum(a for _, a in amounts[i : j + 1]) - 3 * (amounts[j][0] - amounts[i][0]) / NS
        for i in range(len(amounts))
        for j in range(i, len(amounts))
    )
    assert highest_level(amounts, 3)[0] == pytest.approx(worst)
