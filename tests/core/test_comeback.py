"""What a refused client is told, by the whole gateway: when, with which envelope, and of which limits."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from agentload.gateway.core import GatewayCore
from agentload.gateway.protocol import (
    Action,
    Arrived,
    Drain,
    ForwardHeaders,
    Respond,
    UpstreamData,
    UpstreamEnded,
    UpstreamHeaders,
)
from agentload.gateway.settings import GatewaySettings, UpstreamRetries
from agentload.model import NS
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.wall_clock import WallClock

JSON = ((b"content-type", b"application/json"),)
ANSWER = b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}'
SSE = ((b"content-type", b"text/event-stream"),)
EVENT = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'


def gateway(slots: int = 1, max_queue: int = 1, **config: Any) -> GatewayCore:
    classes = {"standard": {"max_queue": max_queue}}
    pools = {"shared": {"slots": slots, "tenant_slots": slots, "classes": classes}}
    document = {"pools": pools, "retry": {"jitter": "none"}, **config}
    settings = GatewaySettings(upstream_retries=UpstreamRetries(budget=0))
    return GatewayCore(GatewayConfig.model_validate(document), settings, Random(1))


def arrival(request_id: int, *, stream: bool = False, tenant: str = "t", **headers: str) -> Arrived:
    body = {
        "model": "m",
        "max_tokens": 8,
        "stream": stream,
        "messages": [{"role": "user", "content": "hello"}],
    }
    fields = {"x-tenant": tenant} | {name.replace("_", "-"): value for name, value in headers.items()}
    wire = tuple((name.encode(), value.encode()) for name, value in fields.items())
    return Arrived(request_id, wire, json.dumps(body).encode())


def answer(actions: list[Action], request_id: int) -> tuple[int, dict[bytes, bytes], dict[str, Any]]:
    """Status, fields and body of the one answer to a request."""
    (told,) = [one for one in actions if isinstance(one, Respond) and one.request_id == request_id]
    assert dict(told.headers)[b"content-length"] == b"%d" % len(told.body)
    return told.status, dict(told.headers), json.loads(told.body)


def test_a_refusal_carries_the_envelope_that_its_retry_must_have() -> None:
    core = gateway()
    for request_id in (1, 2):
        core.handle(0, arrival(request_id))
    sent = {
        "idempotency_key": "doc_884:extract:v2",
        "x_workflow": "contract_review",
        "x_deadline_ms": "60000",
        "x_max_attempts": "4",
    }
    status, headers, body = answer(core.handle(0, arrival(3, **sent)), 3)
    assert status == 429
    seconds = body["retry_after_seconds"]
    assert headers[b"retry-after"] == b"%d" % seconds
    assert body["error"]["code"] == headers[b"x-admission-reason"].decode()
    assert body["retry"] == {
        "tenant_id": "t",
        "service_class": "standard",
        "workflow": "contract_review",
        "attempt": 1,
        "max_attempts": 4,
        "not_before": f"2026-01-01T00:00:0{seconds}.000Z",
        "deadline": "2026-01-01T00:01:00.000Z",
        "estimated_work_units": 0.01,
        "idempotency_key": "doc_884:extract:v2",
    }


def test_the_envelope_sent_back_is_read_and_believed_as_far_as_it_is_true() -> None:
    core = gateway()
    for request_id in (1, 2):
        core.handle(0, arrival(request_id))
    _, _, first = answer(core.handle(0, arrival(3, idempotency_key="k")), 3)
    later = {"x_not_before": first["retry"]["not_before"], "x_attempt": "1"}
    status, headers, early = answer(core.handle(NS // 2, arrival(4, idempotency_key="k", **later)), 4)
    assert (status, headers[b"x-admission-reason"]) == (429, b"too_early")
    assert early["retry"]["not_before"] >= first["retry"]["not_before"]
    told_ns = WallClock().read(first["retry"]["not_before"])
    _, _, second = answer(core.handle(told_ns, arrival(5, idempotency_key="k", x_attempt="0")), 5)
    assert second["error"]["code"] != "too_early"
    assert second["retry"]["attempt"] == 2, "the second attempt, whatever it says of itself"


def test_what_is_refused_for_good_is_told_nothing_of_coming_back() -> None:
    core = gateway(budgets={"run": {"calls": 1}})
    core.handle(0, arrival(1, x_run_id="r"))
    finish(core, 0, 1)
    status, headers, body = answer(core.handle(0, arrival(2, x_run_id="r", idempotency_key="k")), 2)
    assert (status, headers[b"x-should-retry"]) == (402, b"false")
    assert b"retry-after" not in headers
    assert set(body) == {"error"}


def test_a_changed_class_is_a_conflict_that_sdks_do_not_retry() -> None:
    pools = {"p": {"slots": 1, "classes": {"standard": {"max_queue": 0}, "batch": {"max_queue": 0}}}}
    core = gateway(pools=pools)
    core.handle(0, arrival(1))
    core.handle(0, arrival(2, idempotency_key="k"))
    status, headers, _ = answer(core.handle(0, arrival(3, idempotency_key="k", x_service_class="batch")), 3)
    assert (status, headers[b"x-should-retry"]) == (409, b"false")


@pytest.mark.parametrize("wrong", ["tomorrow", "2026-01-01T00:00:10", "12"])
def test_an_instant_that_is_none_is_a_400(wrong: str) -> None:
    status, _, body = answer(gateway().handle(0, arrival(1, x_not_before=wrong)), 1)
    assert status == 400
    assert "X-Not-Before" in body["error"]["message"]


@pytest.mark.parametrize("told_s", [None, 7])
def test_those_that_the_provider_refused_together_are_told_different_instants(told_s: int | None) -> None:
    core = gateway(slots=20)
    for request_id in range(20):
        core.handle(0, arrival(request_id))
    promises = []
    for request_id in range(20):
        fields = JSON if told_s is None else (*JSON, (b"retry-after", b"%d" % told_s))
        core.handle(NS, UpstreamHeaders(request_id, 503, fields))
        core.handle(NS, UpstreamData(request_id, b"{}"))
        status, headers, body = answer(core.handle(NS, UpstreamEnded(request_id)), request_id)
        assert status == 503
        assert body["retry"]["attempt"] == 1
        promises.append(int(headers[b"retry-after"]))
    # 20 slots and a second a call, as long as nothing else is known: one place every 50 ms. After a pause
    # that the provider named the calls ramp up from 1 to 20: 3.4 s later than if all went at once.
    first = told_s or 2
    assert promises == sorted(promises)
    assert first + 1 in promises
    assert set(promises) <= set(range(first, first + (3 if told_s is None else 6)))


def test_a_call_that_failed_counts_as_an_attempt_and_its_promise_holds() -> None:
    core = gateway(slots=2)
    core.handle(0, arrival(1, idempotency_key="k"))
    core.handle(0, UpstreamHeaders(1, 503, (*JSON, (b"retry-after", b"5"))))
    core.handle(0, UpstreamData(1, b"{}"))
    _, headers, _ = answer(core.handle(0, UpstreamEnded(1)), 1)
    assert int(headers[b"retry-after"]) >= 5
    _, headers, body = answer(core.handle(NS, arrival(2, idempotency_key="k")), 2)
    assert headers[b"x-admission-reason"] == b"too_early"
    assert (int(headers[b"retry-after"]) >= 4, body["retry"]["attempt"]) == (True, 2)


LIMITED = {"tenants": {"t": {"requests_per_minute": 60, "tokens_per_minute": 6000, "burst_s": 5}}}


@pytest.mark.parametrize("stream", [False, True])
def test_a_tenant_with_limits_is_told_of_them_with_every_answer(stream: bool) -> None:
    core = gateway(slots=4, **LIMITED)
    core.handle(0, arrival(1, stream=stream))
    if stream:
        core.handle(0, UpstreamHeaders(1, 200, SSE))
        (begun,) = [one for one in core.handle(0, UpstreamData(1, EVENT)) if isinstance(one, ForwardHeaders)]
        headers = dict(begun.headers)
    else:
        _, headers, _ = answer(finish(core, 0, 1), 1)
    assert headers[b"ratelimit-policy"] == b'"requests";q=60;w=60, "tokens";q=6000;w=60'
    assert headers[b"ratelimit"] == b'"requests";r=4;t=1, "tokens";r=492;t=1'
    core.handle(0, arrival(2, tenant="other"))
    assert b"ratelimit" not in answer(finish(core, 0, 2), 2)[1], "nobody else has any"


def test_over_its_limit_a_tenant_is_told_when_the_next_may_come() -> None:
    core = gateway(slots=9, **LIMITED)
    for request_id in range(5):
        core.handle(0, arrival(request_id))
    status, headers, body = answer(core.handle(0, arrival(9)), 9)
    assert (status, body["error"]["code"], headers[b"retry-after"]) == (429, "tenant_over_limit", b"1")
    assert b'"requests";r=0;t=5' in headers[b"ratelimit"]


def test_while_it_shuts_down_there_are_no_places_to_give_away() -> None:
    core = gateway()
    core.handle(0, Drain())
    status, headers, body = answer(core.handle(0, arrival(1)), 1)
    assert (status, headers[b"retry-after"], body["retry"]["attempt"]) == (503, b"2", 1)


def finish(core: GatewayCore, now_ns: int, request_id: int) -> list[Action]:
    """The provider answers a plain call."""
    core.handle(now_ns, UpstreamHeaders(request_id, 200, JSON))
    core.handle(now_ns, UpstreamData(request_id, ANSWER))
    return core.handle(now_ns, UpstreamEnded(request_id))
