"""A server whose next bytes are always there already: the deadline of the exchange holds all the same."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

import pytest

from agentload.drivers.http1 import Endpoint, Http1Client
from agentload.drivers.http1_answer import Failure
from agentload.gateway.settings import GatewaySettings
from agentload.gateway.upstream import Upstream, UpstreamUnreachable

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Ear:
    """Has heard enough at once, or never."""

    def __init__(self, enough: bool) -> None:
        self.enough = enough

    def head(self, status: int, headers: list[tuple[bytes, bytes]], now_epoch_s: float) -> None: ...

    def feed(self, data: bytes, now_ns: int) -> bool:
        return self.enough


@contextmanager
def flood(piece: bytes) -> Generator[int]:
    """A thread that sends the piece for ever; yields its port."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                sock, _ = listener.accept()
                with sock:
                    sock.settimeout(5)
                    sock.recv(65536)
                    sock.sendall(CHUNKED)
                    while not over.is_set():
                        sock.sendall(piece)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join(5)


@pytest.mark.parametrize("enough", [False, True], ids=["heard out", "lingered for"])
def test_an_answer_without_end_ends_in_time(enough: bool) -> None:
    with flood(b"1\r\nx\r\n" * 10_000) as port:  # 48 MB of this until its body is too large
        client = Http1Client(Endpoint("127.0.0.1", port))
        result = client.exchange(b"GET / HTTP/1.1\r\n\r\n", time.monotonic_ns() + 1_500_000_000, Ear(enough))
        # A quick machine reads all that is too much before the time is up.
        assert result.failure in ((None,) if enough else (Failure.TIMEOUT, Failure.TOO_LARGE))
        assert result.status == 200


def test_a_body_without_end_is_too_large() -> None:
    with flood(b"10000\r\n" + b" " * 65536 + b"\r\n") as port:
        client = Http1Client(Endpoint("127.0.0.1", port))
        result = client.exchange(b"GET / HTTP/1.1\r\n\r\n", time.monotonic_ns() + 10**10, Ear(False))
        assert result.failure is Failure.TOO_LARGE


def test_a_list_of_models_without_end_is_no_list() -> None:
    async def models(port: int) -> None:
        async with Upstream(f"http://127.0.0.1:{port}", None, GatewaySettings()) as upstream:
            await upstream.models()

    with flood(b"1000\r\n" + b"x" * 0x1000 + b"\r\n") as port, pytest.raises(UpstreamUnreachable):
        asyncio.run(models(port))
