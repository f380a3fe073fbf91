"""Control calls: whatever a server does, they end in time, in little memory, and with one line."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import pytest

from agentload.drivers import probe
from agentload.drivers.probe import MIB, Bounds
from agentload.errors import UnreachableError

HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n%s\r\n"
QUICK = Bounds(0.3, MIB)
Script = Callable[[socket.socket, threading.Event], None]


def says(body: bytes, status: bytes = b"200 OK", fields: bytes = b"") -> Script:
    answer = HEAD % (status, fields + b"Content-Length: %d\r\n" % len(body)) + body
    return lambda sock, _over: sock.sendall(answer)


def drips(start: bytes) -> Script:
    """One byte at a time, for ever."""

    def script(sock: socket.socket, over: threading.Event) -> None:
        sock.sendall(start)
        while not over.wait(0.02):
            sock.sendall(b"x")

    return script


def floods(sock: socket.socket, over: threading.Event) -> None:
    sock.sendall(HEAD % (b"200 OK", b"Transfer-Encoding: chunked\r\n"))
    while not over.is_set():
        sock.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")


@contextmanager
def server(script: Script) -> Generator[str]:
    """A server for one connection; yields its URL."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                sock, _ = listener.accept()
                with sock:
                    sock.recv(65536)
                    script(sock, over)
                    over.wait(5)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        finally:
            over.set()
            thread.join(5)


def problem_with(script: Script, bounds: Bounds = probe.SMALL) -> str:
    with server(script) as url, probe.client() as http:
        with pytest.raises(UnreachableError) as raised:
            probe.json_call(http, "GET", url, what="the provider", bounds=bounds)
        [line] = raised.value.lines
        assert line.startswith(f"the provider at {url}: ")
        return line


def test_no_such_name_and_nobody_there_are_two_things() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/x"
    refused = "nothing listens there (connection refused): is it started, and its port right?"
    with probe.client() as http, pytest.raises(UnreachableError) as raised:
        probe.exchange(http, "GET", url, what="the provider")
    assert raised.value.lines == (f"the provider at {url}: {refused}",)
    assert probe.not_connected(socket.gaierror()) == "no host of that name is known: is it spelled right?"
    assert probe.not_connected(ConnectionResetError()) == "the connection broke (connectionreseterror)"


def test_a_whole_answer() -> None:
    with server(says(b'{"a": 1}')) as url, probe.client() as http:
        assert probe.json_call(http, "POST", url, body={"b": 2}, what="the provider") == {"a": 1}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (floods, "answered with more than 1048576 bytes"),
        (
            says(gzip.compress(b" " * 10 * MIB), fields=b"Content-Encoding: gzip\r\n"),
            "a Content-Encoding that nobody asked for",
        ),
        (
            says(b"{}", b"307 Moved", b"Location: http://192.0.2.1/\r\n"),
            "answered 307: give the final address",
        ),
        (says(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "answered JSON nested too deeply"),
        (says(b"[]"), "answered JSON that is not an object"),
        (lambda sock, _: sock.sendall(b"sk-secret\r\n\r\n"), "does not speak HTTP (its answer is malformed"),
    ],
)
def test_a_hostile_answer_is_one_line(script: Script, problem: str) -> None:
    line = problem_with(script)
    assert problem in line
    assert "sk-secret" not in line


@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 200 OK\r\nX: ", HEAD % (b"200 OK", b"Content-Length: 99999\r\n")]
)
def test_the_whole_call_is_bounded_not_each_read(start: bytes) -> None:
    assert "no answer within 0.3 s" in problem_with(drips(start), QUICK)


def test_what_is_no_url_is_one_line() -> None:
    with probe.client() as http, pytest.raises(UnreachableError) as raised:
        probe.json_call(http, "GET", "http://127.0.0.1:x/", what="the provider")
    assert len(raised.value.lines) == 1
    assert "cannot be called" in str(raised.value)
