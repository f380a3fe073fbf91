"""Servers made to break their readers, over real sockets: without end, without haste, or without sense."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

Script = Callable[[socket.socket, threading.Event], None]
"""What a server does with a connection once it has read the request, until the event is set."""
HEAD = b"HTTP/1.1 %s\r\n%s"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Server:
    port: int
    connections: int = 0


@contextmanager
def serving(script: Script) -> Generator[Server]:
    """Every connection gets the script, in a thread of its own."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(listener.getsockname()[1])

        def serve(sock: socket.socket) -> None:
            with suppress(OSError), sock:
                sock.settimeout(20)
                if sock.recv(65_536):
                    script(sock, over)

        def accept() -> None:
            with suppress(OSError):
                while not over.is_set():
                    sock, _ = listener.accept()
                    server.connections += 1
                    threading.Thread(target=serve, args=(sock,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            over.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def says(body: bytes, status: bytes = b"200 OK", fields: bytes = b"") -> Script:
    """One whole answer."""
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    return lambda sock, _over: sock.sendall(HEAD % (status, fields + length) + body)


def drips(start: bytes, piece: bytes = b"x", every_s: float = 0.02) -> Script:
    """A little at a time, for ever."""

    def script(sock: socket.socket, over: threading.Event) -> None:
        sock.sendall(start)
        while not over.wait(every_s):
            sock.sendall(piece)

    return script


def floods(start: bytes, piece: bytes) -> Script:
    """As fast as it is read, for ever."""

    def script(sock: socket.socket, over: threading.Event) -> None:
        sock.sendall(start)
        while not over.is_set():
            sock.sendall(piece)

    return script


def stalls(start: bytes) -> Script:
    """So much, and never more."""

    def script(sock: socket.socket, over: threading.Event) -> None:
        sock.sendall(start)
        over.wait(30)

    return script


chunked_flood = floods(CHUNKED, b"10000\r\n" + b" " * 65_536 + b"\r\n")
endless_interim = floods(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
BOMB = gzip.compress(b" " * 32 * 2**20)
"""32 MiB of spaces in 32 KiB."""
