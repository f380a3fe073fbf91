"""The thin client: what a server can do to it, and what it must report."""

from __future__ import annotations

import shutil
import ssl
import struct
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import socket
from gevent import ssl as gevent_ssl
from gevent.server import StreamServer

from agentload.drivers.http1 import Endpoint, Exchange, Http1Client
from agentload.drivers.http1_answer import MAX_HEAD_BYTES, Answer, Failure
from agentload.drivers.room import Room
from agentload.targets._tls import Trust

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
POST = b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
GET = b"GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n"
Script = Callable[[Callable[[], bytes], Any, int], None]
"""What a server does with a connection: a way to read a request (and note it), its socket, its number."""


class Ear:
    """Remembers an answer."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.chunks: list[tuple[bytes, int]] = []

    def head(self, status: int, headers: list[tuple[bytes, bytes]], now_epoch_s: float) -> None:
        self.status, self.headers = status, [(name.lower(), value) for name, value in headers]

    def feed(self, data: bytes, now_ns: int) -> bool:
        self.chunks.append((data, now_ns))
        return b"[DONE]" in data

    @property
    def text(self) -> bytes:
        return b"".join(chunk for chunk, _ in self.chunks)


class Site:
    """A scripted server on a free port, and a client for it."""

    def __init__(self, port: int, seen: list[bytes]) -> None:
        self.client = Http1Client(Endpoint("127.0.0.1", port))
        self.seen = seen
        """Requests that reached the server."""
        self.ear = Ear()

    def ask(self, request: bytes = POST, timeout_s: float = 5.0) -> Exchange:
        self.ear = Ear()
        return self.client.exchange(request, time.monotonic_ns() + round(timeout_s * 1e9), self.ear)


def read_request(sock: Any) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data or (data.startswith(b"POST") and not data.endswith(b"body")):
        more = sock.recv(65536)
        if not more:
            break
        data += more
    return data


@contextmanager
def site(script: Script) -> Generator[Site]:
    """Serve connections with `script(read, socket, number)`; `read()` notes a request as seen."""
    seen: list[bytes] = []
    numbers = iter(range(10_000))

    def handle(sock: Any, _address: Any) -> None:
        def read() -> bytes:
            request = read_request(sock)
            if request:
                seen.append(request)
            return request

        script(read, sock, next(numbers))

    server = StreamServer(("127.0.0.1", 0), handle)
    server.start()
    here = Site(port_of(server), seen)
    try:
        yield here
    finally:
        here.client.close()
        server.stop(timeout=1)


def port_of(server: StreamServer) -> int:
    """The port it got."""
    assert server.server_port is not None
    return server.server_port


def always(*parts: bytes) -> Script:
    """Answer every request with these bytes, sent apart, keeping the connection."""

    def script(read: Callable[[], bytes], sock: Any, number: int) -> None:
        while read():
            for part in parts:
                sock.sendall(part)
                gevent.sleep(0.001)

    return script


def once(data: bytes) -> Script:
    """Answer one request with these bytes and close."""

    def script(read: Callable[[], bytes], sock: Any, number: int) -> None:
        read()
        sock.sendall(data)

    return script


def reset(sock: Any) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_an_answer_and_its_times() -> None:
    with site(always(OK)) as here:
        result = here.ask()
        assert (result.failure, result.status, here.ear.text, result.body_bytes) == (None, 200, b"hi", 2)
        assert result.first_byte_ns is not None
        assert result.sent_ns <= result.connected_ns <= result.first_byte_ns <= result.ended_ns


def test_connections_are_kept_and_the_latest_is_used_first() -> None:
    with site(always(OK)) as here:
        assert [here.ask().reused for _ in range(3)] == [False, True, True]
        assert here.client.opened == 1


def test_requests_at_once_open_as_many_connections() -> None:
    with site(always(OK)) as here:
        asked = [gevent.spawn(here.ask) for _ in range(20)]
        assert all(job.get(timeout=5).status == 200 for job in asked)
        assert here.client.opened == 20
        assert here.ask().reused


def test_more_than_1024_descriptors_are_no_obstacle() -> None:
    with site(always(OK)) as here:
        for _ in range(2):
            asked = [gevent.spawn(here.ask, GET) for _ in range(600)]
            assert all(job.get(timeout=20).failure is None for job in asked)
        assert here.client.opened == 600


@pytest.mark.parametrize("request_bytes", [GET, POST])
def test_a_server_that_closes_without_an_answer_sees_one_request(request_bytes: bytes) -> None:
    with site(once(b"")) as here:
        result = here.ask(request_bytes)
        assert (result.failure, result.status, result.resent) == (Failure.NO_ANSWER, 0, False)
        assert len(here.seen) == 1


@pytest.mark.parametrize("request_bytes", [GET, POST])
@pytest.mark.parametrize("ending", ["close", "reset"])
def test_a_kept_connection_closed_after_reading_is_reported_not_retried(
    request_bytes: bytes, ending: str
) -> None:
    def script(read: Callable[[], bytes], sock: Any, number: int) -> None:
        read()
        sock.sendall(OK)
        read()
        if ending == "reset":
            reset(sock)

    with site(script) as here:
        assert here.ask(request_bytes).status == 200
        result = here.ask(request_bytes)
        assert (result.failure, result.reused, result.resent) == (Failure.STALE, True, False)
        assert len(here.seen) == 2


def test_an_idle_connection_found_closed_is_replaced_before_anything_is_sent() -> None:
    with site(once(OK)) as here:
        assert here.ask().status == 200
        gevent.sleep(0.01)
        result = here.ask()
        assert (result.status, result.reused, result.resent) == (200, False, False)
        assert (here.client.found_closed, len(here.seen)) == (1, 2)


def test_a_request_that_met_a_closed_connection_is_sent_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The race the look before sending cannot see: the server's FIN was on its way while we sent."""
    from agentload.drivers import http1

    monkeypatch.setattr(http1.Connection, "is_quiet", lambda self: True)
    with site(once(OK)) as here:
        assert here.ask().status == 200
        gevent.sleep(0.01)
        result = here.ask()
        assert (result.status, result.resent, result.reused, here.client.resent) == (200, True, False, 1)
        assert len(here.seen) == 2


def test_one_deadline_covers_the_whole_exchange() -> None:
    def drip(read: Callable[[], bytes], sock: Any, number: int) -> None:
        read()
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(100):
            sock.sendall(b"x")
            gevent.sleep(0.02)

    with site(drip) as here:
        started = time.monotonic_ns()
        result = here.ask(timeout_s=0.2)
        assert (result.failure, result.status) == (Failure.TIMEOUT, 200)
        assert time.monotonic_ns() - started >= 150_000_000
        assert 0 < result.body_bytes < 100
        assert not here.ask(timeout_s=0.05).reused


def test_a_server_that_accepts_and_stays_silent_ends_in_a_timeout() -> None:
    def silent(read: Callable[[], bytes], sock: Any, number: int) -> None:
        while read():
            pass

    with site(silent) as here:
        result = here.ask(timeout_s=0.05)
        assert (result.failure, result.status, result.first_byte_ns) == (Failure.TIMEOUT, 0, None)


def test_chunks_are_handed_on_as_they_arrive() -> None:
    def stream(read: Callable[[], bytes], sock: Any, number: int) -> None:
        read()
        sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            sock.sendall(b"3\r\nabc\r\n")
            gevent.sleep(0.03)
        sock.sendall(b"0\r\n\r\n")

    with site(stream) as here:
        result = here.ask()
        times = [at for _, at in here.ear.chunks]
        assert here.ear.text == b"abcabcabc"
        assert result.failure is None
        assert len(times) == 3
        assert min(b - a for a, b in pairwise(times)) > 10_000_000


def test_chunks_of_one_segment_have_one_time() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with site(always(head + b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")) as here:
        assert here.ask().failure is None
        assert [chunk for chunk, _ in here.ear.chunks] == [b"abc", b"def"]
        assert len({at for _, at in here.ear.chunks}) == 1


def test_interim_answers_are_passed_over() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    with site(always(interim, OK)) as here:
        assert (here.ask().status, here.ear.status, here.ear.text) == (200, 200, b"hi")
        assert [name for name, _ in here.ear.headers] == [b"content-length"]
        assert here.ask().reused


def test_endless_interim_answers_end_in_an_error() -> None:
    with site(once(b"HTTP/1.1 100 Continue\r\n\r\n" * 50)) as here:
        assert here.ask().failure is Failure.MALFORMED


def test_repeated_headers_are_all_handed_on() -> None:
    answer = (
        b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nretry-after: 9\r\nContent-Length: 0\r\n\r\n"
    )
    with site(once(answer)) as here:
        assert here.ask().status == 429
        assert [value for name, value in here.ear.headers if name == b"retry-after"] == [b"3", b"9"]


@pytest.mark.parametrize(
    ("sent", "failure"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", Failure.MALFORMED),
        (b"\x16\x03\x01\x02\x00\x01", Failure.MALFORMED),
        (b"HTTP/1.1 200", Failure.CUT_OFF),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", Failure.CUT_OFF),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", Failure.CUT_OFF),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Failure.MALFORMED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", Failure.MALFORMED),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", Failure.MALFORMED),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * (MAX_HEAD_BYTES + 1), Failure.TOO_LARGE),
    ],
)
def test_broken_answers_end_in_a_named_error(sent: bytes, failure: Failure) -> None:
    with site(once(sent)) as here:
        result = here.ask(timeout_s=3)
        assert (result.failure, bool(result.detail)) == (failure, True)


def test_an_answer_without_a_length_ends_when_the_server_closes() -> None:
    with site(once(b"HTTP/1.1 200 OK\r\n\r\nall of it")) as here:
        assert here.ask().failure is None
        assert here.ear.text == b"all of it"


def test_a_connection_with_bytes_left_over_is_not_used_again() -> None:
    with site(always(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother")) as here:
        assert here.ask().failure is None
        assert here.ear.text == b"hi"
        assert not here.ask().reused
        assert here.ear.text == b"hi"


def test_a_reset_mid_answer_is_a_reset() -> None:
    def script(read: Callable[[], bytes], sock: Any, number: int) -> None:
        read()
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        gevent.sleep(0.01)
        reset(sock)

    with site(script) as here:
        assert here.ask().failure is Failure.RESET
        assert here.ear.text == b"half"


def test_an_answer_sent_before_the_request_was_read_is_heard() -> None:
    def impatient(read: Callable[[], bytes], sock: Any, number: int) -> None:
        sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass

    with site(impatient) as here:
        assert here.ask(b"POST / HTTP/1.1\r\nContent-Length: 900000\r\n\r\n" + b"x" * 900_000).status == 413


@pytest.mark.parametrize("terminated", [True, False])
def test_a_listener_that_has_heard_enough_is_not_kept_waiting(terminated: bool) -> None:
    def script(read: Callable[[], bytes], sock: Any, number: int) -> None:
        while read():
            sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n[DONE]\r\n")
            if terminated:
                gevent.sleep(0.01)
                sock.sendall(b"0\r\n\r\n")

    with site(script) as here:
        result = here.ask(timeout_s=5)
        assert (result.failure, result.enough, here.ear.text) == (None, True, b"[DONE]")
        assert result.ended_ns == here.ear.chunks[-1][1]
        assert here.ask(timeout_s=5).reused is terminated


def test_bodies_are_bounded() -> None:
    answer = Answer(max_body_bytes=10)
    answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n" + b"x" * 11)
    assert answer.error is not None
    assert answer.error.failure is Failure.TOO_LARGE


def test_nobody_listening_is_refused() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        client = Http1Client(Endpoint("127.0.0.1", unused.getsockname()[1]))
        result = client.exchange(GET, time.monotonic_ns() + 10**9, Ear())
    assert (result.failure, result.status) == (Failure.REFUSED, 0)


def test_an_unknown_name_is_named() -> None:
    result = Http1Client(Endpoint("no-such-host.invalid", 80)).exchange(
        GET, time.monotonic_ns() + 5 * 10**9, Ear()
    )
    assert result.failure in (Failure.NAME, Failure.TIMEOUT)
    assert result.detail


def test_speaking_tls_to_a_plain_server_is_a_tls_error() -> None:
    def plain(read: Callable[[], bytes], sock: Any, number: int) -> None:
        sock.recv(65536)
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with site(plain) as here:
        client = Http1Client(Endpoint("127.0.0.1", here.client.endpoint.port, tls=True))
        assert client.exchange(GET, time.monotonic_ns() + 3 * 10**9, Ear()).failure is Failure.TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for localhost, with its key beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "cert.pem"


def test_tls_with_a_certificate_of_ones_own(certificate: Path) -> None:
    def handle(sock: Any, _address: Any) -> None:
        while read_request(sock):
            sock.sendall(OK)

    context: Any = gevent_ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(certificate), str(certificate.with_name("key.pem")))
    server = StreamServer(("127.0.0.1", 0), handle, ssl_context=context)
    server.start()
    port = port_of(server)
    try:
        trusting = Http1Client(Endpoint("localhost", port, tls=True, trust=Trust(ca=str(certificate))))
        asked = [trusting.exchange(POST, time.monotonic_ns() + 5 * 10**9, Ear()) for _ in range(2)]
        assert [(result.status, result.reused) for result in asked] == [(200, False), (200, True)]
        trusting.close()
        doubting = Http1Client(Endpoint("localhost", port, tls=True))
        assert doubting.exchange(POST, time.monotonic_ns() + 5 * 10**9, Ear()).failure is Failure.TLS
    finally:
        server.stop(timeout=1)


def test_clients_share_room_and_who_was_idle_for_longest_gives_way() -> None:
    room, clock = Room(3), time.monotonic_ns
    with site(always(OK)) as here:
        clients = [Http1Client(here.client.endpoint, clock, None, room) for _ in range(5)]
        for client in clients:
            assert client.exchange(POST, clock() + 5 * 10**9, Ear()).status == 200
        assert (room.open, room.peak) == (3, 3)
        reused = [client.exchange(POST, clock() + 5 * 10**9, Ear()).reused for client in reversed(clients)]
        assert reused == [True, True, True, False, False]
        assert (room.open, room.peak) == (3, 3)
        for client in clients:
            client.close()
        assert room.open == 0


def test_a_body_is_heard_out_up_to_the_bytes_that_are_allowed() -> None:
    with site(always(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5_000)) as here:
        for allowed, failure in ((4_999, Failure.TOO_LARGE), (5_000, None)):
            client = Http1Client(here.client.endpoint, max_body_bytes=allowed)
            assert client.exchange(POST, time.monotonic_ns() + 5 * 10**9, Ear()).failure is failure
            assert client.room.open == (0 if failure else 1)
            client.close()
