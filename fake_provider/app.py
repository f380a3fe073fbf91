"""The Starlette application: which path leads where."""

from __future__ import annotations

import time
from typing import cast

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fake_provider import openai
from fake_provider.control import Control
from fake_provider.endpoint import Endpoint
from fake_provider.host import Host
from fake_provider.tool_endpoint import ToolEndpoint


def build(host: Host, control_token: str | None = None) -> Starlette:
    """The application, for `transport.LendingProtocol` and the loop in which `host` was started."""
    chat = Endpoint(host, openai.OpenAIChat(epoch_ns=time.time_ns() - host.clock_ns()))
    models = Models(host)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", models.all, methods=["GET"]),
            Route("/v1/models/{name:path}", models.one, methods=["GET"]),
            Route("/_tool/{name}", ToolEndpoint(host), methods=["POST"]),
            *Control(host, control_token).routes(),
            Route("/{path:path}", Unknown(host).answer, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ]
    )


class Models:
    """`/v1/models`. These are not calls: no limit holds for them and the ledger does not list them."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def all(self, _: Request) -> Response:
        """The models that the configuration names."""
        return _json(openai.models_body(self._host.provider.config.models))

    async def one(self, request: Request) -> Response:
        """One model, or OpenAI's 404."""
        name = cast(str, request.path_params["name"])
        if self._host.provider.serves(name):
            return _json(openai.model_body(name))
        body = openai.error_body(
            openai.model_not_found(name), "invalid_request_error", "model_not_found", "model"
        )
        return Response(body, 404, media_type="application/json")


class Unknown:
    """Any other address. A POST there was meant as a call (embeddings, say): it counts as an invalid one."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def answer(self, request: Request) -> Response:
        """OpenAI's 404."""
        path = request.url.path
        if request.method == "POST":
            headers = dict(request.headers.raw)
            call = openai.unread(headers, endpoint=path.removeprefix("/v1/").strip("/"))
            self._host.provider.invalid(self._host.clock_ns(), call, 404)
        body = openai.error_body(
            f"Unknown request URL: {request.method} {path}.", "invalid_request_error", "unknown_url"
        )
        return Response(body, 404, media_type="application/json")


def _json(data: object) -> Response:
    return Response(msgspec.json.encode(data), media_type="application/json")
