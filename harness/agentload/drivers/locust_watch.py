"""What users of somebody's own code send, from its sending to its record.

A request is known by what we put into its `context`, which Locust hands on with its event; an event without
that (a user's own client fires it by hand) by the greenlet in which it is fired, or its spawners.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, cast
from weakref import WeakKeyDictionary

import gevent
import gevent.local

from agentload.client.locust_event import Heard, phase_at, record_of
from agentload.client.request_writer import SEQ_BITS
from agentload.client.wire import Ending
from agentload.drivers.bookkeeper import Bookkeeper
from agentload.drivers.clock import RunClock
from agentload.drivers.part import OwnShare, Part
from fake_provider.marker import Marker, decode, encode

_SEQS: int = 2**SEQ_BITS
_MOST_LOOKED_AT = 2**20
"""Characters of a request that are searched for its marker."""


class WatchBook:
    """What all watched tenants of a worker share."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.clock = RunClock(0)
        self.redact = part.target.redactor()
        self.issued = 0
        """Requests sent."""
        self.over = False
        """The run has ended: whatever is still open is unfinished."""
        self.open: set[Sending] = set()
        self.owners: WeakKeyDictionary[Any, Watch] = WeakKeyDictionary()
        """By the greenlet of a user."""
        self._numbered = 0
        self._books: Bookkeeper | None = None

    def prepare(self, clock: RunClock, books: Bookkeeper) -> None:
        """Take the run's clock, and who keeps the records."""
        self.clock, self._books = clock, books

    @property
    def books(self) -> Bookkeeper:
        """Who keeps the records."""
        assert self._books is not None, "prepare() comes first"
        return self._books

    def next_seq(self) -> int:
        """Down from the last that a marker can hold, every worker its own: a plan counts up from 0."""
        seq = _SEQS - 1 - (self._numbered * self.part.of + self.part.index) % (_SEQS // 2)
        self._numbered += 1
        return seq

    def of_this_greenlet(self) -> Watch | None:
        """Whose user is running."""
        greenlet: Any = gevent.getcurrent()
        while greenlet is not None:
            if greenlet in self.owners:
                return self.owners[greenlet]
            spawner = getattr(greenlet, "spawning_greenlet", None)
            greenlet = None if spawner is None else spawner()
        return None

    def close(self) -> None:
        """Nobody sends any more: what Locust never told the end of is unfinished."""
        self.over = True
        for sending in list(self.open):
            sending.cut()


class Watch:
    """One tenant's requests; its users know it as their `agentload`."""

    def __init__(self, share: OwnShare, book: WatchBook) -> None:
        self.share, self.book = share, book
        self.headers = dict(share.headers)
        self._unsent: dict[int, int] = {}
        """Markers given out and not yet seen in a request: seq → output tokens."""
        self._mine = gevent.local.local()

    def mark(self, text: str, output_tokens: int = 0) -> str:
        """The text behind a new marker (`agentload.locust.marked`). Raises ValueError."""
        seq = self.book.next_seq()
        marker = Marker(
            run=self.book.part.run_id,
            tenant=self.share.place,
            seq=seq,
            attempt=0,
            output_tokens=output_tokens,
        )
        self._unsent[seq] = output_tokens
        self._mine.seq = seq
        return f"{encode(marker)}\n{text}"

    def sending(self, payload: object) -> Sending:
        """A request leaves now; what it carries says whether it was marked."""
        marker = decode(str(payload)[-_MOST_LOOKED_AT:]) if payload is not None else None
        is_ours = marker is not None and (marker.run, marker.tenant) == (
            self.book.part.run_id,
            self.share.place,
        )
        return self._sending(marker.seq if is_ours and marker is not None else None)

    def fired_by_hand(self) -> Sending:
        """A request whose sending was not seen: it is the one that this greenlet has marked last, if any."""
        return self._sending(getattr(self._mine, "seq", None))

    def _sending(self, seq: int | None) -> Sending:
        """A marker counts once: whoever sends one again has made another request, unmarked for us."""
        marked = seq is not None and seq in self._unsent
        wanted = self._unsent.pop(seq) if marked and seq is not None else 0
        found = seq if marked and seq is not None else self.book.next_seq()
        return Sending(self, found, marked=marked, wanted=wanted)


class Sending:
    """One request of such a user, open until it has its record."""

    def __init__(self, watch: Watch, seq: int, *, marked: bool, wanted: int) -> None:
        self.watch, self.seq, self.marked, self.wanted = watch, seq, marked, wanted
        book = watch.book
        self.sent_ns = book.clock.now_ns()
        self._counts = book.books.tally.of(watch.share.tenant.name)
        self._counts.offered += 1
        self._counts.in_flight += 1
        book.issued += 1
        book.open.add(self)

    def fired(self, event: Mapping[str, Any], *, by_hand: bool = False) -> None:
        """Locust's event has come. An answer that the user's code has looked at ended before that."""
        if self not in self.watch.book.open:
            return
        now_ns = self.watch.book.clock.now_ns()
        took_ns = _nanoseconds(event.get("response_time"))
        if by_hand:
            self.sent_ns = now_ns if took_ns is None else now_ns - took_ns
        ended_ns = now_ns if took_ns is None else min(now_ns, self.sent_ns + took_ns)
        self._record(heard_of(event, self.sent_ns, ended_ns))

    def cut(self, *, timed_out: bool = False) -> None:
        """It ends without Locust's knowing: its user was stopped, its own patience or the run ended."""
        if self not in self.watch.book.open:
            return
        ending = Ending.OPEN if self.watch.book.over else Ending.LEFT
        ending = Ending.COMPLETE if timed_out else ending
        now_ns = self.watch.book.clock.now_ns()
        self._record(Heard(sent_ns=self.sent_ns, ended_ns=now_ns, ending=ending, timed_out=timed_out))

    def forget(self) -> None:
        """It was never sent: what was asked for is no request."""
        if self in self.watch.book.open:
            self._close()
            self._counts.offered -= 1
            self.watch.book.issued -= 1

    def _record(self, heard: Heard) -> None:
        self._close()
        watch, book = self.watch, self.watch.book
        record = record_of(
            watch.share.tenant,
            phase_at(book.part.profile, heard.sent_ns),
            self.seq,
            heard,
            marked=self.marked,
            planned_output_tokens=self.wanted,
            worker=book.part.index,
            redact=book.redact,
        )
        book.books.keep(record, None)

    def _close(self) -> None:
        self.watch.book.open.discard(self)
        self._counts.in_flight -= 1


def heard_of(event: Mapping[str, Any], sent_ns: int, ended_ns: int) -> Heard:
    """What an event of Locust's says. It holds whatever a user's code has put into it."""
    response, exception = event.get("response"), event.get("exception")
    status = getattr(response, "status_code", None)
    return Heard(
        sent_ns=sent_ns,
        ended_ns=ended_ns,
        status=status if isinstance(status, int) and 0 <= status <= 999 else 0,
        headers=_headers(response),
        body=_body(response),
        failure=_failure(exception),
        timed_out=_is_timeout(exception),
        answered_epoch_s=time.time(),
    )


def _body(response: object) -> bytes:
    """As far as it has been read: to read the rest of a stream is for the user's code."""
    for name in ("_content", "_cached_content"):  # of requests, of geventhttpclient
        content = getattr(response, name, None)
        if isinstance(content, bytes | bytearray):
            return bytes(content)
    return b""


def _headers(response: object) -> tuple[tuple[str, str], ...]:
    items: Callable[[], Any] | None = getattr(getattr(response, "headers", None), "items", None)
    if items is None:
        return ()
    return tuple((str(name), str(value)) for name, value in cast("list[tuple[Any, Any]]", items()))


def _failure(exception: object) -> str | None:
    if not exception:
        return None
    said, kind = str(exception), type(exception).__name__
    return said if kind in ("CatchResponseError", "str") and said else f"{kind}: {said}" if said else kind


def _is_timeout(exception: object) -> bool:
    """Of requests, of gevent, of sockets: they have nothing in common but their name."""
    return any(kind.__name__ in ("Timeout", "TimeoutError") for kind in type(exception).__mro__)


def _nanoseconds(milliseconds: object) -> int | None:
    if not isinstance(milliseconds, int | float) or not 0 <= milliseconds < 1e12:
        return None
    return round(milliseconds * 1e6)
