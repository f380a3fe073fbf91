"""One attempt whose answer is asked for: a request that begins work, and questions until it has ended. Pure.

Shared by the live worker and the doctor, which only wait and send:

    polling = Polling(target, start, now_ns)
    while (ask := polling.next_ask()) is not None:      # wait until ask.due_ns; LEAVE: `left()`, else send it
                                                        # (CANCEL: with ask.method)
        polling.heard(now_ns, ask, heard)               # every answer is read by a reader of its own
    polling.result()                                    # of the attempt as a whole

A request that is turned away is refused as any other. A question that brings no answer, or none that can be
understood, is asked again, later each time, `MOST_SILENT` times in a row; then the attempt has failed
(`poll-503`). A client loses patience as it does with any answer: the attempt is abandoned, and the work is
called off by a request of its own, where the flavour has one. An end that is no
result keeps the status that the request was accepted with: nothing was wrong with the answer that tells it.
"""

from __future__ import annotations

import re
from enum import StrEnum
from urllib.parse import quote, urlsplit

import msgspec

from agentload.client.logical import LEFT, AttemptResult, AttemptStart
from agentload.client.wire import Ending, ReplyReader
from agentload.flavours import NOT_JSON, Progress, Standing
from agentload.model import NS, Outcome
from agentload.targets import Target

MOST_SILENT = 10
"""Questions in a row without an understandable answer."""
LONGEST_WAIT_NS = 2 * NS
"""Between two of them."""
LONGEST_PROMISE_S = 60.0
"""Of a Retry-After of an answer to a question, as far as it is obeyed."""
CANCEL_NS = 5 * NS
"""How long the answer to one that calls work off is waited for."""
POLL_NS = 10 * NS
"""How long the answer to one question is waited for."""
TIMEOUT = "timeout"
"""The reason of an attempt whose client has waited long enough."""
_GONE = frozenset({400, 401, 403, 404, 405, 410})
"""Statuses that asking again will not change."""
_MOST_ID = 256
_PATH = re.compile(r"/[!$-;=?-Z_a-z~%/]{0,2047}")


class Kind(StrEnum):
    """What to do next."""

    BEGIN = "begin"
    POLL = "poll"
    LEAVE = "leave"
    """The client has lost its patience."""
    CANCEL = "cancel"
    """It has left, and calls its work off."""


class Ask(msgspec.Struct, frozen=True):
    """The next thing to do."""

    kind: Kind
    due_ns: int
    timeout_at_ns: int
    """When its answer is no longer waited for."""
    path: str = ""
    """Whom a question goes to."""
    method: str = "GET"


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    reader: ReplyReader
    """Who has read the answer."""
    ending: Ending
    error: str | None = None
    """What broke, where something did."""
    sent_ns: int = 0
    reused: bool = False


class Polling:
    """`next_ask` and `heard` (or `left`) alternate until there is nothing more to do; then `result`."""

    def __init__(self, target: Target, start: AttemptStart, now_ns: int) -> None:
        """Of a target whose flavour asks after work; begins at once."""
        self._target = target
        self._flavour = target.api
        self._interval_ns = round((target.api.asks_after_s or 0.0) * NS)
        leave_ns = start.timeout_at_ns if start.leave_at_ns is None else start.leave_at_ns
        self.until_ns = min(start.timeout_at_ns, leave_ns)
        """When the client leaves."""
        self._why_left = LEFT if leave_ns < start.timeout_at_ns else TIMEOUT
        self._next: Ask | None = Ask(Kind.BEGIN, now_ns, self.until_ns)
        self._path = ""
        self._cancel: tuple[str, str] | None = None
        """Method and path of what calls the work off."""
        self._silent = 0
        self._begun: Heard | None = None
        self._last: Heard | None = None
        self._outcome: Outcome | None = None
        """Of an end that no status says."""
        self.left_ns: int | None = None
        """When the client has left; None: it has not."""
        self._called_off: int | None = None
        self.polls = 0
        """Questions that were asked."""

    def next_ask(self) -> Ask | None:
        """What to do next; None: it is over."""
        return self._next

    def heard(self, now_ns: int, ask: Ask, heard: Heard) -> None:
        """What came of the request, or of a question."""
        self._next = None
        if ask.kind is Kind.BEGIN:
            self._begun = self._last = heard
            self._on_begun(now_ns, heard)
        elif ask.kind is Kind.CANCEL:
            self._called_off = heard.reader.status if heard.ending is Ending.COMPLETE else 0
        else:
            self.polls += 1
            self._on_answer(now_ns, ask, heard)

    def left(self) -> None:
        """The client went away at `until_ns`."""
        self._next, self.left_ns = None, self.until_ns
        if self._cancel is not None:
            method, path = self._cancel
            self._next = Ask(Kind.CANCEL, self.until_ns, self.until_ns + CANCEL_NS, path, method)
        if self._begun is not None:
            self._last = msgspec.structs.replace(self._begun, ending=Ending.LEFT, error=self._why_left)

    def stopped(self) -> None:
        """The run is over."""
        self._next = None
        if self._begun is not None and self.left_ns is None:
            self._last = msgspec.structs.replace(self._begun, ending=Ending.OPEN, error=None)

    def result(self, worker: int = 0) -> AttemptResult:
        """How the attempt went."""
        last, begun = self._last, self._begun
        assert last is not None
        assert begun is not None
        result = last.reader.result(
            last.ending,
            begun.sent_ns,
            transport_error=last.error,
            worker=worker,
            connection_reused=begun.reused,
        )
        left = result.outcome is Outcome.ABANDONED
        return msgspec.structs.replace(
            result,
            outcome=self._outcome or result.outcome,
            called_off=self._called_off,
            silent=left and self._called_off is None,
        )

    # ----------------------------------------------------------------- the request

    def _on_begun(self, now_ns: int, heard: Heard) -> None:
        reader = heard.reader
        if heard.ending is not Ending.COMPLETE or not 200 <= reader.status < 300:
            return
        standing = self._standing(reader)
        if standing is not None and self._ended(reader, standing):
            return
        path = where_asked(self._target, standing, reader.location)
        if path is None:
            reader.status = reader.status if reader.status != 200 else 202
            reader.fail("answer-without-id")
            return
        self._path, self._cancel = path, self._called_off_at(standing)
        self._ask_after(now_ns, self._interval_ns, reader)

    def _called_off_at(self, standing: Standing | None) -> tuple[str, str] | None:
        if standing is None or not standing.id or len(standing.id) > _MOST_ID:
            return None
        return self._flavour.cancel_at(self._target.path, quote(standing.id, safe="~"))

    # ----------------------------------------------------------------- questions

    def _on_answer(self, now_ns: int, ask: Ask, heard: Heard) -> None:
        reader = heard.reader
        if heard.ending is Ending.OPEN:
            return self.stopped()
        if heard.ending is Ending.LEFT and ask.timeout_at_ns >= self.until_ns:
            return self.left()
        why = heard.error or "no-answer"
        if heard.ending is Ending.COMPLETE:
            standing = self._standing(reader) if 200 <= reader.status < 300 else None
            if standing is not None and standing.progress is not None:
                self._silent = 0
                if not self._ended(reader, standing, heard):
                    self._ask_after(now_ns, self._interval_ns, reader)
                return None
            why = str(reader.status) if not 200 <= reader.status < 300 else "without-state"
        self._silent += 1
        if reader.status in _GONE or self._silent >= MOST_SILENT:
            self._give_up(f"poll-{why}")
        else:
            self._ask_after(now_ns, min(LONGEST_WAIT_NS, self._interval_ns << self._silent), reader)
        return None

    def _standing(self, reader: ReplyReader) -> Standing | None:
        try:
            return self._flavour.standing(reader.body)
        except NOT_JSON:
            return None

    def _ended(self, reader: ReplyReader, standing: Standing, heard: Heard | None = None) -> bool:
        """Whether the work has; then the attempt has, too."""
        if standing.progress in (None, Progress.OPEN):
            return False
        self._last = heard or self._last
        if standing.progress is Progress.DONE:
            reader.status = 200
            return True
        self._outcome = Outcome.EXPIRED if standing.progress is Progress.EXPIRED else None
        self._refuse(reader, standing.reason or standing.progress.value)
        return True

    def _give_up(self, why: str) -> None:
        assert self._begun is not None
        self._last = self._begun
        self._refuse(self._begun.reader, why)

    def _refuse(self, reader: ReplyReader, why: str) -> None:
        reader.status = 202
        reader.fail(why)

    def _ask_after(self, now_ns: int, wait_ns: int, reader: ReplyReader) -> None:
        promised_s = reader.promised_s
        if promised_s is not None and promised_s > 0:
            wait_ns = max(wait_ns, round(min(promised_s, LONGEST_PROMISE_S) * NS))
        due_ns = now_ns + wait_ns
        if due_ns < self.until_ns:
            self._next = Ask(Kind.POLL, due_ns, min(self.until_ns, due_ns + POLL_NS), self._path)
        else:
            self._next = Ask(Kind.LEAVE, self.until_ns, self.until_ns)


def where_asked(target: Target, standing: Standing | None, location: str | None) -> str | None:
    """Where work is asked after: at the id of the body, else at the Location, if that is at the same gateway.
    None: nowhere that could be asked."""
    if standing is not None and standing.id and len(standing.id) <= _MOST_ID:
        path = target.api.poll_path(target.path, quote(standing.id, safe="~"))
        return path if ".." not in path.split("/") else None
    return None if location is None else _path_of(location, target)


def _path_of(location: str, target: Target) -> str | None:
    """The path of a Location, if it leads to the same gateway and can be asked for."""
    if not location.isprintable():  # which taking it apart would pass over
        return None
    try:
        parts = urlsplit(location)
    except ValueError:
        return None
    if parts.scheme or parts.netloc:
        scheme = "https" if target.tls else "http"
        if parts.scheme not in ("", scheme) or parts.netloc.lower() != target.authority.lower():
            return None
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return path if _PATH.fullmatch(path) and ".." not in parts.path.split("/") else None
