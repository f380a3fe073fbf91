"""The doctor's requests: a run's own bytes over plain sockets, each bounded in time and size. SHELL."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from email.utils import parsedate_to_datetime

import msgspec

from agentload.client.logical import AttemptResult, AttemptStart
from agentload.client.polling import Ask, Heard, Polling
from agentload.client.polling import Kind as AskKind
from agentload.client.wire import Ending, ReplyReader, RequestWriter, marker_of
from agentload.doctor.observed import Asked, Kind
from agentload.drivers import tls
from agentload.drivers.http1_answer import Answer
from agentload.drivers.probe import not_connected
from agentload.flavours import NOT_JSON, Flavour
from agentload.model import Arrival, Job, Profile, Tenant
from agentload.targets import Target

TIMEOUT_S = 20.0
"""For one request, from connecting to its last byte: a gateway may queue for a while."""
LEAVE_S = 0.15
"""When a client leaves that does not wait for its answer; our provider takes `_LONG_TOKENS` for it."""
_BODY_SHOWN = 120
_INPUT_TOKENS, _PLAIN_TOKENS, _STREAM_TOKENS, _LONG_TOKENS = 24, 8, 24, 64
_TOKENS = {Kind.STREAMED: _STREAM_TOKENS, Kind.LEFT: _LONG_TOKENS}


class Asker:
    """Asks one target in the names of a profile's tenants; numbers its requests from 0."""

    def __init__(self, target: Target, profile: Profile, run_id: int) -> None:
        self._target, self._profile, self._run_id = target, profile, run_id
        self._writer, self._redact = RequestWriter(target), target.redactor()
        self._places = {tenant.name: place for place, tenant in enumerate(profile.tenants)}
        self._tls = tls.context(target.trust) if target.tls else None
        self._next = 0

    def ask(self, kind: Kind, tenant: Tenant) -> Asked:
        """One request, heard out (but by a client that leaves)."""
        return self._exchange(*self._numbered(kind, tenant))

    def ask_at_once(self, tenant: Tenant, count: int) -> list[Asked]:
        """Several of one tenant, all at the same time."""
        numbered = [self._numbered(Kind.BURST, tenant) for _ in range(count)]
        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(lambda one: self._exchange(*one), numbered))

    def _numbered(self, kind: Kind, tenant: Tenant) -> tuple[Kind, Arrival]:
        tokens = _TOKENS.get(kind, _PLAIN_TOKENS)
        arrival = Arrival(
            seq=self._next,
            tenant=tenant.name,
            service_class=tenant.service_class,
            phase=self._profile.phases[0].name,
            due_ns=0,
            job=Job(
                input_tokens=_INPUT_TOKENS,
                output_tokens=tokens,
                declared_output_tokens=2 * tokens,
                stream=kind is Kind.STREAMED,
            ),
            model=tenant.model,
        )
        self._next += 1
        return kind, arrival

    def _exchange(self, kind: Kind, arrival: Arrival) -> Asked:
        if self._target.api.asks_after_s is not None:
            return self._pursue(kind, arrival)
        hearing = self._hearing(arrival, leaves=kind is Kind.LEFT)
        until_s = time.monotonic() + (LEAVE_S if hearing.leaves else TIMEOUT_S)
        failure = self._heard(self._request(arrival), hearing, until_s)
        ending = Ending.LEFT if hearing.leaves else hearing.ending
        return self._asked(kind, arrival, hearing, hearing.reader.result(ending, 0), failure)

    def _pursue(self, kind: Kind, arrival: Arrival) -> Asked:
        """The same where the answer is asked for."""
        now_ns, leaves = time.monotonic_ns(), kind is Kind.LEFT
        leave_ns = now_ns + round(LEAVE_S * 1e9) if leaves else None
        timeout_ns = now_ns + round(TIMEOUT_S * 1e9)
        start = AttemptStart(number=0, due_ns=now_ns, timeout_at_ns=timeout_ns, leave_at_ns=leave_ns)
        polling = Polling(self._target, start, now_ns)
        hearing, failure, told = self._hearing(arrival, leaves=leaves), None, False
        while (ask := polling.next_ask()) is not None:
            time.sleep(max(0.0, (ask.due_ns - time.monotonic_ns()) / 1e9))
            if ask.kind is AskKind.LEAVE:
                polling.left()
                hearing.ended_ns = time.monotonic_ns()
                continue
            if ask.kind is AskKind.CANCEL:
                self._call_off(ask, arrival, polling)
                continue
            hearing = self._hearing(arrival, leaves=leaves)
            failure = self._heard(self._asking(ask, arrival), hearing, ask.timeout_at_ns / 1e9)
            told = told or _tells_eta(self._target.api, hearing.reader.body)
            heard = Heard(reader=hearing.reader, ending=hearing.ending, error=failure)
            polling.heard(time.monotonic_ns(), ask, heard)
        asked = self._asked(kind, arrival, hearing, polling.result(), failure)
        return msgspec.structs.replace(asked, eta=told)

    def _call_off(self, ask: Ask, arrival: Arrival, polling: Polling) -> None:
        hearing = self._hearing(arrival, leaves=False)
        request = self._writer.write_cancel(arrival, ask.method, ask.path)
        self._heard(request, hearing, ask.timeout_at_ns / 1e9)
        polling.heard(time.monotonic_ns(), ask, Heard(reader=hearing.reader, ending=hearing.ending))

    def _hearing(self, arrival: Arrival, *, leaves: bool) -> _Hearing:
        api = self._target.api
        reader = ReplyReader(api.as_stream(arrival.job.stream), arrival.seq, self._redact, api)
        return _Hearing(reader, leaves=leaves)

    def _request(self, arrival: Arrival) -> bytes:
        marker = marker_of(self._run_id, self._places[arrival.tenant], arrival, 0)
        return self._writer.write(arrival, marker, 0)

    def _asking(self, ask: Ask, arrival: Arrival) -> bytes:
        if ask.kind is AskKind.BEGIN:
            return self._request(arrival)
        return self._writer.write_poll(arrival, ask.path)

    def _heard(self, request: bytes, hearing: _Hearing, until_s: float) -> str | None:
        """One exchange; what broke, where something did. `until_s`: on the monotonic clock."""
        failure = None
        try:
            self._converse(request, hearing, until_s)
        except TimeoutError:
            failure = f"no whole answer in {TIMEOUT_S:g} s"
        except ssl.SSLError as error:
            failure = tls.trouble(error)
        except OSError as error:
            failure = not_connected(error)
        except ValueError as error:
            failure = str(error) or type(error).__name__
        hearing.ended_ns = time.monotonic_ns()
        return failure

    def _converse(self, request: bytes, hearing: _Hearing, until_s: float) -> None:
        with closing(self._connect()) as sock:
            sock.sendall(request)
            while not hearing.over:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                sock.settimeout(left_s)
                hearing.hear(sock.recv(65_536))

    def _connect(self) -> socket.socket:
        target = self._target
        sock = socket.create_connection((target.host, target.port), timeout=TIMEOUT_S)
        try:
            return sock if self._tls is None else self._tls.wrap_socket(sock, server_hostname=target.host)
        except BaseException:
            sock.close()
            raise

    def _asked(
        self, kind: Kind, arrival: Arrival, hearing: _Hearing, result: AttemptResult, failure: str | None
    ) -> Asked:
        problem = hearing.answer.error
        return Asked(
            kind=kind,
            tenant=arrival.tenant,
            seq=arrival.seq,
            input_tokens=arrival.job.input_tokens,
            outcome=result.outcome,
            status=hearing.answer.status,
            failure=self._redact(problem.failure.value if problem is not None else failure or "") or None,
            http_version=hearing.http_version,
            media_type=self._redact(hearing.field("content-type").partition(";")[0]),
            retry_after=result.retry_after,
            reason=result.reason,
            usage=result.input_tokens is not None,
            own_answer=result.own_answer,
            called_off=result.called_off,
            text_ns=tuple(hearing.reader.token_arrivals_ns),
            ended_ns=hearing.ended_ns,
            clock_skew_s=_skew_s(hearing.field("date"), hearing.began_epoch_s),
            body=self._redact(hearing.body.decode("utf-8", "replace"))[:_BODY_SHOWN],
        )


class _Hearing:
    """One answer as its bytes come."""

    def __init__(self, reader: ReplyReader, *, leaves: bool) -> None:
        self.reader, self.leaves = reader, leaves
        self.answer = Answer()
        self.http_version = ""
        self.body = b""
        self.over = False
        self.ended_ns = 0
        self.began_epoch_s = 0.0
        """When its head had come."""
        self._announced = False

    def hear(self, data: bytes) -> None:
        """What came from the socket; nothing: the server has closed."""
        if not self.http_version and data.startswith(b"HTTP/"):
            self.http_version = data[:8].decode("latin-1")
        if data:
            self.answer.feed(data)
        else:
            self.answer.end_of_stream()
        if self.answer.has_head and not self._announced:
            self._announced, self.began_epoch_s = True, time.time()
            self.reader.head(self.answer.status, self.answer.headers, self.began_epoch_s)
        chunks, self.answer.chunks = self.answer.chunks, []
        for chunk in chunks:
            self.body = (self.body + chunk)[:4096]
            self.reader.feed(chunk, time.monotonic_ns())
        self.over = self.answer.complete or self.answer.error is not None or not data

    @property
    def ending(self) -> Ending:
        """How the exchange was left."""
        if self.leaves and not self.answer.complete:
            return Ending.LEFT
        return Ending.COMPLETE if self.answer.complete else Ending.CUT

    def field(self, name: str) -> str:
        """A field of the answer's head; empty where it has none."""
        found: Sequence[str] = [
            value.decode("latin-1").strip()
            for key, value in self.answer.headers
            if key.decode("latin-1").lower() == name
        ]
        return found[0] if found else ""


def _tells_eta(api: Flavour, body: bytes | bytearray) -> bool:
    try:
        return api.standing(body).eta_s is not None
    except NOT_JSON:
        return False


def _skew_s(date: str, now_epoch_s: float) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - now_epoch_s
    except (ValueError, TypeError, OverflowError):
        return None
