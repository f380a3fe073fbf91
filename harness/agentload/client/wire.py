"""What a client makes of the answer to one call, as its bytes come. Pure. (What it sends: `request_writer`.)

The reader decides how an attempt ended from status × completeness, by one table (`outcome`). A 200 is only an
answer when it is whole: a stream without its terminal event is truncated, an error inside it is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, cast

import msgspec

from agentload.client.http_fields import (
    milliseconds,
    parse_retry_after,
    retry_after_hint,
    server_queue_ns,
    wait_cause,
)
from agentload.client.logical import AttemptResult
from agentload.client.request_writer import (
    SEQ_BITS,
    RequestWriter,
    chat_body,
    idempotency_key,
    marker_of,
)
from agentload.client.sse import Event, EventParser
from agentload.model import Outcome
from fake_provider.marker import decode_ack

__all__ = [
    "Ending",
    "ReplyReader",
    "RequestWriter",
    "chat_body",
    "idempotency_key",
    "marker_of",
    "outcome",
    "parse_retry_after",
]

FOREIGN_ANSWER = "foreign-answer"
"""The reason of a failure in which the answer carried another request's acknowledgement."""
_MAX_BODY = 8 * 2**20
_MAX_REASON = 120
_MAX_TOKENS = 10**9
_FIELDS_READ = frozenset(
    {
        b"content-type",
        b"retry-after",
        b"retry-after-ms",
        b"server-timing",
        b"x-admission-reason",
        b"x-should-retry",
    }
)
"""Of every answer's fields, those that mean something here."""
_SHOULD_RETRY = {"true": True, "false": False}
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises; the last of them for JSON that is nested too deeply."""


class Ending(StrEnum):
    """How the transport left it."""

    COMPLETE = "complete"
    """The HTTP message ended as its framing said."""
    CUT = "cut"
    """No connection, or it ended or broke before that."""
    LEFT = "left"
    """The client left: its own timeout, or on purpose."""
    OPEN = "open"
    """The run ended first."""
    UNSENT = "unsent"
    """The generator never sent it."""


_BY_ENDING = {Ending.LEFT: Outcome.ABANDONED, Ending.OPEN: Outcome.UNFINISHED, Ending.UNSENT: Outcome.UNSENT}
_BY_STATUS = {
    402: Outcome.REJECTED,
    413: Outcome.REJECTED,
    429: Outcome.REJECTED,
    503: Outcome.REJECTED,
    504: Outcome.EXPIRED,
}


def outcome(ending: Ending, status: int, *, whole: bool, spoilt: bool) -> Outcome:
    """The table: a whole answer counts even if the connection lingered; else who ended it, else the status.

    `spoilt`: an error inside a 200, a body that is no answer, or somebody else's answer.
    """
    if ending in _BY_ENDING and not whole:
        return _BY_ENDING[ending]
    if status != 200:
        return _BY_STATUS.get(status, Outcome.FAILED)
    if spoilt:
        return Outcome.FAILED
    return Outcome.ANSWERED if whole else Outcome.TRUNCATED


class _Delta(msgspec.Struct, gc=False):
    content: Any = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: Any = None


class _Usage(msgspec.Struct, frozen=True, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def is_believable(self) -> bool:
        """Counts below nothing, or beyond any model, are none."""
        return all(0 <= (count or 0) <= _MAX_TOKENS for count in (self.prompt_tokens, self.completion_tokens))


class _Reply(msgspec.Struct, gc=False):
    """What is read of a completion, a chunk of one, or an error."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    detail: Any = None


_NO_USAGE = _Usage()
_decode = msgspec.json.Decoder(_Reply).decode


class ReplyReader:
    """Reads one answer: `head` once, `feed` as bytes come, `result` at the end, whatever the end was."""

    __slots__ = (
        "_answered_epoch_s",
        "_body",
        "_error",
        "_events",
        "_expected_seq",
        "_fields",
        "_finished",
        "_redact",
        "_stream",
        "_text",
        "_usage",
        "is_whole",
        "status",
        "token_arrivals_ns",
    )

    def __init__(self, stream: bool, expected_seq: int, redact: Callable[[str], str] | None = None) -> None:
        """`redact` blanks secrets in what is copied from the answer (see `targets.Target.redactor`)."""
        self._redact = redact
        self.status = 0
        """The HTTP status; 0 until it has come."""
        self.is_whole = False
        """True once a stream's terminal event has come: nothing more needs to be waited for."""
        self.token_arrivals_ns: list[int] = []
        """When text of a stream came. What came in one piece came at one instant, however many tokens it was:
        between them there is nothing to be measured but how the network cut the stream."""
        self._stream = stream
        self._expected_seq = expected_seq % 2**SEQ_BITS
        self._fields: dict[str, str] = {}
        self._answered_epoch_s = 0.0
        self._events: EventParser | None = None
        self._body = bytearray()
        self._text: list[str] = []
        self._usage = _NO_USAGE
        self._finished = False
        self._error: str | None = None

    def head(self, status: int, headers: Iterable[tuple[bytes, bytes]], now_epoch_s: float) -> None:
        """The status line and fields (not of 1xx answers). `now_epoch_s` is for dates in Retry-After."""
        self.status = status
        self._answered_epoch_s = now_epoch_s
        for name, value in headers:
            if (lower := name.lower()) in _FIELDS_READ:
                key, text = lower.decode("ascii"), value.decode("latin-1").strip(" \t")
                self._fields[key] = f"{self._fields[key]}, {text}" if key in self._fields else text
        kind = self._fields.get("content-type", "text/event-stream" if self._stream else "")
        if status == 200 and kind.lower().startswith("text/event-stream"):
            self._events = EventParser()

    def feed(self, data: bytes, now_ns: int) -> bool:
        """Bytes of the body, without transfer coding, cut anywhere. Returns `is_whole`."""
        if self._events is not None:
            for event in self._events.feed(data):
                self._on_event(event, now_ns)
            if self._events.overflowed:
                self._fail("event-too-large")
        elif len(self._body) + len(data) <= _MAX_BODY:
            self._body += data
        else:
            self._fail("answer-too-large")
        return self.is_whole

    @property
    def has_begun(self) -> bool:
        """Something of the answer is there: of a stream its first token, of a plain one any byte."""
        return bool(self.token_arrivals_ns or self._body)

    @property
    def words_heard(self) -> int:
        """Tokens of a stream so far."""
        return len("".join(self._text).split())

    def result(
        self,
        ending: Ending,
        sent_ns: int,
        *,
        transport_error: str | None = None,
        worker: int = 0,
        connection_reused: bool = False,
    ) -> AttemptResult:
        """What became of it. Call once; `transport_error` names what broke, where something did."""
        whole = self._conclude(ending)
        own = self._own_answer()
        if own is False:
            self._fail(FOREIGN_ANSWER)
        fields, arrivals_ns = self._fields, self.token_arrivals_ns
        raw, raw_ms = fields.get("retry-after"), fields.get("retry-after-ms")
        timing, counted = fields.get("server-timing"), self._usage.completion_tokens
        return AttemptResult(
            outcome=outcome(ending, self.status, whole=whole, spoilt=self._error is not None),
            sent_ns=sent_ns,
            status=self.status,
            first_token_ns=arrivals_ns[0] if arrivals_ns else None,
            last_token_ns=arrivals_ns[-1] if arrivals_ns else None,
            retry_after=None if raw is None else self._copied(raw),
            retry_after_s=None if raw is None else parse_retry_after(raw, self._answered_epoch_s),
            retry_after_hint_s=None if raw is None else retry_after_hint(raw, self._answered_epoch_s),
            retry_after_ms=None if raw_ms is None else milliseconds(raw_ms),
            should_retry=_SHOULD_RETRY.get(fields.get("x-should-retry", "")),
            input_tokens=self._usage.prompt_tokens,
            output_tokens=self.words_heard if counted is None else counted,
            server_queue_ns=None if timing is None else server_queue_ns(timing),
            wait_cause=None if timing is None else wait_cause(timing),
            reason=self._reason(transport_error),
            own_answer=own,
            worker=worker,
            connection_reused=connection_reused,
        )

    # ----------------------------------------------------------------------- streams

    def _on_event(self, event: Event, now_ns: int) -> None:
        if event.data == b"[DONE]":
            self.is_whole = True
            return
        reply = self._parsed(event.data)
        if event.kind == b"error" and (reply is None or reply.error is None):
            self._fail("error-event")
        if reply is not None and self._take(reply):
            self._text_came(now_ns)

    def _text_came(self, now_ns: int) -> None:
        if not self.token_arrivals_ns or self.token_arrivals_ns[-1] != now_ns:
            self.token_arrivals_ns.append(now_ns)

    def _parsed(self, data: bytes | bytearray) -> _Reply | None:
        try:
            return _decode(data)
        except _NOT_JSON:
            self._fail("malformed-answer")
            return None

    def _take(self, reply: _Reply) -> bool:
        """Note what a chunk or a whole completion says; True when there was text in it."""
        if reply.error is not None:
            self._fail(_error_name(reply.error))
        if reply.usage is not None and reply.usage.is_believable:
            self._usage = reply.usage
        said = False
        for choice in reply.choices or ():
            part = choice.delta or choice.message
            if part is not None and isinstance(part.content, str) and part.content:
                self._text.append(part.content)
                said = True
            self._finished = self._finished or choice.finish_reason is not None
        return said

    # ----------------------------------------------------------------------- the end

    def _conclude(self, ending: Ending) -> bool:
        """Read a plain body now that all of it is there; True when the answer (or refusal) is whole."""
        ended = ending is Ending.COMPLETE
        if self._events is not None:
            return self.is_whole or (self._finished and ended)
        if ended and self.status == 200 and (reply := self._parsed(self._body)) is not None:
            self._take(reply)
            if not reply.choices:
                self._fail("answer-without-choices")
        return ended

    def _own_answer(self) -> bool | None:
        seq = decode_ack("".join(self._text)) if self._text else None
        return None if seq is None else seq == self._expected_seq

    def _reason(self, transport_error: str | None) -> str | None:
        """The error in a 200, else the gateway's own reason, else what the body or the transport says.

        The reason in the headers of a stream is why it was begun, not how it ended.
        """
        named = self._error if self.status == 200 else None
        named = named or self._fields.get("x-admission-reason") or self._error
        if not named and self._body and self.status != 200:
            named = self._error_in_body()
        named = named or transport_error
        return self._copied(named)[:_MAX_REASON] if named else None

    def _copied(self, text: str) -> str:
        """Text of the answer as it may be written down: whole, so that no half of a secret is left over."""
        return text if self._redact is None else self._redact(text)

    def _error_in_body(self) -> str | None:
        try:
            reply = _decode(self._body)
        except _NOT_JSON:
            return None
        error = reply.error if reply.error is not None else reply.detail
        return None if error is None else _error_name(error)

    def _fail(self, reason: str) -> None:
        """The first reason stays."""
        self._error = self._error or reason


def _error_name(error: object) -> str:
    """The code of an error object, else its type, else its message: the shortest that says what it was."""
    if isinstance(error, dict):
        fields = cast("dict[str, Any]", error)
        for key in ("code", "type", "message"):
            value = fields.get(key)
            if isinstance(value, str | int | float) and value != "":
                return str(value)
    return str(error) if isinstance(error, str) and error else "error"
