"""What Locust says of a request, as a record."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from agentload.client.locust_event import Heard, phase_at, record_of
from agentload.client.locust_reading import Streamed
from agentload.client.wire import Ending
from agentload.drivers.locust_heard import heard_of
from agentload.model import Outcome, RequestRecord, Spec, Tenant
from driver_scene import open_tenant, profile
from fake_provider.marker import Marker, ack

SEQ = 77
TENANT = Tenant(name="own", group="own", service_class="batch", client=Spec(kind="no-retry"))
CHAT = {
    "choices": [{"message": {"content": "hello"}}],
    "usage": {"prompt_tokens": 21, "completion_tokens": 8},
}


def recorded(body: object = None, **more: Any) -> RequestRecord:
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    heard = Heard(sent_ns=5, ended_ns=9, body=content, **{"status": 200, **more})
    return record_of(TENANT, "steady", SEQ, heard, marked=True, worker=1, redact=lambda text: text.upper())


def test_it_was_due_when_it_was_sent_and_is_a_request_of_its_own() -> None:
    found = recorded(CHAT)
    assert (found.tenant, found.service_class, found.phase, found.worker) == ("own", "batch", "steady", 1)
    assert found.due_ns == found.first_due_ns == found.sent_ns == 5
    assert (found.seq, found.attempt, found.final, found.ended_ns) == (SEQ, 0, True, 9)
    assert (found.outcome, found.input_tokens, found.output_tokens) == (Outcome.ANSWERED, 21, 8)
    other = recorded({"usage": {"input_tokens": 3, "output_tokens": 4}})
    assert (other.input_tokens, other.output_tokens) == (3, 4)


@pytest.mark.parametrize(
    ("heard", "outcome", "reason"),
    [
        ({"status": 429}, Outcome.REJECTED, None),
        ({"status": 503, "failure": "HTTPError: 503"}, Outcome.REJECTED, "HTTPERROR: 503"),
        ({"status": 504, "failure": "x"}, Outcome.EXPIRED, "X"),
        ({"status": 500, "failure": "HTTPError: 500"}, Outcome.FAILED, "HTTPERROR: 500"),
        ({"status": 404}, Outcome.ANSWERED, None),  # the user's code says that this is well
        ({"status": 200, "failure": "not what I asked for"}, Outcome.FAILED, "NOT WHAT I ASKED FOR"),
        ({"status": 0, "failure": "ConnectionError: refused"}, Outcome.FAILED, "CONNECTIONERROR: REFUSED"),
        ({"status": 0, "failure": "ReadTimeout: 5", "timed_out": True}, Outcome.ABANDONED, "TIMEOUT"),
        ({"status": 0, "ending": Ending.LEFT}, Outcome.ABANDONED, "LEFT"),
        ({"status": 0, "ending": Ending.OPEN}, Outcome.UNFINISHED, None),
    ],
)
def test_how_it_ended(heard: dict[str, Any], outcome: Outcome, reason: str | None) -> None:
    found = recorded(**heard)
    assert (found.outcome, found.reason) == (outcome, reason)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [ValueError("\ud800 bad"), Mute()])
def test_an_exception_of_any_text_has_a_record_that_can_be_written(error: Exception) -> None:
    """One that cannot would take all records of its worker with it."""
    heard = heard_of({"exception": error}, 5, 9)
    record = record_of(TENANT, "steady", SEQ, heard)
    assert record.outcome is Outcome.FAILED
    assert type(error).__name__.encode() in msgspec.json.encode(record)


def test_a_refusal_keeps_what_it_says() -> None:
    headers = (("Retry-After", "7"), ("x-admission-reason", "queue_full"), ("Server-Timing", "queue;dur=2.5"))
    found = recorded({"error": {"code": "other"}}, status=429, headers=headers, failure="429 Client Error")
    assert (found.retry_after, found.retry_after_s, found.reason) == ("7", 7.0, "QUEUE_FULL")
    assert found.server_queue_ns == 2_500_000
    assert recorded({"error": {"code": "other"}}, status=429).reason == "OTHER"
    assert recorded(status=429, headers=(("retry-after", "soon"),)).retry_after_s is None


def test_an_error_in_a_200_and_a_foreign_answer_are_failures() -> None:
    assert recorded({"error": {"message": "boom"}}).outcome is Outcome.FAILED
    for seq, own, outcome in ((SEQ, True, Outcome.ANSWERED), (SEQ + 1, False, Outcome.FAILED)):
        content = ack(Marker(run=1, tenant=1, seq=seq, attempt=0, output_tokens=8))
        found = recorded({"choices": [{"message": {"content": content}}]})
        assert (found.own_answer, found.outcome) == (own, outcome)


@pytest.mark.parametrize(
    "body", [b"", b"[1]", b"{", b"\xff{", b'{"usage": 3}', b'{"usage": {"prompt_tokens": -1}}']
)
def test_a_body_of_any_kind_is_no_trouble(body: bytes) -> None:
    found = recorded(body)
    assert (found.outcome, found.input_tokens) == (Outcome.ANSWERED, 0)


@pytest.mark.parametrize(
    ("said", "ending", "outcome", "reason"),
    [
        ({"whole": True}, Ending.COMPLETE, Outcome.ANSWERED, None),
        ({"whole": False}, Ending.COMPLETE, Outcome.TRUNCATED, None),
        ({"whole": False}, Ending.CUT, Outcome.TRUNCATED, None),
        ({"whole": False}, Ending.LEFT, Outcome.ABANDONED, "LEFT"),
        ({"whole": False}, Ending.OPEN, Outcome.UNFINISHED, None),
        ({"whole": False, "error": "overloaded"}, Ending.COMPLETE, Outcome.FAILED, "OVERLOADED"),
        ({"whole": True, "own_answer": False}, Ending.COMPLETE, Outcome.FAILED, "FOREIGN-ANSWER"),
    ],
)
def test_a_stream_is_what_its_events_say(
    said: dict[str, Any], ending: Ending, outcome: Outcome, reason: str | None
) -> None:
    streamed = Streamed(first_token_ns=6, last_token_ns=8, input_tokens=21, output_tokens=4, **said)
    found = recorded(stream=True, streamed=streamed, ending=ending)
    assert (found.outcome, found.reason) == (outcome, reason)
    assert (found.stream, found.first_token_ns, found.last_token_ns) == (True, 6, 8)
    assert (found.input_tokens, found.output_tokens) == (21, 4)


def test_what_the_users_code_says_goes_before_why_it_was_let_in() -> None:
    headers = (("x-admission-reason", "admitted"),)
    assert recorded(CHAT, headers=headers, failure="too short").reason == "TOO SHORT"
    assert recorded(CHAT, headers=headers).reason == "ADMITTED"


def test_the_phase_is_the_one_it_was_sent_in_and_the_drain_is_the_last_ones() -> None:
    chosen = profile(2.0, open_tenant("a", 1))
    assert [phase_at(chosen, at_ns) for at_ns in (-1, 0, 1_999_999_999, 5_000_000_000)] == ["steady"] * 4
