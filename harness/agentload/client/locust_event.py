"""What Locust says of a request that a user's own code sent, as a record. Pure.

Nothing of it was planned: it was due when it was sent, and every attempt is a request of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from agentload.client.http_fields import parse_retry_after, server_queue_ns, wait_cause
from agentload.client.locust_reading import Streamed
from agentload.client.logical import LEFT
from agentload.client.wire import FOREIGN_ANSWER, Ending, outcome
from agentload.model import Outcome, Profile, RequestRecord, Tenant
from fake_provider.marker import decode_ack

TIMEOUT = "timeout"
_MAX_REASON = 120
_MAX_TOKENS = 10**9
_MOST_READ = 2**20
"""Bytes of an answer that are looked at."""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """How one request ended, as the code that sent it saw it."""

    sent_ns: int
    ended_ns: int
    status: int = 0
    """0: no answer came, or none that Locust tells of."""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    stream: bool = False
    """The user's code has read the answer while it came."""
    streamed: Streamed | None = None
    """What it understood of a stream of events."""
    failure: str | None = None
    """What made it a failure for Locust (or for the user's code); None: nothing did."""
    timed_out: bool = False
    ending: Ending = Ending.COMPLETE
    """LEFT: its user was stopped meanwhile, or read no further. CUT: it broke. OPEN: the run ended first."""
    answered_epoch_s: float = 0.0
    """For dates in Retry-After."""


class _Usage(msgspec.Struct):
    prompt_tokens: Any = None
    completion_tokens: Any = None
    input_tokens: Any = None
    output_tokens: Any = None


class _Answer(msgspec.Struct):
    usage: Any = None
    error: Any = None
    detail: Any = None


_decode = msgspec.json.Decoder(_Answer).decode
_FIELDS = ("retry-after", "server-timing", "x-admission-reason")


def record_of(
    tenant: Tenant,
    phase: str,
    seq: int,
    heard: Heard,
    *,
    marked: bool = False,
    planned_output_tokens: int = 0,
    worker: int = 0,
    redact: Callable[[str], str] | None = None,
) -> RequestRecord:
    """The record of such a request; `marked`: it carried the run's marker, so that the answer names it."""
    fields, answer = _fields(heard.headers), _answer(heard.body)
    streamed = heard.streamed
    own = (_own_answer(heard.body, seq) if streamed is None else streamed.own_answer) if marked else None
    usage = _usage(answer)
    raw, timing = fields.get("retry-after"), fields.get("server-timing")
    copied = redact or str
    reason = _reason(heard, fields, answer, own)
    return RequestRecord(
        seq=seq,
        attempt=0,
        tenant=tenant.name,
        service_class=tenant.service_class,
        phase=phase,
        due_ns=heard.sent_ns,
        sent_ns=heard.sent_ns,
        ended_ns=heard.ended_ns,
        outcome=_outcome(heard, answer, own),
        final=True,
        first_due_ns=heard.sent_ns,
        first_token_ns=None if streamed is None else streamed.first_token_ns,
        last_token_ns=None if streamed is None else streamed.last_token_ns,
        stream=heard.stream,
        status=heard.status,
        retry_after=None if raw is None else copied(raw),
        retry_after_s=None if raw is None else parse_retry_after(raw, heard.answered_epoch_s),
        input_tokens=_first(usage.prompt_tokens, usage.input_tokens, streamed and streamed.input_tokens),
        output_tokens=_first(
            usage.completion_tokens, usage.output_tokens, streamed and streamed.output_tokens
        ),
        planned_output_tokens=planned_output_tokens,
        server_queue_ns=None if timing is None else server_queue_ns(timing),
        wait_cause=None if timing is None else wait_cause(timing),
        reason=None if reason is None else copied(reason)[:_MAX_REASON],
        own_answer=own,
        worker=worker,
    )


def phase_at(profile: Profile, at_ns: int) -> str:
    """The phase that holds this instant; the last one during the drain."""
    for phase in profile.phases:
        if at_ns < profile.phase_window_ns(phase.name)[1]:
            return phase.name
    return profile.phases[-1].name


def _outcome(heard: Heard, answer: _Answer, own: bool | None) -> Outcome:
    """A refusal stays one whatever the user's code makes of it; else that code's word counts."""
    if heard.ending is not Ending.COMPLETE:
        return outcome(heard.ending, heard.status, whole=False, spoilt=False)
    if heard.status >= 400:
        by_status = outcome(heard.ending, heard.status, whole=True, spoilt=False)
        if by_status is not Outcome.FAILED:
            return by_status
    if heard.timed_out:
        return Outcome.ABANDONED
    streamed = heard.streamed
    if streamed is not None and not streamed.whole and streamed.error is None:
        return Outcome.TRUNCATED
    error = answer.error if streamed is None else streamed.error
    spoilt = heard.failure is not None or own is False or (heard.status == 200 and error is not None)
    return Outcome.FAILED if spoilt else Outcome.ANSWERED


def _reason(heard: Heard, fields: dict[str, str], answer: _Answer, own: bool | None) -> str | None:
    if heard.ending is Ending.LEFT:
        return LEFT
    if heard.timed_out:
        return TIMEOUT
    if own is False:
        return FOREIGN_ANSWER
    if heard.streamed is not None and heard.streamed.error is not None:
        return heard.streamed.error
    if heard.status < 400 and heard.failure is not None:
        return heard.failure  # what the headers say is why it was let in
    error = answer.error if answer.error is not None else answer.detail if heard.status >= 400 else None
    return fields.get("x-admission-reason") or _error_name(error) or heard.failure


def _error_name(error: object) -> str | None:
    """The shortest that says what it was."""
    if isinstance(error, dict):
        named = cast("dict[str, Any]", error)
        found = (named.get(key) for key in ("code", "type", "message"))
        return next((str(value) for value in found if isinstance(value, str | int) and value != ""), "error")
    return error if isinstance(error, str) and error else None


def _fields(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        if (key := name.lower()) in _FIELDS:
            found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def _answer(body: bytes) -> _Answer:
    if body.lstrip()[:1] != b"{" or len(body) > _MOST_READ:
        return _Answer()
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Answer()


def _usage(answer: _Answer) -> _Usage:
    try:
        return msgspec.convert(answer.usage, _Usage)
    except msgspec.ValidationError:
        return _Usage()


def _first(*counts: Any) -> int:
    """The first believable count."""
    for count in counts:
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= _MAX_TOKENS:
            return count
    return 0


def _own_answer(body: bytes, seq: int) -> bool | None:
    said = decode_ack(body[:_MOST_READ].decode("utf-8", "replace"))
    return None if said is None else said == seq
