"""What a fault of the provider's own program may cost: one answer, never a slot."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from fake_provider.call import Call
from fake_provider.config import ProviderConfig
from fake_provider.core import Provider
from fake_provider.endpoint import Endpoint
from fake_provider.host import Host
from fake_provider.ledger import Ending
from fake_provider.openai import OpenAIChat
from fake_provider.server import listen
from fake_provider.transport import LendingProtocol
from provider_helpers import marked


class BrokenChat(OpenAIChat):
    """A wire format with a bug."""

    def whole(self, call: Call) -> bytes:
        raise RuntimeError("a bug")


async def post(port: int, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /chat HTTP/1.1\r\nHost: x\r\nConnection: close\r\n")
    writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    received = await reader.read()
    writer.close()
    await writer.wait_closed()
    return received


def test_a_bug_while_answering_frees_the_slot_and_is_recorded(caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider(ProviderConfig.model_validate({"slots": 1, "latency": {"first_token_ms": 0}}))
    answers: list[bytes] = []

    async def go() -> None:
        app = Starlette(routes=[Route("/chat", Endpoint(Host(provider), BrokenChat()), methods=["POST"])])
        config = uvicorn.Config(
            app, http=LendingProtocol, ws="none", loop="none", lifespan="off", log_config=None
        )
        server = uvicorn.Server(config)
        with listen("127.0.0.1", 0) as sock:
            serving = asyncio.create_task(server.serve(sockets=[sock]))
            port = sock.getsockname()[1]
            body = json.dumps(marked(output=1)).encode()
            answers.extend([await post(port, body), await post(port, body)])
            server.should_exit = True
            await serving

    with caplog.at_level(logging.CRITICAL):
        asyncio.run(go())
    # The second call found the only slot free again: 503 would say that it did not.
    assert [answer.split()[1] for answer in answers] == [b"500", b"500"]
    assert provider.in_service == 0
    assert [(entry.ending, entry.reason) for entry in provider.ledger.entries] == [(Ending.CUT, "bug")] * 2
    assert provider.ledger.counts.conserved()
