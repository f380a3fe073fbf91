"""What a user of somebody's own code does, by each of Locust's clients, and what is made of it.

python own_users_scenes.py SCENE…     prints a JSON object, by client and scene
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from agentload.model import RequestRecord
from own_users_played import (
    KINDS,
    PLAIN,
    SSE,
    Fast,
    Scene,
    Server,
    chunk,
    event,
    monotonic_s,
    refusal,
    sleep,
    together,
    within,
)

STEP_S = 0.03
TOKENS = 4


# -- caps


def hosts(kind: type[Any]) -> dict[str, object]:
    """The target, another port of this machine, an allowed and a strange host; redirects to each."""
    redirect = "HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n"
    server = Server(
        {
            "/": PLAIN,
            "/here": redirect.format("/").encode(),
            "/away": redirect.format("http://Other.example:1/x").encode(),
        }
    )
    elsewhere = Server({"/": PLAIN})
    scene = Scene(server.url, allow_hosts=("127.0.0.1.nip.example",))
    user = scene.user(kind)
    ask = user.client.get
    heard = [
        refusal(partial(ask, path))
        for path in ("/", "/here", f"{elsewhere.url}/", "https://other.example/", "/away")
    ]
    scene.gate.check("127.0.0.1.NIP.example.")
    return {
        "heard": heard,
        "came": len(server.came_s),
        "outcomes": scene.outcomes(),
        "told": scene.told(),
        "open": len(scene.book.open),
    }


def prepared(kind: type[Any]) -> dict[str, object]:
    """What goes round `client.request` is held, too: the inner client, a proxy."""
    server = Server({"/": PLAIN})
    scene = Scene(server.url)
    user = scene.user(kind)
    if kind is Fast:
        inner = partial(user.client.client.urlopen, "http://other.example/")
        user = scene.user(type("Proxied", (Fast,), {"proxy_host": "proxy.example", "proxy_port": 1}))
        proxied = partial(user.client.get, "/")
    else:
        import requests

        inner = partial(user.client.send, requests.Request("GET", "http://other.example/").prepare())
        proxied = partial(user.client.get, "/", proxies={"http": "http://proxy.example:1"})
    return {"inner": refusal(inner), "proxied": refusal(proxied), "came": len(server.came_s)}


def rate(kind: type[Any]) -> dict[str, object]:
    """Four users without a pause."""
    server = Server({"/": PLAIN})
    scene = Scene(server.url, rate=20)
    users = [scene.user(kind) for _ in range(4)]
    end_s = monotonic_s() + 1.2

    def ask(user: Any) -> None:
        while monotonic_s() < end_s:
            user.client.get("/")

    together(partial(ask, user) for user in users)
    came = server.came_s
    return {
        # A little less than a second: a busy machine may see two of them nearer together than they were sent.
        "busiest": max(sum(1 for at in came if start <= at < start + 0.8) for start in came),
        "slowest_ms": max(record.ended_ns - record.sent_ns for record in scene.records) / 1e6,
        "told": scene.told(),
        "as_many": len(came) == len(scene.records),
    }


def connections(kind: type[Any]) -> dict[str, object]:
    """Six users, and places for three connections; then the idle ones give way, and go with their users."""

    def slowly(sock: Any) -> None:
        sleep(0.15)
        sock.sendall(PLAIN)

    server = Server({"/": slowly})
    scene = Scene(server.url, in_flight_cap=3)
    users = [scene.user(kind) for _ in range(6)]

    def ask(user: Any) -> None:
        for _ in range(2):
            user.client.get("/")

    together(partial(ask, user) for user in users)
    room = scene.part.caller.room
    after = (scene.gate.busy, room.open)
    for _ in range(3):
        room.enter()
    given_way = room.open
    for _ in range(3):
        room.leave()
    users[0].client.get("/")
    idle = room.open
    users.clear()
    gc.collect()
    return {
        "gone": (idle, room.open),
        "at_once": max(
            sum(other.sent_ns <= one.sent_ns < other.ended_ns for other in scene.records)
            for one in scene.records
        ),
        "peak": (server.peak, room.peak),
        "came": len(server.came_s) - 1,
        "slowest_ms": max(record.ended_ns - record.sent_ns for record in scene.records) / 1e6,
        "told": scene.told(),
        "outcomes": sorted({outcome for outcome, _ in scene.outcomes()}),
        "after": after,
        "given_way": given_way,
    }


def end(kind: type[Any]) -> dict[str, object]:
    """The run's end has come."""
    server = Server({"/": PLAIN})
    scene = Scene(server.url)
    user = scene.user(kind)
    user.client.get("/")
    scene.gate.until_ns = scene.gate.clock.now_ns()
    said = refusal(partial(user.client.get, "/"))
    return {"heard": said, "came": len(server.came_s), "told": scene.told(), "records": len(scene.records)}


def long_answer(kind: type[Any]) -> dict[str, object]:
    """A plain one, and a stream that does not end."""

    def endless(sock: Any) -> None:
        sock.sendall(SSE)
        while True:
            sock.sendall(event("word " * 50))
            sleep(0.001)

    big = b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000
    scene = Scene(Server({"/": big, "/s": endless}).url, max_answer_bytes=5000)
    user = scene.user(kind)
    said = [
        refusal(partial(user.client.get, "/")),
        refusal(lambda: read(kind, user.client.get("/s", stream=True))),
    ]
    return {"heard": said, "outcomes": scene.outcomes(), "told": scene.told()}


def sent_again(kind: type[Any]) -> dict[str, object]:
    """A server that closes instead of answering: geventhttpclient sends a GET twelve times."""
    server = Server({"/": lambda sock: sock.shutdown(2)})
    scene = Scene(server.url, rate=4)
    within(0.5, partial(scene.user(kind).client.get, "/"))
    return {"came": len(server.came_s), "records": len(scene.records)}


# -- streams


def tokens(sock: Any) -> None:
    """As a chat completion comes."""
    sock.sendall(SSE)
    for _ in range(TOKENS):
        sleep(STEP_S)
        sock.sendall(event("word " * 25))  # as long as the pieces that geventhttpclient reads
    sleep(STEP_S)
    sock.sendall(chunk(b"data: [DONE]\n\n"))
    sleep(STEP_S)
    sock.sendall(b"0\r\n\r\n")


def breaks(sock: Any) -> None:
    """In the middle."""
    sock.sendall(SSE + event("word "))
    sleep(STEP_S)
    sock.close()


def hangs(sock: Any) -> None:
    """After the first token."""
    sock.sendall(SSE + event("word "))
    sleep(5)


def other_events(sock: Any) -> None:
    """Of an API that nobody here knows."""
    sock.sendall(SSE)
    for _ in range(2):
        sleep(STEP_S)
        sock.sendall(chunk(b"data: plain words\n\n"))
    sock.sendall(b"0\r\n\r\n")


def read(kind: type[Any], response: Any, pieces: int | None = None) -> None:
    """As users do."""
    came = response.iter_content(128) if kind is Fast else response.iter_lines()
    for place, _ in enumerate(came, 1):
        if place == pieces:
            return


class Streams:
    """Ways of reading them, or not."""

    def __init__(self, kind: type[Any]) -> None:
        answers = {"/s": tokens, "/breaks": breaks, "/hangs": hangs, "/other": other_events, "/": PLAIN}
        self.server = Server({**answers, "/429": b"HTTP/1.1 429 no\r\nContent-Length: 2\r\n\r\n{}"})
        self.kind, self.scene = kind, Scene(self.server.url)
        self.client = self.scene.user(kind).client
        self.found: dict[str, list[dict[str, object]]] = {}

    def play(self) -> dict[str, object]:
        """All of them."""
        for name in ("whole", "judged", "broken_off", "dropped", "breaks", "refused", "plain", "other"):
            getattr(self, name)()
            self.note(name)
        for name in ("killed", "impatient"):
            getattr(self, name)()
            self.note(name)
        held = self.client.get("/s", stream=True)
        sleep(0.3)
        self.scene.book.close()
        self.note("never_read")
        assert held.status_code == 200
        return dict(self.found)

    def note(self, name: str) -> None:
        """What has been recorded since the last time."""
        gc.collect()
        self.found[name] = [facts(record) for record in self.scene.records]
        self.scene.records.clear()

    def get(self, path: str, **more: Any) -> Any:
        """As a stream."""
        return self.client.get(path, stream=True, **more)

    def whole(self) -> None:
        read(self.kind, self.get("/s"))

    def judged(self) -> None:
        with self.get("/s", catch_response=True) as response:
            read(self.kind, response)
            response.failure("not what I asked for")

    def broken_off(self) -> None:
        response = self.get("/s")
        read(self.kind, response, 1)
        (response._response.release if self.kind is Fast else response.close)()

    def dropped(self) -> None:
        read(self.kind, self.get("/s"), 1)

    def breaks(self) -> None:
        try:
            read(self.kind, self.get("/breaks"))
        except Exception:
            return
        raise AssertionError

    def refused(self) -> None:
        with self.get("/429", catch_response=True) as response:
            response.failure("429")

    def plain(self) -> None:
        assert self.get("/").content == b"{}"

    def other(self) -> None:
        read(self.kind, self.get("/other"))

    def killed(self) -> None:
        within(STEP_S * 2, lambda: read(self.kind, self.get("/hangs")), kill=True)

    def impatient(self) -> None:
        within(STEP_S * 2, lambda: read(self.kind, self.get("/hangs")))


def streams(kind: type[Any]) -> dict[str, object]:
    """See `Streams`."""
    return Streams(kind).play()


def facts(record: RequestRecord) -> dict[str, object]:
    """Of a record, in milliseconds since it was sent."""

    def after_ms(at_ns: int | None) -> float | None:
        return None if at_ns is None else (at_ns - record.sent_ns) / 1e6

    return {
        "outcome": record.outcome.value,
        "reason": record.reason,
        "stream": record.stream,
        "first_ms": after_ms(record.first_token_ns),
        "last_ms": after_ms(record.last_token_ns),
        "ended_ms": after_ms(record.ended_ns),
        "tokens": record.output_tokens,
    }


# -- the rest


def with_blocks(kind: type[Any]) -> dict[str, object]:
    """Left by an exception, by one that is no verdict, and never entered."""
    from locust.exception import RescheduleTask

    scene = Scene(Server({"/": PLAIN}).url)
    client = scene.user(kind).client
    for error in (KeyError("choices"), RescheduleTask()):
        try:
            with client.get("/", catch_response=True):
                raise error
        except (KeyError, RescheduleTask):
            pass
    told_at_once = scene.outcomes()
    client.get("/", catch_response=True)
    scene.book.close()
    return {"at_once": told_at_once, "at_the_end": scene.outcomes()[2:], "open": len(scene.book.open)}


SCENES: dict[str, Callable[[type[Any]], dict[str, object]]] = {
    one.__name__: one
    for one in (
        hosts,
        prepared,
        rate,
        connections,
        end,
        long_answer,
        sent_again,
        streams,
        with_blocks,
    )
}

if __name__ == "__main__":
    from own_users_played import report

    report({kind: {name: SCENES[name](base) for name in sys.argv[1:]} for kind, base in KINDS.items()})
