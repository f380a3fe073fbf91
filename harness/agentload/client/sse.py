"""Server-sent events, incrementally: bytes in, events out, wherever the network cut them.

https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_PENDING = 8 * 2**20


class Event(NamedTuple):
    """One dispatched event."""

    kind: bytes
    """The `event` field; empty where there was none."""
    data: bytes
    """The `data` fields, joined by newlines."""


class EventParser:
    """Tolerates LF, CRLF and CR, comments, several data lines, a byte order mark, and chunks cut anywhere."""

    def __init__(self) -> None:
        self.overflowed = False
        """True once more than 8 MiB came without completing an event; nothing is parsed after that."""
        self._pieces: list[bytes] = []
        self._after_cr = False
        self._at_start = True
        self._kind = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that this chunk completes. An event without its blank line is never dispatched."""
        for line in self._lines(self._normalised(chunk)):
            if line:
                self._field(self._without_mark(line))
            elif self._data:
                yield self._dispatched()
            else:
                self._kind = b""

    def end(self) -> Iterator[Event]:
        """Nothing: an event without its blank line is never dispatched."""
        yield from ()

    def _lines(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete now; what follows the last of them is kept, in pieces."""
        self._size += len(chunk)
        self.overflowed = self.overflowed or self._size > _MAX_PENDING
        if self.overflowed:
            self._pieces.clear()
            return []
        if b"\n" not in chunk:
            self._pieces.append(chunk)
            return []
        *lines, rest = b"".join([*self._pieces, chunk]).split(b"\n")
        self._pieces = [rest]
        return lines

    def _normalised(self, chunk: bytes) -> bytes:
        """The chunk with every line ending as LF; a CR ends a line at once, and swallows a following LF."""
        if self._after_cr and chunk:
            chunk, self._after_cr = chunk.removeprefix(b"\n"), False
        if b"\r" not in chunk:
            return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _without_mark(self, line: bytes) -> bytes:
        if self._at_start:
            self._at_start = False
            return line.removeprefix(_BYTE_ORDER_MARK)
        return line

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._kind = value

    def _dispatched(self) -> Event:
        event = Event(self._kind, b"\n".join(self._data))
        self._kind, self._size = b"", 0
        self._data.clear()
        return event
