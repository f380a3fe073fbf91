"""POST /_tool/NAME over bare ASGI: waits until the tool is done, or its caller has left. SHELL."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.types import Receive, Scope, Send

from fake_provider.endpoint import read_body
from fake_provider.host import Host
from fake_provider.tools import ToolBody, ToolRequest, ToolVisit

_BODY = msgspec.json.Decoder(ToolBody)


class ToolEndpoint:
    """The ASGI application behind `/_tool/{name}`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        if body is None:
            return
        try:
            asked = _BODY.decode(body or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            wrong = msgspec.json.encode({"error": {"message": f"the body: {error}"}})
            await _reply(send, 400, wrong)
            return
        await self._serve(read_request(scope, asked), receive, send)

    async def _serve(self, request: ToolRequest, receive: Receive, send: Send) -> None:
        desk, clock_ns = self._host.tools, self._host.clock_ns
        visit = desk.arrive(clock_ns(), request)
        if visit.effect_due_ns is not None:
            delay_s = max(0, visit.effect_due_ns - clock_ns()) / 1e9
            asyncio.get_running_loop().call_later(delay_s, self._effect, visit)
        if await self._gone_before(visit, receive):
            desk.left(clock_ns(), visit)
            return
        if visit.effect_due_ns is not None:  # the two were due together, and this one came first
            self._effect(visit)
        await _reply(send, *desk.answer(clock_ns(), visit))

    def _effect(self, visit: ToolVisit) -> None:
        if visit.effect_due_ns is not None:
            self._host.tools.effect(self._host.clock_ns(), visit)

    async def _gone_before(self, visit: ToolVisit, receive: Receive) -> bool:
        """Wait until the answer is due; whether the caller left before."""
        due_ns = visit.answer_due_ns
        timeout_s = None if due_ns is None else max(0, due_ns - self._host.clock_ns()) / 1e9
        try:
            async with asyncio.timeout(timeout_s):
                while (await receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            return False
        return True


def read_request(scope: Scope, body: ToolBody) -> ToolRequest:
    """The call, from its address, headers and body."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    return ToolRequest(
        tool=scope["path_params"]["name"],
        key=_text(headers, b"idempotency-key"),
        job=_text(headers, b"x-job-id"),
        step=_number(headers, b"x-job-step"),
        attempt=_number(headers, b"x-attempt"),
        body=body,
    )


def _text(headers: dict[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return value.decode("latin-1")[:256] if value else None


def _number(headers: dict[bytes, bytes], name: bytes) -> int | None:
    text = _text(headers, name)
    return int(text) if text is not None and text.isdecimal() else None


async def _reply(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
