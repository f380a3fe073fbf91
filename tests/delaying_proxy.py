"""A TCP proxy that holds back what passes, one way and the other by different times: a network between."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress


@contextmanager
def delaying_proxy(port: int, there_s: float, back_s: float) -> Generator[int]:
    """Yields the port at which `port` is so far away."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, port, there_s, back_s), daemon=True).start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, port: int, there_s: float, back_s: float) -> None:
    with suppress(OSError):
        while True:
            near, _ = listener.accept()
            threading.Thread(target=_join, args=(near, port, there_s, back_s), daemon=True).start()


def _join(near: socket.socket, port: int, there_s: float, back_s: float) -> None:
    with near, socket.create_connection(("127.0.0.1", port)) as far:
        there = threading.Thread(target=_pass, args=(near, far, there_s), daemon=True)
        there.start()
        _pass(far, near, back_s)
        there.join()


def _pass(source: socket.socket, sink: socket.socket, delay_s: float) -> None:
    """One piece after another: for a conversation of questions and answers that is delay enough."""
    with suppress(OSError):
        while data := source.recv(65_536):
            time.sleep(delay_s)
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
