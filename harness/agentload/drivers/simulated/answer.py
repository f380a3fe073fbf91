"""What a client makes of an answer: `wire.ReplyReader` for frames instead of text.

Outcomes come from the same table, headers are read by the same functions; `tests/conformance` holds the two
readers against each other over the real gateway.
"""

from __future__ import annotations

from agentload.client.http_fields import parse_retry_after, retry_after_hint, server_queue_ns, wait_cause
from agentload.client.logical import AttemptResult
from agentload.client.wire import FOREIGN_ANSWER, Ending, outcome
from agentload.drivers.simulated.messages import Frame
from agentload.gateway.headers import Headers
from agentload.model import NS
from agentload.scheduler.wall_clock import EPOCH_NS
from fake_provider.marker import ACK_TOKENS

EPOCH_S = EPOCH_NS // NS
"""Unix time at virtual time zero, for dates in Retry-After."""
_NO_FIELDS: dict[bytes, bytes] = {}
_QUEUE = b"queue;dur="
_SEQ_MASK = 2**24 - 1
_SHOULD_RETRY = {b"true": True, b"false": False}


class AnswerReader:
    """Reads one answer: `head` once, `frame` as they come, `result` at the end, whatever the end was."""

    __slots__ = (
        "_error",
        "_expected_seq",
        "_fields",
        "_first_token_ns",
        "_input_tokens",
        "_last_token_ns",
        "_output_tokens",
        "_seq",
        "_stream",
        "_tokens",
        "is_whole",
        "status",
    )

    def __init__(self, stream: bool, expected_seq: int) -> None:
        self.status = 0
        """The HTTP status; 0 until it has come."""
        self.is_whole = False
        """True once a stream's terminal event has come."""
        self._stream = stream
        self._expected_seq = expected_seq & _SEQ_MASK
        self._fields = _NO_FIELDS
        self._error: str | None = None
        self._seq: int | None = None
        self._tokens = 0
        self._input_tokens: int | None = None
        self._output_tokens: int | None = None
        self._first_token_ns: int | None = None
        self._last_token_ns: int | None = None

    def head(self, status: int, headers: Headers) -> None:
        """The status and the header fields."""
        self.status = status
        self._fields = fields = dict(headers)
        kind = fields.get(b"content-type", b"text/event-stream" if self._stream else b"")
        self._stream = status == 200 and kind.startswith(b"text/event-stream")

    def body(self, data: bytes, now_ns: int) -> None:
        """A piece of a 200's body: a frame."""
        frame = Frame.decode(data)
        if frame is None:
            return self.spoil("malformed-answer")
        if frame.tokens:
            self._seq = frame.seq if self._seq in (None, frame.seq) else -1
            self._tokens += frame.tokens
            if self._stream:
                self._first_token_ns = now_ns if self._first_token_ns is None else self._first_token_ns
                self._last_token_ns = now_ns
        if frame.output_tokens >= 0:
            self._input_tokens, self._output_tokens = frame.input_tokens, frame.output_tokens
        self.is_whole = self.is_whole or (frame.done and self._stream)
        return None

    @property
    def tokens(self) -> int:
        """Tokens that have come so far."""
        return self._tokens

    def spoil(self, error: str) -> None:
        """There is an error in it. The first one stays."""
        self._error = self._error or error

    def result(
        self, ending: Ending, now_ns: int, sent_ns: int, transport_error: str | None = None
    ) -> AttemptResult:
        """What became of it."""
        own = self._own_answer()
        if own is False:
            self.spoil(FOREIGN_ANSWER)
        whole = self.is_whole if self._stream else ending is Ending.COMPLETE
        fields = self._fields
        raw, timing = fields.get(b"retry-after"), fields.get(b"server-timing")
        promised = None if raw is None else raw.decode("latin-1").strip(" \t")
        exact_s, hint_s = (None, None) if promised is None else _promise(promised, now_ns)
        return AttemptResult(
            outcome=outcome(ending, self.status, whole=whole, spoilt=self._error is not None),
            sent_ns=sent_ns,
            status=self.status,
            first_token_ns=self._first_token_ns,
            last_token_ns=self._last_token_ns,
            retry_after=promised,
            retry_after_s=exact_s,
            retry_after_hint_s=hint_s,
            retry_after_ms=_milliseconds(fields.get(b"retry-after-ms")),
            should_retry=_SHOULD_RETRY.get(fields.get(b"x-should-retry", b"")),
            input_tokens=self._input_tokens,
            output_tokens=self._tokens if self._output_tokens is None else self._output_tokens,
            server_queue_ns=None if timing is None else _queue_ns(timing),
            wait_cause=wait_cause(timing.decode("latin-1")) if timing and b"desc" in timing else None,
            reason=self._reason(transport_error),
            own_answer=own,
        )

    def _own_answer(self) -> bool | None:
        """None when too little has come for the acknowledgement to be read."""
        if self._seq is None or self._tokens < ACK_TOKENS:
            return None
        return self._seq == self._expected_seq

    def _reason(self, transport_error: str | None) -> str | None:
        if self.status == 200 and self._error:
            return self._error
        named = self._fields.get(b"x-admission-reason")
        return named.decode("latin-1") if named else self._error or transport_error


def _promise(raw: str, now_ns: int) -> tuple[float | None, float | None]:
    """Retry-After in seconds as RFC 9110 has it, and as a lenient client reads it."""
    if raw.isdecimal() and raw.isascii() and len(raw) < 10:
        seconds = float(raw)
        return seconds, seconds
    now_epoch_s = EPOCH_S + now_ns / 1e9
    return parse_retry_after(raw, now_epoch_s), retry_after_hint(raw, now_epoch_s)


def _queue_ns(timing: bytes) -> int | None:
    """`queue;dur=12.345, …`, as our gateway writes it; anything else goes to the general reader."""
    if timing.startswith(_QUEUE):
        milliseconds = timing[len(_QUEUE) :].partition(b",")[0]
        if milliseconds.replace(b".", b"", 1).isdigit():
            return round(float(milliseconds) * NS / 1000)
    return server_queue_ns(timing.decode("latin-1"))


def _milliseconds(raw: bytes | None) -> float | None:
    try:
        return None if raw is None else float(raw)
    except ValueError:
        return None
