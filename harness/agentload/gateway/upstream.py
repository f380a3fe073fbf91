"""Calls the provider over HTTP. SHELL: it turns aiohttp's ways into events and decides nothing.

aiohttp rather than httpx, whose shared pool costs 51 ms of CPU for each request at 200 connections (it is
O(N²)).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from io import BytesIO
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

import aiohttp
from yarl import URL

from agentload.gateway.dialects import Dialect
from agentload.gateway.dialects.chat import CHAT
from agentload.gateway.envelope import UpstreamCall
from agentload.gateway.failures import FailureKind
from agentload.gateway.headers import Headers
from agentload.gateway.protocol import (
    UpstreamData,
    UpstreamEnded,
    UpstreamFailed,
    UpstreamHeaders,
)
from agentload.gateway.settings import GatewaySettings
from agentload.model import NS

UpstreamEvent: TypeAlias = UpstreamHeaders | UpstreamData | UpstreamEnded | UpstreamFailed
Sink: TypeAlias = Callable[[UpstreamEvent], Awaitable[None]]
_LARGE_BODY = 2**20
_MODELS_TIMEOUT = aiohttp.ClientTimeout(total=10, connect=5)


class UpstreamUnreachable(Exception):
    """A control call to the provider got no answer."""


class Endpoint(NamedTuple):
    """One of the provider's, and what every call of it carries."""

    url: URL
    headers: dict[str, str]


class Upstream:
    """One provider. Use as an async context manager inside the running loop."""

    def __init__(self, url: str, key: str | None, settings: GatewaySettings) -> None:
        """`url` with or without its `/v1`; `key`: our own, which no client and no log is shown."""
        self._root = url.rstrip("/").removesuffix("/v1").rstrip("/")
        self._key = key
        self._chat = self._make(CHAT)
        self._endpoints: dict[Dialect, Endpoint] = {CHAT: self._chat}
        self._keepalive_s = settings.keepalive_s
        self._session: aiohttp.ClientSession | None = None

    def _make(self, dialect: Dialect) -> Endpoint:
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if self._key:
            name, value = dialect.credentials(self._key)
            headers[name] = value
        return Endpoint(URL(self._root + dialect.path), headers)

    def endpoint(self, dialect: Dialect) -> Endpoint:
        """Where calls in this dialect go, and how our key is shown there."""
        known = self._endpoints.get(dialect)
        if known is None:
            known = self._endpoints[dialect] = self._make(dialect)
        return known

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=self._keepalive_s)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept"),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open_session.close()

    @property
    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the upstream is used outside its context")
        return self._session

    async def run(self, request_id: int, call: UpstreamCall, connect_timeout_ns: int, sink: Sink) -> None:
        """One call, told to `sink` as it happens. Cancelling it closes the connection at once."""
        endpoint = self.endpoint(call.dialect)
        headers = endpoint.headers | {name.decode(): value.decode("latin-1") for name, value in call.headers}
        headers["accept"] = "text/event-stream" if call.stream else "application/json"
        try:
            response = await self._open_session.post(
                endpoint.url,
                data=BytesIO(call.body) if len(call.body) > _LARGE_BODY else call.body,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout_ns / NS),
            )
        except (aiohttp.ClientError, OSError) as error:
            await sink(UpstreamFailed(request_id, failure_kind(error)))
            return
        try:
            await sink(UpstreamHeaders(request_id, response.status, wire_headers(response)))
            await _read_body(request_id, response, sink)
        finally:
            # Returns the connection to the pool when the body was read to its end, else closes it now.
            response.close()

    async def models(self) -> tuple[int, Headers, bytes]:
        """GET /v1/models. Raises UpstreamUnreachable."""
        try:
            url = URL(f"{self._root}/v1/models")
            async with self._open_session.get(
                url, headers=self._chat.headers, allow_redirects=False, timeout=_MODELS_TIMEOUT
            ) as response:
                return response.status, wire_headers(response), await _whole(response)
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamUnreachable(type(error).__name__) from error


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    """The body of a control call. Raises ClientPayloadError when it has no end."""
    body = bytearray()
    while data := await response.content.readany():
        body += data
        if len(body) > _LARGE_BODY:
            raise aiohttp.ClientPayloadError(f"more than {_LARGE_BODY} bytes")
    return bytes(body)


async def _read_body(request_id: int, response: aiohttp.ClientResponse, sink: Sink) -> None:
    try:
        while data := await response.content.readany():
            await sink(UpstreamData(request_id, data))
    except (aiohttp.ClientError, OSError):
        await sink(UpstreamEnded(request_id, clean=False))
    else:
        await sink(UpstreamEnded(request_id, clean=True))


def failure_kind(error: Exception) -> FailureKind:
    """Whether the provider can have seen anything of a call that failed before an answer."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return FailureKind.CONNECT_TIMEOUT
    if isinstance(error, aiohttp.ClientConnectorError):
        return FailureKind.CONNECT
    return FailureKind.BROKEN


def wire_headers(response: aiohttp.ClientResponse) -> Headers:
    """Header fields as the core wants them: names in lower case."""
    return tuple((name.lower(), value) for name, value in response.raw_headers)
