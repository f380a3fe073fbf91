"""Anthropic's limits: requests and input charged at admission, output as it is produced."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_provider.anthropic import AnthropicMessages
from fake_provider.budget import Headers
from fake_provider.call import CallRequest, Reason
from fake_provider.config import ProviderConfig
from fake_provider.core import Provider
from fake_provider.ledger import Ending
from fake_provider.policies.anthropic import rfc3339
from provider_helpers import EXACT, MS, NS, play, refusal, request, service

EPOCH_NS = 1_755_780_000 * NS  # 2025-08-21T12:40:00Z


def provider(**fields: object) -> Provider:
    config = ProviderConfig.model_validate({"policy": "anthropic", "latency": EXACT, **fields})
    return Provider(config, epoch_ns=EPOCH_NS)


def asked(seq: int = 0, **fields: object) -> CallRequest:
    return request(seq=seq, endpoint="messages", **fields)  # type: ignore[arg-type]


def told(core: Provider, now_ns: int, seq: int = 99) -> dict[str, str]:
    fields: Headers = core.headers(now_ns, core.arrive(now_ns, asked(seq, input_tokens=0)).call)
    prefix = "anthropic-ratelimit-"
    assert all(name.decode().startswith(prefix) for name, _ in fields)
    return {name.decode().removeprefix(prefix): value.decode() for name, value in fields}


def test_input_is_charged_at_admission_and_max_tokens_does_not_count() -> None:
    core = provider(input_tokens_per_minute=6_000)
    call = service(core.arrive(0, asked(input_tokens=5_900, max_tokens=100_000)))
    assert call.entry.charged_tokens == 5_900
    refused = refusal(core.arrive(0, asked(1, input_tokens=400)))
    assert (refused.status, refused.reason, refused.retry_after_s) == (429, Reason.INPUT_TOKENS, 3)
    service(core.arrive(3 * NS, asked(2, input_tokens=400)))


def test_a_prompt_larger_than_the_bucket_is_promised_nothing() -> None:
    refused = refusal(provider(input_tokens_per_minute=6_000).arrive(0, asked(input_tokens=6_001)))
    assert (refused.reason, refused.retry_after_s) == (Reason.TOO_LARGE, None)


def test_output_is_charged_as_it_is_produced_and_into_debt() -> None:
    core = provider(output_tokens_per_minute=60, bucket_s=10)  # ten tokens, one a second
    call = service(core.arrive(0, asked(output=40, stream=True)))
    service(core.arrive(0, asked(1, stream=True)))  # nothing is produced yet
    for _ in range(15):
        step = core.next_step(call)
        core.deliver(0, call, step)
    refused = refusal(core.arrive(0, asked(2)))
    assert (refused.status, refused.reason) == (429, Reason.OUTPUT_TOKENS)
    assert refused.retry_after_s == 6  # from minus five to one
    refusal(core.arrive(6 * NS - MS, asked(3)))
    service(core.arrive(6 * NS, asked(4)))


def left(core: Provider, now_ns: int) -> float:
    """Output tokens in the only bucket."""
    [level] = core.snapshot(now_ns)["limits"]
    return float(level["level"])


def test_output_of_a_plain_answer_is_charged_while_it_is_produced() -> None:
    core = provider(output_tokens_per_minute=6)  # six tokens; one more every ten seconds
    call = service(core.arrive(0, asked(output=40)))  # due at 100 ms, then every 20 ms
    assert left(core, 90 * MS) == 6
    assert left(core, 140 * MS) == pytest.approx(6 - 3, abs=0.02)
    service(core.arrive(190 * MS, asked(1, stream=True)))
    refused = refusal(core.arrive(200 * MS, asked(2)))  # the sixth
    assert refused.reason is Reason.OUTPUT_TOKENS
    step = core.next_step(call)
    assert step.due_ns == 880 * MS
    core.deliver(880 * MS, call, step)
    assert left(core, 880 * MS) == pytest.approx(6 - 40, abs=0.1)
    assert call.entry.output_tokens == 40


def test_what_was_produced_for_a_caller_who_left_stays_charged() -> None:
    core = provider(output_tokens_per_minute=6)
    call = service(core.arrive(0, asked(output=40)))
    core.ended(180 * MS, call, Ending.CANCELLED)
    assert left(core, 500 * MS) == pytest.approx(6 - 5, abs=0.1)
    assert call.entry.output_tokens == 0  # none of it went out


def test_requests_bind_too_and_one_always_fits() -> None:
    core = provider(requests_per_minute=6, bucket_s=1)
    service(core.arrive(0, asked()))
    refused = refusal(core.arrive(0, asked(1)))
    assert (refused.reason, refused.retry_after_s) == (Reason.REQUESTS, 10)


@pytest.mark.parametrize(("rpm", "reason"), [(30, Reason.REQUESTS), (600, Reason.INPUT_TOKENS)])
def test_the_limit_that_binds_longest_is_told(rpm: int, reason: Reason) -> None:
    core = provider(requests_per_minute=rpm, input_tokens_per_minute=600, bucket_s=1)
    service(core.arrive(0, asked(input_tokens=10)))
    assert refusal(core.arrive(0, asked(1, input_tokens=10))).reason is reason


def test_the_headers_are_anthropics() -> None:
    core = provider(requests_per_minute=50, input_tokens_per_minute=80_000, output_tokens_per_minute=16_000)
    call = service(core.arrive(0, asked(input_tokens=40_400, output=7_900)))
    core.deliver(0, call, core.next_step(call))
    assert told(core, 0) == {
        "requests-limit": "50",
        "requests-remaining": "48",
        "requests-reset": "2025-08-21T12:40:03Z",
        "input-tokens-limit": "80000",
        "input-tokens-remaining": "40000",
        "input-tokens-reset": "2025-08-21T12:40:31Z",
        "output-tokens-limit": "16000",
        "output-tokens-remaining": "8000",
        "output-tokens-reset": "2025-08-21T12:40:30Z",
        "tokens-limit": "96000",
        "tokens-remaining": "48000",
        "tokens-reset": "2025-08-21T12:40:31Z",
    }


def test_without_limits_no_headers() -> None:
    assert told(provider(), 0) == {}


def test_a_debt_shows_as_nothing_left() -> None:
    core = provider(output_tokens_per_minute=600)
    call = service(core.arrive(0, asked(output=2_000)))
    core.deliver(0, call, core.next_step(call))
    assert told(core, 0)["output-tokens-remaining"] == "0"


def test_a_cut_of_the_limits_reaches_input_and_output() -> None:
    fault = {"kind": "tpm-cut", "params": {"factor": 0.5}}
    core = provider(
        input_tokens_per_minute=80_000,
        output_tokens_per_minute=16_000,
        requests_per_minute=50,
        faults=[fault],
    )
    fields = told(core, 0)
    limits = [fields[f"{name}-limit"] for name in ("input-tokens", "output-tokens", "requests")]
    assert limits == ["40000", "8000", "50"]
    core.remove_fault(NS)
    assert told(core, NS)["input-tokens-limit"] == "80000"


@pytest.mark.parametrize(
    ("limit", "words"),
    [("input_tokens", "120 input tokens per minute"), ("output_tokens", "120 output tokens per minute")],
)
def test_refusals_name_the_limit_in_anthropics_words(limit: str, words: str) -> None:
    core = provider(**{f"{limit}_per_minute": 120, "bucket_s": 1})
    call = service(core.arrive(0, asked(input_tokens=2, output=2)))
    core.deliver(0, call, core.next_step(call))
    headers, text = AnthropicMessages().refusal(refusal(core.arrive(0, asked(1, input_tokens=2))))
    error = json.loads(text)["error"]
    assert (headers, error["type"]) == ([(b"retry-after", b"1")], "rate_limit_error")
    assert f"of {words}" in error["message"]


@pytest.mark.parametrize(
    ("policy", "limit"),
    [("anthropic", "tokens_per_minute"), ("openai", "input_tokens_per_minute"),
     ("openai", "output_tokens_per_minute")],
)  # fmt: skip
def test_a_limit_that_the_policy_does_not_know_is_an_error(policy: str, limit: str) -> None:
    with pytest.raises(ValueError, match=f"{limit}: policy {policy} has "):
        ProviderConfig.model_validate({"policy": policy, limit: 100})
    ProviderConfig.model_validate({"policy": "none", limit: 100})


def test_instants_are_rounded_up_to_the_second() -> None:
    assert rfc3339(EPOCH_NS) == b"2025-08-21T12:40:00Z"
    assert rfc3339(EPOCH_NS + 1) == b"2025-08-21T12:40:01Z"


@given(
    itpm=st.integers(60, 6_000),
    arrivals=st.lists(
        st.tuples(st.integers(0, 60 * NS), st.integers(0, 300), st.integers(1, 40)), max_size=40
    ),
)
def test_no_more_input_is_admitted_than_the_bucket_holds_and_gains(
    itpm: int, arrivals: list[tuple[int, int, int]]
) -> None:
    core = provider(input_tokens_per_minute=itpm, output_tokens_per_minute=600, bucket_s=2)
    entries = play(
        core,
        [(at, asked(i, input_tokens=n, output=out)) for i, (at, n, out) in enumerate(sorted(arrivals))],
    )
    taken = [(entry.arrived_ns, entry.charged_tokens) for entry in entries if entry.started_ns is not None]
    for i, (start_ns, _) in enumerate(taken):
        total = 0
        for at_ns, tokens in taken[i:]:
            total += tokens
            assert total <= itpm / 60 * 2 + (at_ns - start_ns) / NS * itpm / 60 + 1e-3
    assert core.ledger.counts.conserved()
