"""A user of somebody's own code as a tenant plays it, one request after the other, without a run around it.

Import it first in a process of its own: it patches the process, as Locust's own do.
"""
# ruff: noqa: E402

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import gevent
import msgspec
from gevent.server import StreamServer
from locust import FastHttpUser, HttpUser, User
from locust.env import Environment

from agentload import locust, profile, targets
from agentload.caps import Allowance
from agentload.drivers.bookkeeper import Bookkeeper
from agentload.drivers.clock import RunClock
from agentload.drivers.locust_common import CONTEXT
from agentload.drivers.locust_user_class import playing
from agentload.drivers.locust_watch import Sending, Watch, WatchBook
from agentload.drivers.part import Part
from agentload.drivers.protocol import Assignment, MasterConfig
from agentload.drivers.tally import Tally
from agentload.drivers.withheld import told
from agentload.targets._tls import Trust
from own_users import written

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def event(text: str) -> bytes:
    """A chunk of a chat completion's stream."""
    said = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return chunk(f"data: {json.dumps(said)}\n\n".encode())


def chunk(data: bytes) -> bytes:
    """Of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Server:
    """Answers each request by its path; counts them, and the connections."""

    def __init__(self, answers: dict[str, Callable[[Any], None] | bytes]) -> None:
        self.answers = answers
        self.came_s: list[float] = []
        self.open = self.peak = 0
        self._server = StreamServer(("127.0.0.1", 0), self._serve)
        self._server.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _serve(self, sock: Any, _: Any) -> None:
        self.open += 1
        self.peak = max(self.peak, self.open)
        try:
            while (head := self._head(sock)) is not None:
                self.came_s.append(time.monotonic())
                answer = self.answers[head.split()[1].decode()]
                if callable(answer):
                    answer(sock)
                else:
                    sock.sendall(answer)
        except OSError:
            pass
        finally:
            self.open -= 1
            sock.close()

    def _head(self, sock: Any) -> bytes | None:
        got = b""
        while b"\r\n\r\n" not in got:
            if not (more := sock.recv(65536)):
                return None
            got += more
        head, _, body = got.partition(b"\r\n\r\n")
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                left = int(line.split(b":")[1]) - len(body)
                while left > 0:
                    left -= len(sock.recv(left))
        return head


class Scene:
    """A tenant whose users play against a server; the run's time zero is now."""

    def __init__(self, url: str, trust: Trust | None = None, **config: Any) -> None:
        chosen = profile.load(written(Path(mkdtemp())))
        rate = config.pop("rate", None)
        made = MasterConfig(
            profile=chosen.model_dump(mode="json", by_alias=True),
            seed=1,
            target=targets.load(url, {}).to_dict(),
            run_id=9,
            run_dir="",
            **config,
        )
        self.part = Part(Assignment(config=made, index=0, of=1))
        self.part.target = replace(self.part.target, trust=trust)
        self.book = WatchBook(self.part)
        self.gate = self.book.gate
        self.records: list[Any] = []
        books: Any = Bookkeeper(Tally(), lambda record, call: None)
        books.keep = lambda record, call: self.records.append(record)
        self.book.prepare(RunClock(time.monotonic_ns()), books)
        self.gate.allowance = None if rate is None else Allowance(rate)
        self.environment = Environment()
        self.environment.events.request.add_listener(self._on_request)

    def user(self, base: type[User]) -> Any:
        """One of the tenant's."""
        watch = Watch(self.part.own[0], self.book)
        return playing(base, self.part.target, watch, sys.exit)(self.environment)

    def _on_request(self, **event: Any) -> None:
        sending = event["context"].get(CONTEXT)
        if isinstance(sending, Sending):
            sending.fired(event)

    def outcomes(self) -> list[tuple[str, str | None]]:
        """Of its records, in order."""
        return [(record.outcome.value, record.reason) for record in self.records]

    def told(self) -> list[str]:
        """What was withheld."""
        return told(self.gate.book.kinds())


class Plain(HttpUser):
    """Of requests."""

    tasks = (print,)


class Fast(FastHttpUser):
    """Of geventhttpclient."""

    tasks = (print,)


def refusal(call: Callable[[], object]) -> str | None:
    """What the user's code hears, where it is refused."""
    try:
        call()
    except locust.Refused as refused:
        return str(refused)
    return None


def within(seconds: float, call: Callable[[], object], *, kill: bool = False) -> None:
    """Ended after so long: by its own time-out, or as a user is that is stopped."""
    if kill:
        greenlet = gevent.spawn(call)
        greenlet.join(seconds)
        greenlet.kill()
        return
    with gevent.Timeout(seconds, False):
        call()


def together(calls: Iterable[Callable[[], object]]) -> None:
    """All at once; raises what one of them raises."""
    gevent.joinall([gevent.spawn(call) for call in calls], raise_error=True)


def report(found: object) -> None:
    """To whoever has started this process."""
    print(msgspec.json.encode(found).decode(), flush=True)


sleep, monotonic_s = gevent.sleep, time.monotonic
KINDS: dict[str, type[User]] = {"plain": Plain, "fast": Fast}
