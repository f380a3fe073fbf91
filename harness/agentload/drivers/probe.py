"""Control calls over httpx: is it there, does it speak HTTP and JSON, what time is it there.

Whoever answers may be anybody: every call is bounded in time as a whole (httpx bounds each read only) and in
the bytes that it takes in.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, cast

import httpx

from agentload.errors import UnreachableError

TIMEOUT_S = 5.0
MIB = 2**20


class Bounds(NamedTuple):
    """How much one call may take."""

    seconds: float
    """From the call to the last byte of its answer."""
    body_bytes: int


SMALL = Bounds(TIMEOUT_S, MIB)
LARGE = Bounds(60.0, 512 * MIB)
"""Our own provider's lists, or pages of them."""


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    kind: str
    """Its Content-Type; empty where it has none."""
    body: bytes
    location: str = ""
    """Where it points to; empty where it does not."""

    @property
    def text(self) -> str:
        """The body for people."""
        return self.body.decode("utf-8", "replace")

    @property
    def fields(self) -> dict[str, Any]:
        """Of the JSON object that it is; none where it is something else."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def client(tls: ssl.SSLContext | None = None) -> httpx.Client:
    """A client for control calls, never for load (its pool is O(N²)). Ignores the environment's proxies.

    `tls`: whose certificates are believed; by default, those of the usual authorities.
    """
    verify = True if tls is None else tls
    return httpx.Client(timeout=TIMEOUT_S, trust_env=False, follow_redirects=False, verify=verify)


def exchange(
    http: httpx.Client,
    method: str,
    url: str,
    *,
    what: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    bounds: Bounds = SMALL,
) -> Reply:
    """One call and its whole answer, whatever its status. Raises UnreachableError with one line.

    A thread makes the call, so that it is over in time even when the answer comes one byte a second; a thread
    that is given up ends when its server falls silent, with 100 KiB of header fields, or with the process.
    """
    where = f"{what} at {url}"
    fields = {"Content-Type": "application/json"} if body is not None else {}
    fields |= {**(headers or {}), "Accept-Encoding": "identity"}
    try:
        request = http.build_request(
            method,
            url,
            content=body,
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()],
            timeout=bounds.seconds,
        )
    except (httpx.InvalidURL, ValueError) as error:
        raise UnreachableError(f"{where}: cannot be called: {error}") from error
    return _in_time(lambda: _read(http, request, where, bounds), where, bounds)


def json_call(
    http: httpx.Client,
    method: str,
    url: str,
    *,
    body: object = None,
    what: str,
    headers: Mapping[str, str] | None = None,
    bounds: Bounds = SMALL,
) -> dict[str, Any]:
    """One call that must answer 200 with a JSON object. Raises UnreachableError with one line otherwise."""
    content = None if body is None else json.dumps(body).encode()
    reply = exchange(http, method, url, what=what, body=content, headers=headers, bounds=bounds)
    return read_json(reply, what, url)


def read_json(reply: Reply, what: str, url: str) -> dict[str, Any]:
    """An answer that must be 200 with a JSON object. Raises UnreachableError with one line otherwise."""
    _refuse_redirect(reply, what, url)
    if reply.status != 200:
        raise UnreachableError(f"{what} at {url}: answered {reply.status}, expected 200")
    return _json_object(reply, what, url)


def _in_time(call: Callable[[], Reply], where: str, bounds: Bounds) -> Reply:
    outcome: SimpleQueue[Reply | Exception] = SimpleQueue()

    def work() -> None:
        try:
            outcome.put(call())
        except Exception as error:
            outcome.put(error)

    threading.Thread(target=work, name="control-call", daemon=True).start()
    try:
        ended = outcome.get(timeout=bounds.seconds)
    except Empty:
        raise UnreachableError(f"{where}: {_no_answer(bounds.seconds)}") from None
    if isinstance(ended, Exception):
        raise ended
    return ended


def _read(http: httpx.Client, request: httpx.Request, where: str, bounds: Bounds) -> Reply:
    until_s = time.monotonic() + bounds.seconds
    body = bytearray()
    try:
        response = http.send(request, stream=True)
        try:
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise UnreachableError(f"{where}: answered with a Content-Encoding that nobody asked for")
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > bounds.body_bytes:
                    raise UnreachableError(f"{where}: answered with more than {bounds.body_bytes} bytes")
                if time.monotonic() > until_s:
                    raise UnreachableError(f"{where}: {_no_answer(bounds.seconds)}")
        finally:
            response.close()
    except httpx.HTTPError as error:
        raise UnreachableError(f"{where}: {describe(error, bounds.seconds)}") from error
    return Reply(response.status_code, response.headers.get("content-type", ""), bytes(body))


def _refuse_redirect(reply: Reply, what: str, url: str) -> None:
    if 300 <= reply.status < 400:
        raise UnreachableError(f"{what} at {url}: answered {reply.status}: give the final address")


def _json_object(reply: Reply, what: str, url: str) -> dict[str, Any]:
    try:
        value = json.loads(reply.body)
    except RecursionError as error:
        raise UnreachableError(f"{what} at {url}: answered JSON nested too deeply") from error
    except ValueError as error:
        raise UnreachableError(f"{what} at {url}: answered {reply.status} without JSON") from error
    if not isinstance(value, dict):
        raise UnreachableError(f"{what} at {url}: answered JSON that is not an object")
    return cast(dict[str, Any], value)


def describe(error: httpx.HTTPError, seconds: float = TIMEOUT_S) -> str:
    """An httpx error in words a person can act on; never what the server said, which may be our own key."""
    if isinstance(error, httpx.TimeoutException):
        return _no_answer(seconds)
    if isinstance(error, httpx.ConnectError):
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return "its certificate is not one that this machine trusts, or not of that name"
        return not_connected(_cause(error))
    if isinstance(error, httpx.LocalProtocolError):
        return "a header field cannot be sent as it is (is there a space at the end of a key?)"
    if isinstance(error, httpx.RemoteProtocolError):
        return "does not speak HTTP (its answer is malformed, or ended too early)"
    return f"{type(error).__name__}: {error}"


def not_connected(error: BaseException) -> str:
    """Why there is no connection, with the mend, whoever tried."""
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there (connection refused): is it started, and its port right?"
    if isinstance(error, socket.gaierror):
        return "no host of that name is known: is it spelled right?"
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"the connection broke ({said.lower()})"


def _cause(error: BaseException) -> BaseException:
    """The system's own error below those of libraries."""
    below: BaseException | None = error
    while below is not None and not isinstance(below, OSError):
        below = below.__cause__ or below.__context__
    return below or error


def _no_answer(seconds: float) -> str:
    return f"no answer within {seconds:g} s"
