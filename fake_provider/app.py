"""The Starlette application: which path leads where."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import cast

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fake_provider import (
    anthropic,
    openai,
    openai_background,
    openai_common,
    openai_embeddings,
    openai_responses,
)
from fake_provider.control import Control
from fake_provider.endpoint import Endpoint
from fake_provider.host import Host
from fake_provider.tool_endpoint import ToolEndpoint
from fake_provider.wire import Unreadable


class Front:
    """Calls go straight to their endpoints: routing and middleware are a tenth of a call's cost."""

    def __init__(self, calls: Mapping[str, ASGIApp], others: Starlette) -> None:
        self._calls = calls
        self._others = others

    @property
    def routes(self) -> list[BaseRoute]:
        """All addresses that are served, those of the calls among them."""
        return self._others.routes

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        app = self._calls.get(scope["path"]) if scope.get("method") == "POST" else None
        return (app or self._others)(scope, receive, send)


def build(host: Host, control_token: str | None = None) -> Front:
    """The application, for `transport.LendingProtocol` and the loop in which `host` was started."""
    chat = Endpoint(host, openai.OpenAIChat(host.provider.epoch_ns))
    responses = openai_background.Responses(host, openai_responses.OpenAIResponses(host.provider.epoch_ns))
    messages = anthropic.AnthropicMessages()
    models = Models(host)
    calls: dict[str, ASGIApp] = {
        "/v1/chat/completions": chat,
        "/chat/completions": chat,
        "/v1/responses": responses,
        "/v1/messages": Endpoint(host, messages),
        "/v1/embeddings": Endpoint(host, openai_embeddings.OpenAIEmbeddings(host.provider.epoch_ns)),
    }
    others = Starlette(
        routes=[
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in calls.items()),
            Route("/v1/responses/{name}", responses.one, methods=["GET"]),
            Route("/v1/responses/{name}/cancel", responses.cancel, methods=["POST"]),
            Route("/v1/messages/count_tokens", Tokens(messages).count, methods=["POST"]),
            Route("/v1/models", models.all, methods=["GET"]),
            Route("/v1/models/{name:path}", models.one, methods=["GET"]),
            Route("/_tool/{name}", ToolEndpoint(host), methods=["POST"]),
            *Control(host, control_token).routes(),
            Route("/{path:path}", Unknown(host).answer, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ]
    )
    return Front(calls, others)


class Models:
    """`/v1/models`. These are not calls: no limit holds for them and the ledger does not list them."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def all(self, request: Request) -> Response:
        """The models that the configuration names."""
        names = self._host.provider.config.models
        return _json(anthropic.models_body(names) if _anthropic(request) else openai.models_body(names))

    async def one(self, request: Request) -> Response:
        """One model, or a 404."""
        name, theirs = cast(str, request.path_params["name"]), _anthropic(request)
        if self._host.provider.serves(name):
            return _json(anthropic.model_body(name) if theirs else openai.model_body(name))
        if theirs:
            return Response(anthropic.not_found(f"model: {name}"), 404, media_type="application/json")
        body = openai_common.error_body(
            openai_common.model_not_found(name), "invalid_request_error", "model_not_found", "model"
        )
        return Response(body, 404, media_type="application/json")


class Tokens:
    """`/v1/messages/count_tokens`. No call either: Anthropic has a limit of its own for it."""

    def __init__(self, wire: anthropic.AnthropicMessages) -> None:
        self._wire = wire

    async def count(self, request: Request) -> Response:
        """`{input_tokens}`, or Anthropic's 400."""
        try:
            asked = self._wire.parse(dict(request.headers.raw), await request.body(), needs_limit=False)
        except Unreadable as wrong:
            return Response(wrong.body, wrong.status, media_type="application/json")
        return Response(anthropic.tokens_body(asked), media_type="application/json")


class Unknown:
    """Any other address. A POST there was meant as a call (a moderation, say): an invalid one."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def answer(self, request: Request) -> Response:
        """OpenAI's 404, or Anthropic's."""
        path, headers, theirs = request.url.path, dict(request.headers.raw), _anthropic(request)
        if request.method == "POST":
            unread = anthropic.unread if theirs else openai_common.unread
            call = unread(headers, endpoint=path.removeprefix("/v1/").strip("/"))
            self._host.provider.invalid(self._host.clock_ns(), call, 404)
        if theirs:
            return Response(anthropic.not_found("Not Found"), 404, media_type="application/json")
        body = openai_common.error_body(
            f"Unknown request URL: {request.method} {path}.", "invalid_request_error", "unknown_url"
        )
        return Response(body, 404, media_type="application/json")


def _anthropic(request: Request) -> bool:
    """Whoever names Anthropic's version is answered as Anthropic would."""
    return "anthropic-version" in request.headers


def _json(data: object) -> Response:
    return Response(msgspec.json.encode(data), media_type="application/json")
