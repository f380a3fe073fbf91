"""Models with limits of their own: nobody waits for another's, and a fallback takes what is too much."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agentload.gateway.core import GatewayCore
from agentload.gateway.protocol import (
    Arrived,
    Respond,
    StartUpstream,
    UpstreamData,
    UpstreamEnded,
    UpstreamHeaders,
)
from agentload.gateway.settings import GatewaySettings
from agentload.scheduler.config import GatewayConfig, UpstreamLimits
from agentload.scheduler.policies import SEAM
from scheduler_books import Books, busy_gateway, drain
from scheduler_kit import MS, NS, Scene, gateway

SLOW = {"tokens_per_minute": 60_000, "bucket_s": 1}
"""A thousand tokens a second."""


def limits(fallback: str | None = None, after_s: float = 1.0, **other: object) -> UpstreamLimits:
    large = {**SLOW, "fallback": fallback, "fallback_after_s": after_s}
    return UpstreamLimits.model_validate({"margin": 0, "models": {"large": large, **other}})


def scene(upstream: UpstreamLimits, **config: object) -> Scene:
    return Scene(gateway(slots=100, tenant_slots=100, upstream=upstream, **config))  # type: ignore[arg-type]


def test_a_model_whose_limit_is_used_up_holds_up_no_other() -> None:
    one = scene(limits())
    large = [one.submit("a", 1_000, model="large") for _ in range(3)]
    other = one.submit("b", 1_000, model="small")
    behind = one.submit("a", 1_000, model="small")
    assert [one.fate(request) for request in large] == ["dispatched", "waiting", "waiting"]
    assert (one.fate(other), one.fate(behind)) == ("dispatched", "dispatched"), "also in its own line"
    one.pass_time(2 * NS)
    assert [one.fate(request) for request in large] == ["dispatched"] * 3


def test_for_the_same_model_nobody_passes_anybody() -> None:
    one = scene(limits())
    one.submit("a", 1_000, model="large")
    wide, narrow = one.submit("b", 1_000, model="large"), one.submit("c", 10, model="large")
    one.pass_time(NS - 1)
    assert (one.fate(wide), one.fate(narrow)) == ("waiting", "waiting")
    one.pass_time(1)
    assert one.fate(wide) == "dispatched"


def test_who_waits_for_a_used_up_model_is_served_by_weight_whatever_others_are_served_meanwhile() -> None:
    one = scene(limits(), tenants={"a": {"weight": 3}, "b": {"weight": 1}})
    for _ in range(60):
        one.submit("a", 250, model="large")
        one.submit("b", 250, model="large")
    for _ in range(100):  # ten seconds at a thousand tokens a second; calls last for 0.2 s
        one.submit("c", 200, model="small")
        one.pass_time(100 * MS)
        granted = {key: found.reservation.granted_ns for key, found in one.reservations.items()}
        for request in [r for r in one.running.values() if granted[r.id] <= one.now_ns - NS // 5]:
            one.end(request)
    served = Counter(one.dispatched)
    assert served["c"] == 100
    assert served["a"] + served["b"] == 44
    assert served["a"] == pytest.approx(33, abs=2)


def test_a_paused_model_pauses_no_other() -> None:
    one = scene(limits())
    first = one.submit("a", 100, model="large")
    one.admission.provider_refused(0, first.id, 5 * NS)
    assert one.fate(one.submit("a", 100, model="large")) == "waiting"
    assert one.fate(one.submit("a", 100, model="small")) == "dispatched"


def test_what_would_wait_too_long_goes_to_the_fallback() -> None:
    one = scene(limits("small", 0.5))
    requests = [one.submit("a", 250, model="large") for _ in range(12)]
    # A thousand tokens are there at once. The fifth would wait for 250 ms, and the others behind it.
    assert Counter(map(one.fate, requests)) == {"dispatched": 4, "waiting": 8}
    one.pass_time(2 * NS)
    went = [one.reservations[request.id].reservation for request in requests]
    assert Counter(one.fallback_model for one in went) == {None: 5, "small": 7}
    assert all(one.granted_ns <= 500 * MS for one in went)


def test_a_pause_longer_than_that_sends_to_the_fallback_at_once() -> None:
    one = scene(limits("small", 0.5))
    first = one.submit("a", 100, model="large")
    one.admission.provider_refused(0, first.id, 5 * NS)
    request = one.submit("a", 100, model="large")
    assert one.reservations[request.id].reservation.fallback_model == "small"


def test_the_fallback_keeps_its_own_limits() -> None:
    small = {"small": {"tokens_per_minute": 6_000, "bucket_s": 1}}
    one = scene(limits("small", 0, **small))
    requests = [one.submit("a", 100, model="large") for _ in range(20)]
    went = Counter(
        one.reservations[r.id].reservation.fallback_model for r in requests if r.id in one.reservations
    )
    assert went == {None: 10, "small": 1}


def test_a_model_cannot_be_its_own_fallback() -> None:
    with pytest.raises(ValidationError, match="cannot be its own fallback"):
        limits("large")


KINDS = ("submit", "submit", "submit", "end", "end", "fail", "cancel", "wait", "refused", "accepted", "retry")
OPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 7), st.integers(1, 900), st.integers(0, 6)), max_size=60
)
MODELS = ("large", "small", "other")


@settings(max_examples=120, deadline=None)
@given(ops=OPS, policy=st.sampled_from(sorted(set(SEAM.names()) - {"none"})), fallback=st.booleans())
def test_books_balance_with_several_models_under_every_policy(
    ops: list[tuple[str, int, int, int]], policy: str, fallback: bool
) -> None:
    upstream = limits("small" if fallback else None, 0.2, small={**SLOW, "requests_per_minute": 120})
    books = Books(busy_gateway(policy, upstream=upstream, max_reservation_units=4.5))
    model_of = Random(1)
    for op in ops:
        books.model = MODELS[int(model_of.random() * 3)]
        books.apply(op)
        books.check()
    drain(books)


@settings(max_examples=60, deadline=None)
@given(
    costs=st.lists(st.tuples(st.sampled_from(MODELS), st.integers(1, 900)), max_size=40),
    policy=st.sampled_from(["sfq", "drr"]),
)
def test_no_model_is_offered_more_than_its_limit(costs: list[tuple[str, int]], policy: str) -> None:
    one = scene(limits("small", 0.3, small=SLOW), policy=policy)
    for model, cost in costs:
        one.submit("a" if cost % 2 else "b", cost, model=model)
    one.pass_time(90 * NS)
    assert len(one.dispatched) == len(costs)
    for model in ("large", "small"):
        went = [
            (event.reservation.granted_ns, event.reservation.provider_tokens)
            for event in one.reservations.values()
            if (event.reservation.fallback_model or event.request.model) == model
        ]
        for first, (start_ns, _) in enumerate(went):
            for at_ns, _ in went[first:]:
                total = sum(tokens for ns, tokens in went if start_ns <= ns <= at_ns)
                assert total <= 1_000 + (at_ns - start_ns) / NS * 1_000 + 1


def test_the_provider_is_asked_for_the_fallback_and_the_client_is_told() -> None:
    upstream = {
        "models": {
            "large": {"tokens_per_minute": 600, "bucket_s": 1, "fallback": "small", "fallback_after_s": 0}
        }
    }
    core = GatewayCore(GatewayConfig.model_validate({"upstream": upstream}), GatewaySettings(), Random(1))
    body = {
        "temperature": 0.5,
        "model": "large",
        "max_tokens": 8,
        "messages": [{"role": "user", "content": "hello"}],
    }
    models, told = [], []
    for request_id in (1, 2):
        [start] = core.handle(0, Arrived(request_id, (), json.dumps(body).encode()))
        assert isinstance(start, StartUpstream)
        models.append(json.loads(start.call.body))
        core.handle(0, UpstreamHeaders(request_id, 200, ((b"content-type", b"application/json"),)))
        core.handle(0, UpstreamData(request_id, b'{"choices":[{"message":{"content":"hi"}}]}'))
        [answer] = [a for a in core.handle(0, UpstreamEnded(request_id)) if isinstance(a, Respond)]
        told.append(dict(answer.headers).get(b"x-model-fallback"))
    assert models == [body, {**body, "model": "small"}]
    assert told == [None, b"small"]
