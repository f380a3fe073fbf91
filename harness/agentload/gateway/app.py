"""The gateway's HTTP surface. SHELL.

Starlette routes, with a bare-ASGI endpoint for the hot path (Starlette's own request and response objects
cost a third of it). Health, metrics and debug pages are answered by the loop at once: they never pass
admission.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agentload.gateway import answers, dialects, failures
from agentload.gateway.boundaries import boundaries
from agentload.gateway.core import GatewayCore
from agentload.gateway.dialects import Dialect
from agentload.gateway.dialects.chat import CHAT
from agentload.gateway.driver import Driver
from agentload.gateway.exchange import Exchange
from agentload.gateway.failures import Failure
from agentload.gateway.jobs.endpoint import JobsEndpoint, accept_chat
from agentload.gateway.jobs.figures import figures, view
from agentload.gateway.jobs.reader import prefers_async
from agentload.gateway.jobs.shell import JobsShell
from agentload.gateway.metrics import Metrics, unaccounted
from agentload.gateway.upstream import Upstream, UpstreamUnreachable
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.gauges import gauges
from agentload.scheduler.snapshot import Snapshot
from fake_provider.bounded_http import ABORT


class ModelEndpoint:
    """The endpoint of one dialect; a chat call may also be answered later, as a job."""

    def __init__(self, driver: Driver, dialect: Dialect) -> None:
        self._driver = driver
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, self._driver.core.settings.max_body_bytes)
        if body is None:
            return
        headers = tuple(scope["headers"])
        if self._driver.jobs is not None and self._dialect is CHAT and prefers_async(headers):
            await accept_chat(self._driver, headers, body, send)
        else:
            exchange = Exchange(self._driver, self._dialect, receive, send)
            await exchange.run(headers, body)
            if exchange.unread and ABORT in scope:
                await cut(scope, receive)


async def cut(scope: Scope, receive: Receive) -> None:
    """End the connection, and return when it has ended: an answer that lacks its end is no fault then."""
    scope[ABORT]()
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(receive: Receive, max_bytes: int) -> bytes | None:
    """The request body, or as much of it as shows that it is too long; None when the client left."""
    body = bytearray()
    while len(body) <= max_bytes:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return bytes(body)


class Pages:
    """Everything that is not a model's call."""

    def __init__(self, config: GatewayConfig, driver: Driver, metrics: Metrics) -> None:
        self._config = config
        self._driver = driver
        self._metrics = metrics

    async def healthz(self, _: Request) -> Response:
        """Alive: the loop turns."""
        ailment = self._driver.core.ailment()
        return Response(f"{ailment or 'ok'}\n", 503 if ailment else 200, media_type="text/plain")

    async def readyz(self, _: Request) -> Response:
        """Ready: not shutting down, and not every upstream call fails."""
        problem = self._driver.core.readiness.problem(self._driver.now_ns())
        return Response(f"{problem or 'ready'}\n", 503 if problem else 200, media_type="text/plain")

    async def metrics(self, _: Request) -> Response:
        """Prometheus."""
        return Response(self._metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def queue(self, request: Request) -> Response:
        """What waits and what runs, cheap enough to be read ten times a second."""
        if not _is_local(request):
            return Response(status_code=403)
        return _json(queue_view(self._driver.snapshot(tenants=0), self._driver.core))

    async def scheduler(self, request: Request) -> Response:
        """Everything the scheduler can say about itself, tenants by name: for this machine only."""
        if not _is_local(request):
            return Response(status_code=403)
        core = self._driver.core
        return _json(scheduler_view(self._config.policy, self._driver.snapshot(tenants=100), core))

    async def jobs(self, request: Request) -> Response:
        """Durable jobs in numbers."""
        if self._driver.jobs is None:
            return Response(status_code=404)
        if not _is_local(request):
            return Response(status_code=403)
        return _json(view(self._driver.jobs.front.jobs, self._driver.now_ns()))

    async def models(self, _: Request) -> Response:
        """GET /v1/models: the provider's, not queued."""
        core = self._driver.core
        try:
            status, headers, body = await self._driver.upstream.models()
        except UpstreamUnreachable:
            return _answer(core.answer_to(failures.BY_KIND[failures.FailureKind.CONNECT]))
        if status == 200 or status in failures.CALLERS_FAULT:
            return _answer(answers.passed_on(status, headers, body))
        return _answer(core.answer_to(failures.of_status(status, body)))


async def _no_such_address(request: Request, error: Exception) -> Response:
    """404 and 405 in the form of every other refusal."""
    assert isinstance(error, HTTPException)
    known = error.status_code == 405
    failure = Failure(
        status=error.status_code,
        reason="method_not_allowed" if known else "not_found",
        message=f"{request.method} {request.url.path[:200]} is not served here",
        may_retry=False,
        worked=False,
        upstream=False,
    )
    dialect = dialects.at(request.url.path, request.app.state.dialects, CHAT)
    response = _answer(answers.of_failure(failure, None, dialect=dialect))
    for name, value in (error.headers or {}).items():  # Allow
        response.headers[name] = value
    return response


def _is_local(request: Request) -> bool:
    return request.client is not None and ip_address(request.client.host).is_loopback


def queue_view(snapshot: Snapshot, core: GatewayCore) -> dict[str, Any]:
    """The few numbers that a sampler wants, units last; `now_ns` is CLOCK_MONOTONIC."""
    return {
        "now_ns": snapshot.at_ns,
        **gauges(snapshot),
        "metric_series": core.books.series,
        "waiting_by_class": {name: one.waiting for name, one in snapshot.classes.items()},
        "counters": snapshot.counters,
    }


def scheduler_view(policy: str, seen: Snapshot, core: GatewayCore) -> dict[str, Any]:
    """The snapshot, and what it cannot know: why requests waited, and how slow the models are."""
    causes: dict[str, dict[str, int]] = {}
    for (service_class, cause), count in core.books.causes.items():
        causes.setdefault(service_class, {})[cause] = round(count)
    return {
        "policy": policy,
        **msgspec.to_builtins(seen),
        "queues": [boundary._asdict() for boundary in boundaries(seen)],
        "wait_causes": causes,
        "slowness": core.admission.diagnosis.slowness(),
        "unaccounted": unaccounted(seen, core.books),
    }


def _json(value: Any) -> Response:
    headers = {"cache-control": "no-store"}
    return Response(msgspec.json.encode(value), media_type="application/json", headers=headers)


def _answer(answer: answers.Answer) -> Response:
    response = Response(answer.body, answer.status)
    response.raw_headers = list(answer.headers)
    return response


def build_app(
    config: GatewayConfig, core: GatewayCore, upstream: Upstream, jobs: JobsShell | None = None
) -> Starlette:
    """The gateway as an ASGI application; connections to the provider live as long as its lifespan."""
    driver = Driver(core, upstream, jobs)
    spoken = [CHAT, *(one for one in dialects.every() if one.path != CHAT.path)]
    jobs_endpoint = JobsEndpoint(driver, read_body)
    metrics = Metrics(core.books, lambda: driver.snapshot(tenants=0))
    if jobs is not None:
        metrics.jobs = lambda: figures(jobs.front.jobs, driver.now_ns())
    pages = Pages(config, driver, metrics)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with upstream:
            if jobs is None:
                yield
            else:
                async with jobs.running(upstream, driver.feed):
                    yield

    app = Starlette(
        routes=[
            *(Route(one.path, ModelEndpoint(driver, one), methods=["POST"]) for one in spoken),
            Route("/v1/jobs", jobs_endpoint, methods=["POST"]),
            Route("/v1/jobs/{id}", jobs_endpoint, methods=["GET", "DELETE"]),
            Route("/v1/models", pages.models),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/metrics", pages.metrics),
            Route("/debug/queue", pages.queue),
            Route("/debug/jobs", pages.jobs),
            Route("/debug/scheduler", pages.scheduler),
        ],
        lifespan=lifespan,
        exception_handlers={404: _no_such_address, 405: _no_such_address},
    )
    app.router.redirect_slashes = False  # an address with a slash too many is a 404 in JSON, too
    app.state.driver = driver
    app.state.dialects = spoken
    return app
