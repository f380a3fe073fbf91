"""Streams that are not server-sent events, incrementally: a line of JSON each, or text as it comes. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Protocol

from agentload.client.sse import Event, EventParser
from agentload.flavours import Framing

_MAX_PENDING = 8 * 2**20


class StreamParser(Protocol):
    """The contract, which `sse.EventParser` has, too."""

    overflowed: bool
    """True once more than 8 MiB came without completing an event; nothing is parsed after that."""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that this chunk completes."""
        ...

    def end(self) -> Iterator[Event]:
        """What the end of the whole message completes."""
        ...


class LineParser:
    """Each line that is not empty is an event; the last one needs no line ending."""

    def __init__(self) -> None:
        self.overflowed = False
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The lines that this chunk completes."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            yield from self._line(line)
        self._size += len(rest)
        self.overflowed = self.overflowed or self._size > _MAX_PENDING
        if self.overflowed:
            self._pieces = []
        elif rest:
            self._pieces.append(rest)

    def end(self) -> Iterator[Event]:
        """The last line."""
        yield from self._line(b"")

    def _line(self, tail: bytes) -> Iterator[Event]:
        line = b"".join([*self._pieces, tail]).strip()
        self._pieces, self._size = [], 0
        if line and not self.overflowed:
            yield Event(b"", line)


class TextParser:
    """Each piece of text is an event, as the network cut it; a character that is cut waits for its end."""

    def __init__(self) -> None:
        self.overflowed = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The text of this chunk."""
        if text := self._decoder.decode(chunk):
            yield Event(b"", text.encode())

    def end(self) -> Iterator[Event]:
        """Half a character is not text."""
        yield from ()


def parser_of(framing: Framing) -> StreamParser:
    """A new one."""
    match framing:
        case Framing.SSE:
            return EventParser()
        case Framing.LINES:
            return LineParser()
        case Framing.TEXT:
            return TextParser()
