"""Runs the application under uvicorn until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import uvicorn

from fake_provider.app import build
from fake_provider.collector import collected_when_idle
from fake_provider.host import Host
from fake_provider.transport import LendingProtocol

BACKLOG = 4096


def listen(host: str, port: int) -> socket.socket:
    """A bound socket (port 0: a free one). Raises OSError."""
    address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(address[0], address[1])
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address[4])
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def raise_file_limit() -> None:
    """As many connections as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS names a limit that it does not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which would end the process before the ledger is flushed."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def serve(
    host: Host,
    sock: socket.socket,
    *,
    ready: Callable[[], None],
    log_level: str = "warning",
    control_token: str | None = None,
    parent_pipe: int | None = None,
) -> None:
    """Serves until SIGTERM, SIGINT, or the end of `parent_pipe` (a file descriptor).

    `ready` is called when it listens. At the end, calls in flight are cut and recorded, and their connections
    closed.
    """
    config = uvicorn.Config(
        build(host, control_token),
        http=LendingProtocol,
        interface="asgi3",
        ws="none",
        loop="none",
        lifespan="off",
        log_level=log_level,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=2,
        backlog=BACKLOG,
    )
    server = _Server(config)

    def stop() -> None:
        host.stop()
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if parent_pipe is not None:
        _watch(parent_pipe, lambda: loop.call_soon_threadsafe(stop))
    host.start()
    try:
        async with collected_when_idle(lambda: len(host.peers)):
            await asyncio.gather(server.serve(sockets=[sock]), _when_started(server, ready))
    finally:
        host.close()


async def _when_started(server: uvicorn.Server, ready: Callable[[], None]) -> None:
    while not server.started and not server.should_exit:
        await asyncio.sleep(0.005)
    if server.started:
        ready()


def _watch(pipe: int, ended: Callable[[], object]) -> None:
    """Calls `ended`, from another thread, when the pipe's other end is closed."""

    def read() -> None:
        with suppress(OSError):
            while os.read(pipe, 4096):
                pass
        with suppress(RuntimeError):  # the loop may be closed: then this process is ending anyway
            ended()

    threading.Thread(target=read, name="parent-pipe", daemon=True).start()
