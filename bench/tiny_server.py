"""A chat completion server that knows exactly how long it takes: the truth that drivers are measured against.

    python bench/tiny_server.py [--delay-ms 5] [--freeze-every-s 10 --freeze-for-s 2]
                                [--first-token-ms 100 --token-ms 20 --tokens 25]

Every answer takes `delay-ms`; a request that asks for a stream gets `tokens` chunks at absolute times. While
it is frozen (the first `freeze-for-s` of every `freeze-every-s`) no work is done. `GET /count` tells how many
requests have come. Prints `{"event": "ready", "port": …}`; ends when its standard input closes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from typing import cast

import uvloop

ANSWER = json.dumps(
    {
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "one two"}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 24, "completion_tokens": 2, "total_tokens": 26},
    }
).encode()
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
END = b"0\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def plain(body: bytes) -> bytes:
    """A whole JSON answer."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunk(data: bytes) -> bytes:
    """One piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


PLAIN_ANSWER = plain(ANSWER)


@dataclass
class Behaviour:
    """What the server was told to do."""

    delay_s: float = 0.0
    freeze_every_s: float = 0.0
    freeze_for_s: float = 0.0
    first_token_s: float = 0.1
    token_s: float = 0.02
    tokens: int = 25
    started_s: float = field(default=0.0)
    requests: int = 0

    def done_s(self, arrived_s: float, work_s: float) -> float:
        """When work begun at `arrived_s` is done, given that frozen time does not count."""
        if not self.freeze_every_s:
            return arrived_s + work_s
        at, left = arrived_s, work_s
        while True:
            phase = (at - self.started_s) % self.freeze_every_s
            if phase < self.freeze_for_s:
                at += self.freeze_for_s - phase
                phase = self.freeze_for_s
            until_freeze = self.freeze_every_s - phase
            if left <= until_freeze:
                return at + left
            at, left = at + until_freeze, left - until_freeze


class Connection(asyncio.Protocol):
    """One client; requests are answered one after the other."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (whole := self._length()) and len(self.buffer) >= whole:
            request, self.buffer = self.buffer[:whole], self.buffer[whole:]
            self._answer(request)

    def _length(self) -> int:
        """Of the request at the start of the buffer; 0 while its head is incomplete."""
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return 0
        at = self.buffer.lower().find(b"content-length:", 0, head)
        if at < 0:
            return head + 4
        return head + 4 + int(self.buffer[at + 15 : self.buffer.index(b"\r\n", at)])

    def _answer(self, request: bytes) -> None:
        behaviour, now_s = self.behaviour, self.loop.time()
        if request.startswith(b"GET /count"):
            self._write(plain(json.dumps({"requests": behaviour.requests}).encode()))
            return
        behaviour.requests += 1
        if b'"stream":true' in request:
            self._stream(now_s)
        elif behaviour.delay_s or behaviour.freeze_every_s:
            self.loop.call_at(behaviour.done_s(now_s, behaviour.delay_s), self._write, PLAIN_ANSWER)
        else:
            self._write(PLAIN_ANSWER)

    def _stream(self, now_s: float) -> None:
        behaviour = self.behaviour
        self._write(STREAM_HEAD)
        for token in range(behaviour.tokens):
            at_s = now_s + behaviour.first_token_s + token * behaviour.token_s
            # In one write: uvloop rounds times to milliseconds, and may turn two of one instant round.
            data = chunk(TOKEN) if token < behaviour.tokens - 1 else chunk(TOKEN + LAST) + END
            self.loop.call_at(at_s, self._write, data)

    def _write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)


async def serve(behaviour: Behaviour, port: int) -> None:
    """Until standard input closes."""
    loop = asyncio.get_running_loop()
    behaviour.started_s = loop.time()
    server = await loop.create_server(lambda: Connection(behaviour), "127.0.0.1", port, backlog=4096)
    ready = {"event": "ready", "port": server.sockets[0].getsockname()[1], "pid": os.getpid()}
    print(json.dumps(ready), flush=True)
    closed = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), lambda: os.read(0, 4096) or closed.set())
    await closed.wait()


def main() -> None:
    """Parse, serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--freeze-every-s", type=float, default=0.0)
    parser.add_argument("--freeze-for-s", type=float, default=0.0)
    parser.add_argument("--first-token-ms", type=float, default=100.0)
    parser.add_argument("--token-ms", type=float, default=20.0)
    parser.add_argument("--tokens", type=int, default=25)
    parser.add_argument("--parent-pipe", action="store_true", help="always so; here for symmetry")
    options = parser.parse_args()
    behaviour = Behaviour(
        delay_s=options.delay_ms / 1000,
        freeze_every_s=options.freeze_every_s,
        freeze_for_s=options.freeze_for_s,
        first_token_s=options.first_token_ms / 1000,
        token_s=options.token_ms / 1000,
        tokens=options.tokens,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(behaviour, options.port))


if __name__ == "__main__":
    main()
