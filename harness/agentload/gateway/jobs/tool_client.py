"""Calls tools over HTTP. SHELL: it turns aiohttp's ways into events and decides nothing."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

from agentload.gateway.jobs.protocol import StartTool, ToolAnswered, ToolFailed
from agentload.gateway.upstream import wire_headers
from agentload.model import NS

_MOST_BYTES = 2**20
"""Read of an answer, at most; what is kept of it is less."""


class ToolClient:
    """Tools at URL/NAME. Use as an async context manager inside the running loop."""

    def __init__(self, url: str) -> None:
        self._url = URL(url)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(self, start: StartTool) -> ToolAnswered | ToolFailed:
        """One call. Cancelling it closes the connection at once."""
        if self._session is None:
            raise RuntimeError("the tool client is used outside its context")
        timeout = aiohttp.ClientTimeout(
            total=start.timeout_ns / NS, connect=start.connect_timeout_ns / NS, sock_read=None
        )
        headers = {name.decode(): value.decode("latin-1") for name, value in start.headers}
        try:
            async with self._session.post(
                self._url / start.name,
                data=start.body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                body = await _body(response)
                return ToolAnswered(start.call_id, response.status, wire_headers(response), body)
        except TimeoutError:
            return ToolFailed(start.call_id, "tool_timeout", "the tool did not answer in time")
        except (aiohttp.ClientError, OSError) as error:
            return ToolFailed(start.call_id, "tool_unreachable", type(error).__name__)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size <= _MOST_BYTES and (data := await response.content.readany()):
        parts.append(data)
        size += len(data)
    return b"".join(parts)
