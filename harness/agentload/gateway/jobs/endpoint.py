"""`/v1/jobs` over ASGI. SHELL: a request is an event, and its answer is the `Respond` that follows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from agentload.gateway.answers import Answer
from agentload.gateway.headers import Headers
from agentload.gateway.jobs import views
from agentload.gateway.jobs.front import FrontEvent
from agentload.gateway.jobs.protocol import ChatPosted, JobAsked, JobDeleted, JobPosted
from agentload.gateway.protocol import Action, Respond

if TYPE_CHECKING:
    from agentload.gateway.driver import Driver

ReadBody = Callable[[Receive, int], Awaitable[bytes | None]]


class _Inquiry:
    """One request that is answered by one Respond."""

    def __init__(self, request_id: int) -> None:
        self.request_id = request_id
        self.answer: asyncio.Future[Respond] = asyncio.get_running_loop().create_future()

    def put(self, action: Action) -> None:
        """Take an action of the core's."""
        if isinstance(action, Respond) and not self.answer.done():
            self.answer.set_result(action)


class JobsEndpoint:
    """POST /v1/jobs, and GET and DELETE /v1/jobs/{id}."""

    def __init__(self, driver: Driver, read_body: ReadBody) -> None:
        self._driver = driver
        self._read_body = read_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = tuple(scope["headers"])
        if self._driver.jobs is None:
            return await answer(send, views.refusal(views.JOBS_OFF))
        if scope["method"] == "POST":
            body = await self._read_body(receive, self._driver.core.settings.max_body_bytes)
            if body is not None:
                await ask(self._driver, send, lambda number: JobPosted(number, headers, body))
            return None
        job_id = str(scope["path_params"]["id"])
        kind = JobDeleted if scope["method"] == "DELETE" else JobAsked
        return await ask(self._driver, send, lambda number: kind(number, headers, job_id))


async def accept_chat(driver: Driver, headers: Headers, body: bytes, send: Send) -> None:
    """A chat call whose caller would rather be told later."""
    await ask(driver, send, lambda number: ChatPosted(number, headers, body))


async def ask(driver: Driver, send: Send, event: Callable[[int], FrontEvent]) -> None:
    """Feed the event that belongs to a number, and send what is answered under that number."""
    inquiry = _Inquiry(driver.next_id())
    driver.attach(inquiry)
    try:
        driver.feed(event(inquiry.request_id))
        said = await inquiry.answer
    finally:
        driver.detach(inquiry)
    await answer(send, Answer(said.status, said.headers, said.body))


async def answer(send: Send, said: Answer) -> None:
    """Send a whole answer."""
    await send({"type": "http.response.start", "status": said.status, "headers": list(said.headers)})
    await send({"type": "http.response.body", "body": said.body})
