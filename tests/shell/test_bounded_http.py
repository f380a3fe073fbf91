"""Heads without end, heads that never come, and clients that never read: both servers, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from fake_provider import bounded_http
from fake_provider.bounded_http import MAX_HEAD_BYTES, BoundedProtocol
from gateway_scene import CHAT, chat, gateway, provider

START = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\n".encode()
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "one endless field": (START + b"X-A: ", b"a" * 1_000),
    "endless fields": (START, b"X-A: " + b"a" * 1_000 + b"\r\n"),
    "an endless address": (b"GET /", b"a" * 1_000),
    "blank lines": (b"", b"\r\n" * 500),
    "an endless chunk extension": (CHUNKED + b"1;", b"a" * 1_000),
    "an endless trailer": (CHUNKED + b"1\r\n{\r\n0\r\nX-A: ", b"a" * 1_000),
    "a chunk's length": (CHUNKED, b"0" * 1_000),
}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    folder: Path = tmp_path_factory.mktemp("bounded")
    with provider(folder) as upstream, gateway(folder / "gateway", upstream.url) as own:
        yield {"gateway": own.port, "provider": int(upstream.url.rsplit(":", 1)[1])}


MOST = 1_000 * MAX_HEAD_BYTES
"""Sent, at most: far more than what all the buffers of the kernel hold."""


def answered(port: int, start: bytes, again: bytes = b"") -> tuple[int, Any, int]:
    """Send until there is an answer or MOST bytes are out: status (0: none), body, and what was sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        sent = 0
        with suppress(OSError):
            client.sendall(start)
            client.setblocking(False)
            while again and sent < MOST:
                with suppress(BlockingIOError):
                    sent += client.send(again)
                with suppress(BlockingIOError):
                    if client.recv(1, socket.MSG_PEEK):
                        break
        client.settimeout(10)
        received = b""
        with suppress(ConnectionResetError):  # it closes while we are still sending
            while data := client.recv(65_536):
                received += data
                if b"\r\n\r\n" in received and received.endswith(b"}"):
                    break
    head, _, body = received.partition(b"\r\n\r\n")
    return (int(head.split()[1]), json.loads(body), sent) if body else (0, None, sent)


@pytest.mark.parametrize("server", ["gateway", "provider"])
@pytest.mark.parametrize(("start", "again"), ENDLESS.values(), ids=ENDLESS)
def test_what_has_no_end_is_refused(ports: dict[str, int], server: str, start: bytes, again: bytes) -> None:
    status, body, sent = answered(ports[server], start, again)
    assert sent < MOST
    if status:  # else the connection was reset under the answer
        assert status in (400, 431)
        assert body["error"]["code"] in ("headers_too_long", "invalid_http")


@pytest.mark.parametrize("server", ["gateway", "provider"])
def test_a_long_head_in_one_piece_is_refused_and_one_within_the_bound_served(
    ports: dict[str, int], server: str
) -> None:
    payload = json.dumps(chat()).encode()

    def request(length: int) -> bytes:
        fields = b"Content-Length: %d\r\nX-A: %s\r\n\r\n" % (len(payload), b"a" * length)
        return START + fields + payload

    status, body, _ = answered(ports[server], request(MAX_HEAD_BYTES))
    assert (status, body["error"]["code"]) == (431, "headers_too_long")
    assert answered(ports[server], request(MAX_HEAD_BYTES - 1_000))[0] == 200


@pytest.mark.parametrize("server", ["gateway", "provider"])
def test_what_is_no_http_is_told_so_in_json(ports: dict[str, int], server: str) -> None:
    status, body, _ = answered(ports[server], START + b"X-A: \x01\r\n\r\n")
    assert (status, body["error"]["code"]) == (400, "invalid_http")


def test_the_bound_holds_no_body(ports: dict[str, int]) -> None:
    payload = json.dumps(chat() | {"metadata": "x" * 4 * MAX_HEAD_BYTES}).encode()
    whole = START + b"Content-Length: %d\r\n\r\n" % len(payload) + payload
    assert answered(ports["gateway"], whole)[0] == 200
    piece = b"%x\r\n%b\r\n"
    chunks = b"".join(piece % (len(part), part) for part in (payload[:10], payload[10:]))
    assert answered(ports["gateway"], CHUNKED + chunks + b"0\r\n\r\n")[0] == 200


@pytest.mark.parametrize("path", [CHAT + "/", "/v1/jobs/", "/v1/jobs/..%2f"])
def test_an_address_with_a_slash_too_many_is_a_404(ports: dict[str, int], path: str) -> None:
    status, body, _ = answered(ports["gateway"], f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert (status, body["error"]["code"]) == (404, "not_found")


# --------------------------------------------------------------------------- slowness


@asynccontextmanager
async def echo(monkeypatch: pytest.MonkeyPatch, read_s: float) -> AsyncGenerator[int]:
    """A server that answers with how much it was sent, after it was sent all of it."""
    monkeypatch.setattr(bounded_http, "READ_S", read_s)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size, more = size + len(message["body"]), message["more_body"]
        body = b"%d" % size
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(app, http=BoundedProtocol, log_config=None, lifespan="off", port=0)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.001)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


async def said(port: int, *pieces: bytes) -> bytes:
    """Everything that is said to these bytes until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ((), b""),
        ((b"POST / HT",), b"HTTP/1.1 408"),
        ((START, b"X-A: b"), b"HTTP/1.1 408"),
        ((START + b"Content-Length: 5\r\n\r\n", b"ab"), b"HTTP/1.1 408"),
        ((START + b"Content-Length: 2\r\n\r\nab", START), b"HTTP/1.1 200"),
    ],
    ids=["nothing", "half a line", "half a head", "half a body", "half a second request"],
)
def test_who_stops_sending_is_let_go(
    monkeypatch: pytest.MonkeyPatch, pieces: tuple[bytes, ...], status: bytes
) -> None:
    async def run() -> bytes:
        async with echo(monkeypatch, 0.05) as port:
            return await said(port, *pieces)

    answer = asyncio.run(run())
    assert answer.startswith(status)
    if pieces and pieces[-1] == START:
        assert b"HTTP/1.1 408" in answer


def test_a_whole_request_stops_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> list[float]:
        async with echo(monkeypatch, 1_000) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(START + b"Content-Length: 2\r\n\r\nab")
            await reader.readuntil(b"\r\n\r\n2")
            loop: Any = asyncio.get_running_loop()
            left = [timer.when() - loop.time() for timer in loop._scheduled if not timer.cancelled()]
            writer.close()
            return left

    assert all(seconds < 100 for seconds in asyncio.run(run()))
