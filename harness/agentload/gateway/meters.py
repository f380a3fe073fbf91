"""Reads what the provider sends while it passes by, and says which bytes may go to the client. PURE.

A status of 200 says nothing about how a stream ends: providers report overload inside it, proxies cut it,
and no SDK notices a clean early end. So the bytes are read here event by event, and a stream counts as
complete only when its terminal event has come. What an event means, its dialect says.
"""

from __future__ import annotations

import re
from typing import Protocol

import msgspec

from agentload.gateway.dialects import Dialect
from agentload.gateway.dialects.chat import CHAT
from agentload.gateway.usage import ProviderError, Reading, Usage

MAX_EVENT_BYTES = 2**20
"""A longer event is passed on unread: memory is bounded, and no model produces one."""
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_EDGE = 3
_BLANK_LINES = (b"\n\n", b"\r\n\r\n", b"\r\r")


class Meter(Protocol):
    """Reads one answer, piece by piece."""

    def feed(self, data: bytes) -> Reading: ...

    def finish(self) -> Reading: ...


# --------------------------------------------------------------------------- streams


class SseMeter:
    """Reads a stream of server-sent events.

    Only whole events are passed on: half an event is of no use to a client, and once it is out, an error or
    a cut can no longer be told apart from an answer. `hide_usage`: the usage event was our wish, not the
    client's.
    """

    def __init__(self, dialect: Dialect = CHAT, *, hide_usage: bool = False) -> None:
        self.events = 0
        """Passed on so far."""
        self._see = dialect.events()
        self._hide_usage = hide_usage
        self._held = bytearray()
        """The beginning of an event; not searched again with every piece that comes."""
        self._edge = b""
        """The last bytes of what is held: a blank line may be cut anywhere."""
        self._over = False

    def feed(self, data: bytes) -> Reading:
        """Read on. Nothing after the terminal event or an error is looked at or passed on."""
        if self._over:
            return Reading()
        buffer = self._edge + data if self._edge else data
        cut = _whole_events(buffer)
        if not cut:
            self._hold(data)
            return Reading(forward=self._taken()) if len(self._held) > MAX_EVENT_BYTES else Reading()
        if self._held:
            buffer = self._taken() + data
            cut = _whole_events(buffer)
        if cut < len(buffer):
            self._hold(buffer[cut:])
        return self._read(buffer[:cut])

    def finish(self) -> Reading:
        """The end of the body: what is left is half an event, and is dropped."""
        return Reading()

    def _hold(self, data: bytes) -> None:
        self._held += data
        self._edge = bytes(self._held[-_LONGEST_EDGE:])

    def _taken(self) -> bytes:
        """What is held; nothing is after that."""
        held, self._held, self._edge = bytes(self._held), bytearray(), b""
        return held

    def _read(self, block: bytes) -> Reading:
        kept: list[bytes] = []
        tokens, usage, since, error = 0, None, 0, None
        start = 0
        for match in _EVENT_END.finditer(block):
            event, start = block[start : match.end()], match.end()
            payload = event_data(event)
            seen = self._see(payload) if payload else None
            if seen is not None:
                if seen.error is not None:
                    self._over, error = True, seen.error
                    break
                tokens += seen.tokens
                since += seen.tokens
                if seen.usage is not None:
                    usage, since = seen.usage, 0
                if self._hide_usage and seen.only_usage:
                    continue
                self._over = seen.terminal
            kept.append(event)
            if self._over:
                break
        self.events += len(kept)
        return Reading(
            forward=b"".join(kept),
            tokens=tokens,
            usage=_plus(usage, since),
            terminal=self._over and error is None,
            error=error,
        )


def _plus(usage: Usage | None, tokens: int) -> Usage | None:
    """The count, and what has come after it."""
    if usage is None or not tokens:
        return usage
    return msgspec.structs.replace(usage, output_tokens=usage.output_tokens + tokens)


def _whole_events(buffer: bytes) -> int:
    """Length of the part of `buffer` that consists of whole events."""
    length = 0
    for mark in _BLANK_LINES if b"\r" in buffer else _BLANK_LINES[:1]:
        at = buffer.rfind(mark)
        if at >= 0:
            length = max(length, at + len(mark))
    return length


def event_data(event: bytes) -> bytes:
    """The data of one server-sent event: its `data:` lines joined by newlines (WHATWG HTML, 9.2.6)."""
    if event.startswith(b"data: ") and event.count(b"\n") <= 2 and b"\r" not in event:
        return event[6:].rstrip(b"\n")
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)


# --------------------------------------------------------------------------- plain answers


class PlainMeter:
    """Collects a plain body, so that a cut one can still be answered with an error status."""

    def __init__(self, dialect: Dialect = CHAT, *, max_bytes: int) -> None:
        self._dialect = dialect
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def body(self) -> bytes:
        """What has come so far."""
        return b"".join(self._parts)

    def feed(self, data: bytes) -> Reading:
        """Keep the bytes; an error once they exceed `max_bytes`."""
        self._size += len(data)
        if self._size > self._max_bytes:
            self._parts.clear()
            return Reading(error=ProviderError("answer_too_long", f"more than {self._max_bytes} bytes"))
        self._parts.append(data)
        return Reading()

    def finish(self) -> Reading:
        """The whole body: its usage, and the error it may hold although the status said 200."""
        body = self.body
        seen = self._dialect.whole(body)
        if seen is None:
            return Reading(error=ProviderError("invalid_answer", f"the body is not {self._dialect.answer}"))
        tokens = seen.usage.output_tokens if seen.usage else seen.tokens
        error = seen.error
        return Reading(forward=body, tokens=tokens, usage=seen.usage, terminal=error is None, error=error)
