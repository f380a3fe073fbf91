"""What a client makes of the answer to one call, as its bytes come. Pure. (What it sends: `request_writer`.)

The reader decides how an attempt ended from status × completeness, by one table (`outcome`). A 200 is only an
answer when it is whole: a stream without its terminal event is truncated, an error inside it is a failure.
What an answer says is understood by its `flavour`; everything else is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

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
from agentload.client.sse import Event
from agentload.client.stream_framing import StreamParser, parser_of
from agentload.flavours import NOT_JSON, Flavour, Framing, Heard, error_name
from agentload.flavours.openai_chat import OpenaiChat
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
_FIELDS_READ = frozenset(
    {
        b"content-type",
        b"location",
        b"retry-after",
        b"retry-after-ms",
        b"server-timing",
        b"x-admission-reason",
        b"x-should-retry",
    }
)
"""Of every answer's fields, those that mean something here."""
_SHOULD_RETRY = {"true": True, "false": False}


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
    529: Outcome.REJECTED,
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


class _Refusal(msgspec.Struct, gc=False):
    """What is read of the body of a refusal, whoever wrote it."""

    error: Any = None
    detail: Any = None


_decode = msgspec.json.Decoder(_Refusal).decode
_CHAT = OpenaiChat()


class ReplyReader:
    """Reads one answer: `head` once, `feed` as bytes come, `result` at the end, whatever the end was."""

    __slots__ = (
        "_answered_epoch_s",
        "_events",
        "_expected_seq",
        "_fed_ns",
        "_fields",
        "_flavour",
        "_heard",
        "_redact",
        "_stream",
        "body",
        "status",
        "token_arrivals_ns",
    )

    def __init__(
        self,
        stream: bool,
        expected_seq: int,
        redact: Callable[[str], str] | None = None,
        flavour: Flavour = _CHAT,
    ) -> None:
        """`redact` blanks secrets in what is copied from the answer (see `targets.Target.redactor`)."""
        self._redact = redact
        self._flavour = flavour
        self._heard = Heard()
        self.status = 0
        """The HTTP status; 0 until it has come."""
        self.body = bytearray()
        """Of what is no stream."""
        self.token_arrivals_ns: list[int] = []
        """When text of a stream came. What came in one piece came at one instant, however many tokens it was:
        between them there is nothing to be measured but how the network cut the stream."""
        self._stream = stream
        self._expected_seq = expected_seq % 2**SEQ_BITS
        self._fields: dict[str, str] = {}
        self._answered_epoch_s = 0.0
        self._events: StreamParser | None = None
        self._fed_ns = 0

    def head(self, status: int, headers: Iterable[tuple[bytes, bytes]], now_epoch_s: float) -> None:
        """The status line and fields (not of 1xx answers). `now_epoch_s` is for dates in Retry-After."""
        self.status = status
        self._answered_epoch_s = now_epoch_s
        for name, value in headers:
            if (lower := name.lower()) in _FIELDS_READ:
                key, text = lower.decode("ascii"), value.decode("latin-1").strip(" \t")
                self._fields[key] = f"{self._fields[key]}, {text}" if key in self._fields else text
        if status == 200 and self._comes_as_stream():
            self._events = parser_of(self._flavour.framing)

    def feed(self, data: bytes, now_ns: int) -> bool:
        """Bytes of the body, without transfer coding, cut anywhere. Returns `is_whole`."""
        self._fed_ns = now_ns
        if self._events is not None:
            for event in self._events.feed(data):
                self._on_event(event, now_ns)
            if self._events.overflowed:
                self.fail("event-too-large")
        elif len(self.body) + len(data) <= _MAX_BODY:
            self.body += data
        else:
            self.fail("answer-too-large")
        return self._heard.whole

    @property
    def is_whole(self) -> bool:
        """True once a stream's terminal event has come: nothing more needs to be waited for."""
        return self._heard.whole

    @property
    def location(self) -> str | None:
        """Where the answer points to."""
        return self._fields.get("location")

    @property
    def promised_s(self) -> float | None:
        """Retry-After in seconds, where it is one."""
        raw = self._fields.get("retry-after")
        return None if raw is None else parse_retry_after(raw, self._answered_epoch_s)

    @property
    def has_begun(self) -> bool:
        """Something of the answer is there: of a stream its first token, of a plain one any byte."""
        return bool(self.token_arrivals_ns or self.body)

    def fail(self, reason: str) -> None:
        """It is no answer; the first reason stays."""
        self._heard.fail(reason)

    @property
    def words_heard(self) -> int:
        """Tokens of a stream so far."""
        return len("".join(self._heard.texts).split())

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
            self.fail(FOREIGN_ANSWER)
        fields, arrivals_ns, heard = self._fields, self.token_arrivals_ns, self._heard
        raw, raw_ms = fields.get("retry-after"), fields.get("retry-after-ms")
        timing, counted = fields.get("server-timing"), heard.output_tokens
        return AttemptResult(
            outcome=outcome(ending, self.status, whole=whole, spoilt=heard.error is not None),
            sent_ns=sent_ns,
            status=self.status,
            first_token_ns=arrivals_ns[0] if arrivals_ns else None,
            last_token_ns=arrivals_ns[-1] if arrivals_ns else None,
            retry_after=None if raw is None else self._copied(raw),
            retry_after_s=self.promised_s,
            retry_after_hint_s=None if raw is None else retry_after_hint(raw, self._answered_epoch_s),
            retry_after_ms=None if raw_ms is None else milliseconds(raw_ms),
            should_retry=_SHOULD_RETRY.get(fields.get("x-should-retry", "")),
            input_tokens=heard.input_tokens,
            output_tokens=self.words_heard if counted is None else counted,
            server_queue_ns=None if timing is None else server_queue_ns(timing),
            wait_cause=None if timing is None else wait_cause(timing),
            reason=self._reason(transport_error),
            own_answer=own,
            worker=worker,
            connection_reused=connection_reused,
            stream=None if self._flavour.streams and not self._flavour.only_streams else self._stream,
        )

    # ----------------------------------------------------------------------- streams

    def _comes_as_stream(self) -> bool:
        """Events say so by their media type; lines and text have none of their own, and come as asked."""
        if self._flavour.framing is not Framing.SSE:
            return self._stream
        kind = self._fields.get("content-type", "text/event-stream" if self._stream else "")
        return kind.lower().startswith("text/event-stream")

    def _on_event(self, event: Event, now_ns: int) -> None:
        try:
            said = self._flavour.read_event(event.kind, event.data, self._heard)
        except NOT_JSON:
            return self.fail("malformed-answer")
        came_ns = self.token_arrivals_ns
        if said and (not came_ns or came_ns[-1] != now_ns):
            came_ns.append(now_ns)
        return None

    def _on_last(self, event: Event) -> None:
        """What stood at the end of the message, unfinished: whole it is an event, half it is no answer."""
        try:
            said = self._flavour.read_event(event.kind, event.data, self._heard)
        except NOT_JSON:
            self._heard.finished = False
        else:
            if said and self.token_arrivals_ns[-1:] != [self._fed_ns]:
                self.token_arrivals_ns.append(self._fed_ns)

    # ----------------------------------------------------------------------- the end

    def _conclude(self, ending: Ending) -> bool:
        """Read a plain body now that all of it is there; True when the answer (or refusal) is whole."""
        ended = ending is Ending.COMPLETE
        if self._events is not None:
            for event in self._events.end() if ended else ():
                self._on_last(event)
            return self._heard.whole or (self._heard.finished and ended)
        if ended and self.status == 200:
            try:
                self._flavour.read_whole(self.body, self._heard)
            except NOT_JSON:
                self.fail("malformed-answer")
        return ended

    def _own_answer(self) -> bool | None:
        texts = self._heard.texts
        seq = decode_ack("".join(texts)) if texts else None
        return None if seq is None else seq == self._expected_seq

    def _reason(self, transport_error: str | None) -> str | None:
        """The error in a 200, else the gateway's own reason, else what the body or the transport says.

        The reason in the headers of a stream is why it was begun, not how it ended.
        """
        error = self._heard.error
        named = error if self.status == 200 else None
        named = named or self._fields.get("x-admission-reason") or error
        if not named and self.body and self.status != 200:
            named = self._error_in_body()
        named = named or transport_error
        return self._copied(named)[:_MAX_REASON] if named else None

    def _copied(self, text: str) -> str:
        """Text of the answer as it may be written down: whole, so that no half of a secret is left over."""
        return text if self._redact is None else self._redact(text)

    def _error_in_body(self) -> str | None:
        try:
            reply = _decode(self.body)
        except NOT_JSON:
            return None
        error = reply.error if reply.error is not None else reply.detail
        return None if error is None else error_name(error)
