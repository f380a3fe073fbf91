"""An answer while a user's own code reads it: when its parts came, how it ended, what it said. Pure.

Whether the message is over is the HTTP client's to say; whether the answer is, may be said by its last event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from agentload.client.wire import Ending, ReplyReader
from agentload.flavours import Flavour
from agentload.model import Outcome

MOST_KEPT = 2**20
"""Bytes of a plain answer that are kept to be looked at."""
_NOT_UNDERSTOOD = ("malformed-answer", "event-too-large", "answer-too-large", "answer-without-choices")
"""What a reader says of an API that is not the target's flavour: the user's code may know better."""


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer said that was read as a stream."""

    whole: bool
    """All of it has come."""
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    own_answer: bool | None = None
    error: str | None = None
    """An error in an event, or somebody else's answer."""


class Reading:
    """One answer, from its head to whatever ended it. The first end counts."""

    def __init__(
        self,
        status: int,
        headers: Collection[tuple[str, str]],
        now_ns: Callable[[], int],
        most_bytes: int,
        reader: ReplyReader | None = None,
    ) -> None:
        """`reader` makes sense of it; None: nobody needs to."""
        self.status, self.headers = status, tuple(headers)
        self.ending: Ending | None = None
        """None: it goes on."""
        self.failure: str | None = None
        """What broke it."""
        self.timed_out = self.gone = False
        """Its reader's patience is over; its reader has been ended, and will say nothing of it."""
        self.ended_ns = self.touched_ns = now_ns()
        """When it was last read from."""
        self.whose = ""
        """The tenant's name."""
        self.on_end: Callable[[], None] | None = None
        self.body = bytearray()
        self._now_ns, self._most_bytes = now_ns, most_bytes
        self._bytes = 0
        self._reader = reader

    def feed(self, data: bytes) -> bool:
        """Some of the body has been read. False: it is longer than allowed."""
        self.touched_ns = self._now_ns()
        self._bytes += len(data)
        if self._bytes > self._most_bytes:
            self.gone = True
            self.end(Ending.CUT, "answer-too-large")
            return False
        if self._reader is None or self.ending is not None:
            return True
        if self._bytes <= MOST_KEPT:
            self.body += data
        if self._reader.feed(data, self.touched_ns):
            self.end(Ending.COMPLETE)
        return True

    def end(self, ending: Ending, failure: str | None = None, at_ns: int | None = None) -> None:
        """It is over, now unless another instant is named."""
        if self.ending is not None:
            return
        self.ending, self.failure = ending, failure
        self.ended_ns = self._now_ns() if at_ns is None else at_ns
        if self.on_end is not None:
            self.on_end()

    def said(self) -> Streamed | None:
        """What it said, if it was a stream of events that make sense."""
        if self._reader is None:
            return None
        found = self._reader.result(self.ending or Ending.LEFT, 0)
        error = (
            found.reason if found.outcome is Outcome.FAILED and found.reason not in _NOT_UNDERSTOOD else None
        )
        if found.first_token_ns is None and error is None:
            return None
        return Streamed(
            whole=found.outcome is Outcome.ANSWERED,
            first_token_ns=found.first_token_ns,
            last_token_ns=found.last_token_ns,
            input_tokens=found.input_tokens,
            output_tokens=found.output_tokens,
            own_answer=found.own_answer,
            error=error,
        )


def reader_of(
    seq: int,
    flavour: Flavour,
    redact: Callable[[str], str],
    status: int,
    headers: Collection[tuple[str, str]],
    now_epoch_s: float,
) -> ReplyReader:
    """Of an answer that has this head, to a request that was marked with `seq`."""
    reader = ReplyReader(flavour.streams, seq, redact, flavour)
    fields = [
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in headers
    ]
    reader.head(status, fields, now_epoch_s)
    return reader
