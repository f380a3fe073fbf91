"""What users of somebody's own code send, from its sending to its record.

A request is known by what we put into its `context`, which Locust hands on with its event; an event without
that (a user's own client fires it by hand) by the greenlet in which it is fired, or its spawners.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import gevent
import gevent.local
import msgspec

from agentload.client.locust_event import Heard, phase_at, record_of
from agentload.client.locust_reading import Reading, reader_of
from agentload.client.request_writer import SEQ_BITS
from agentload.client.wire import Ending
from agentload.drivers.bookkeeper import Bookkeeper
from agentload.drivers.clock import RunClock
from agentload.drivers.locust_gate import Gate
from agentload.drivers.locust_heard import heard_of, nanoseconds
from agentload.drivers.part import OwnShare, Part
from fake_provider.marker import Marker, decode, encode

_SEQS: int = 2**SEQ_BITS
_MOST_LOOKED_AT = 2**20
"""Characters of a request that are searched for its marker."""
_REFUSED = 400
"""From this status on the head of an answer says how it ended, whoever reads the rest."""
_ELSEWHERE = "redirect-elsewhere"
"""The reason of a request whose answer points to a host that is not to be loaded."""


class WatchBook:
    """What all watched tenants of a worker share."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.clock = RunClock(0)
        self.redact = part.target.redactor()
        self.gate = Gate((part.target.host, *part.allow_hosts), part.caller.room, part.max_answer_bytes)
        self.gate.whose = self._whose
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
        self.gate.clock = clock

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
        """Nobody sends any more: what Locust told no end of is unfinished, what nobody read is left."""
        self.over = True
        for sending in list(self.open):
            sending.close()

    def _whose(self) -> str:
        watch = self.of_this_greenlet()
        return "?" if watch is None else watch.share.tenant.name


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

    def sending(self, payload: object, *, stream: bool = False) -> Sending:
        """A request leaves now; what it carries says whether it was marked. `stream`: its code reads it."""
        marker = decode(str(payload)[-_MOST_LOOKED_AT:]) if payload is not None else None
        is_ours = marker is not None and (marker.run, marker.tenant) == (
            self.book.part.run_id,
            self.share.place,
        )
        sending = self._sending(marker.seq if is_ours and marker is not None else None)
        sending.stream = stream
        return sending

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
        self.stream = False
        self.reading: Reading | None = None
        """Of the latest answer: there is one before the last where it was a redirect."""
        self._told: Heard | None = None
        """What Locust's event said of an answer that is still being read."""
        self._held_ns = 0
        self.sent_ns = book.clock.now_ns()
        self._counts = book.books.tally.of(watch.share.tenant.name)
        self._counts.offered += 1
        self._counts.in_flight += 1
        book.issued += 1
        book.open.add(self)

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self.watch.share.tenant.name

    def hold(self, waited_ns: int) -> None:
        """It was held back for so long: nothing that the target can help."""
        self.sent_ns += waited_ns
        self._held_ns += waited_ns

    def listen(self, status: int, headers: Collection[tuple[str, str]], most_bytes: int) -> Reading:
        """Its answer begins: this is the head."""
        book, reader = self.watch.book, None
        if self.stream and status < _REFUSED:
            flavour = book.part.target.api
            reader = reader_of(self.seq, flavour, book.redact, status, headers, time.time())
        self.reading = Reading(status, headers, book.clock.now_ns, most_bytes, reader)
        self.reading.whose, self.reading.on_end = self.tenant, self._read
        return self.reading

    def fired(self, event: Mapping[str, Any], *, by_hand: bool = False) -> None:
        """Locust's event has come. An answer that the user's code has looked at ended before that."""
        if self not in self.watch.book.open:
            return
        now_ns = self.watch.book.clock.now_ns()
        took_ns = nanoseconds(event.get("response_time"))
        if by_hand:
            self.sent_ns = now_ns if took_ns is None else now_ns - took_ns
        elif took_ns is not None:
            took_ns = max(0, took_ns - self._held_ns)
        ended_ns = now_ns if took_ns is None else min(now_ns, self.sent_ns + took_ns)
        heard = heard_of(event, self.sent_ns, ended_ns)
        if self._is_read_as_it_comes():
            self._told = heard
            self._read()
        else:
            self._record(heard)

    def cut(self, *, timed_out: bool = False) -> None:
        """It ends without Locust's knowing: its user was stopped, its own patience or the run ended."""
        if self not in self.watch.book.open:
            return
        ending = Ending.OPEN if self.watch.book.over else Ending.LEFT
        ending = Ending.COMPLETE if timed_out else ending
        now_ns = self.watch.book.clock.now_ns()
        self._record(Heard(sent_ns=self.sent_ns, ended_ns=now_ns, ending=ending, timed_out=timed_out))

    def raised(self, response: object, error: BaseException | None) -> None:
        """Its code has left the answer's `with` block by an exception; None: by one that is no verdict."""
        if self not in self.watch.book.open:
            return
        if isinstance(error, gevent.GreenletExit | gevent.Timeout):
            self.cut(timed_out=isinstance(error, gevent.Timeout))
            return
        status = getattr(response, "status_code", 0)
        said = error or (f"HTTP {status}" if status >= _REFUSED else None)
        took_ms = getattr(response, "request_meta", {}).get("response_time")
        self.fired({"response": response, "exception": said, "response_time": took_ms})
        if (reading := self.reading) is not None:
            reading.end(Ending.LEFT, at_ns=reading.touched_ns)

    def refused(self) -> None:
        """The gate did not let it out; or no further, for a redirect elsewhere or too long an answer."""
        if (reading := self.reading) is None:
            self.forget()
        elif self in self.watch.book.open:
            failure = reading.failure or _ELSEWHERE
            self._record(self._unheard(reading, failure=failure))

    def forget(self) -> None:
        """It was never sent: what was asked for is no request."""
        if self in self.watch.book.open:
            self._close()
            self._counts.offered -= 1
            self.watch.book.issued -= 1

    def close(self) -> None:
        """The run is over, and nobody has said how this one ended."""
        reading = self.reading
        if reading is None or (reading.ending is None and not self.stream):
            self.cut()
            return
        reading.end(Ending.LEFT, at_ns=reading.touched_ns)
        if self in self.watch.book.open:
            failure = f"HTTP {reading.status}" if reading.status >= _REFUSED else None
            self._told = self._unheard(reading, failure)
            self._read()

    # -- an answer that the user's code reads as it comes

    def _is_read_as_it_comes(self) -> bool:
        return self.stream and self.reading is not None and self.reading.status < _REFUSED

    def _read(self) -> None:
        """Its record is due when both are there: what its code says of it, and its end."""
        reading, told = self.reading, self._told
        if reading is None or reading.ending is None or self not in self.watch.book.open:
            return
        if told is None and reading.gone:
            told = self._unheard(reading)
        if told is None:
            return
        said = reading.said()
        is_over = reading.timed_out or (said is not None and said.whole)
        ending = Ending.COMPLETE if is_over else reading.ending
        changed = msgspec.structs.replace(
            told,
            ended_ns=max(told.sent_ns, reading.ended_ns),
            body=bytes(reading.body) if said is None else b"",
            streamed=said,
            stream=True,
            ending=ending,
            timed_out=told.timed_out or reading.timed_out,
            failure=told.failure or reading.failure,
        )
        self._record(changed)

    def _unheard(self, reading: Reading, failure: str | None = None) -> Heard:
        """What is known where no event of Locust's tells it."""
        return Heard(
            sent_ns=self.sent_ns,
            ended_ns=max(self.sent_ns, reading.ended_ns),
            status=reading.status,
            headers=reading.headers,
            failure=failure,
            ending=reading.ending or Ending.COMPLETE,
            answered_epoch_s=time.time(),
        )

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
