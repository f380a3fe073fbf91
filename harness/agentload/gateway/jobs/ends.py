"""What the end of a chat request or a tool call means for the job whose step it was. PURE."""

from __future__ import annotations

import msgspec

from agentload.gateway.answers import retry_after_ns
from agentload.gateway.headers import first
from agentload.gateway.jobs.model import NS, StepEnd, Verdict
from agentload.gateway.jobs.protocol import ToolAnswered
from agentload.gateway.json_bounds import UNREADABLE
from agentload.gateway.protocol import Record, Respond
from agentload.model import Outcome

_TOO_LATE = frozenset({"deadline_exceeded", "deadline_unmeetable", "expired"})
_TRY_AGAIN = frozenset({408, 409, 425, 429})
"""Statuses below 500 that a tool may be called again after (409: an earlier call of ours is under way)."""


class _Error(msgspec.Struct):
    message: str = ""


class _ErrorBody(msgspec.Struct):
    error: _Error


_ERROR = msgspec.json.Decoder(_ErrorBody)


def of_chat(record: Record, respond: Respond | None, max_output_bytes: int) -> StepEnd:
    """A chat step's request has ended at the gateway's core. `respond`: what a client would be told."""
    if record.outcome is Outcome.ANSWERED and respond is not None:
        return StepEnd(
            verdict=Verdict.DONE,
            status=respond.status,
            output=kept(respond.body, max_output_bytes),
            input_tokens=record.input_tokens,
            output_tokens=record.output_tokens,
        )
    wait_ns = retry_after_ns(respond.headers) if respond is not None else None
    return StepEnd(
        verdict=_verdict(record, respond),
        status=record.status,
        input_tokens=record.input_tokens,
        output_tokens=record.output_tokens,
        reason=record.reason,
        message=_message(respond),
        retry_after_s=None if wait_ns is None else wait_ns / NS,
    )


def _verdict(record: Record, respond: Respond | None) -> Verdict:
    if record.reason == "shutting_down":
        return Verdict.RELEASED
    if record.reason in _TOO_LATE:
        return Verdict.EXPIRED
    if not record.dispatched:
        # max_wait: the class lets no request wait longer, but a job can be parked.
        parked = record.status in (429, 503) or record.reason == "max_wait"
        return Verdict.PARKED if parked else Verdict.REFUSED
    told_not_to = respond is not None and first(respond.headers, b"x-should-retry") == "false"
    return Verdict.REFUSED if told_not_to or record.status < 500 else Verdict.RETRY


def _message(respond: Respond | None) -> str:
    if respond is None:
        return ""
    try:
        return _ERROR.decode(respond.body).error.message[:500]
    except UNREADABLE:
        return ""


def of_tool(answer: ToolAnswered, max_output_bytes: int) -> StepEnd:
    """A tool has answered."""
    output = kept(answer.body, max_output_bytes)
    if 200 <= answer.status < 300:
        return StepEnd(verdict=Verdict.DONE, status=answer.status, output=output)
    again = answer.status >= 500 or answer.status in _TRY_AGAIN
    wait_ns = retry_after_ns(answer.headers)
    return StepEnd(
        verdict=Verdict.RETRY if again else Verdict.REFUSED,
        status=answer.status,
        reason="tool_failed",
        message=f"the tool answered {answer.status}",
        retry_after_s=None if wait_ns is None else wait_ns / NS,
    )


def kept(body: bytes, max_bytes: int) -> bytes:
    """An output as JSON that can be kept: as it came; as a string where it is no JSON; a note if too long."""
    if len(body) > max_bytes:
        return msgspec.json.encode({"omitted": f"{len(body)} bytes, more than {max_bytes}"})
    try:
        msgspec.json.decode(body)
    except UNREADABLE:
        return msgspec.json.encode(body.decode("utf-8", "replace"))
    return body
