"""Carries out what the jobs want done: saves, calls the provider, calls tools. SHELL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager

from agentload.gateway.failures import FailureKind
from agentload.gateway.jobs.front import FrontAction, FrontEvent, JobsFront
from agentload.gateway.jobs.model import Job, JobState
from agentload.gateway.jobs.protocol import (
    CancelTool,
    JobEnded,
    Persist,
    Recovered,
    StartTool,
    ToolFailed,
)
from agentload.gateway.jobs.store import JobStore
from agentload.gateway.jobs.tool_client import ToolClient
from agentload.gateway.jobs.writer import StoreWriter
from agentload.gateway.log_lines import FIELDS, job_fields
from agentload.gateway.protocol import CancelUpstream, StartUpstream, UpstreamFailed
from agentload.gateway.upstream import Upstream, UpstreamEvent

LOG = logging.getLogger("agentload.gateway")
Feed = Callable[[FrontEvent], None]


class JobsShell:
    """The store and the calls of one gateway's jobs."""

    def __init__(self, front: JobsFront, store: JobStore, found: Sequence[Job], tools: ToolClient) -> None:
        """`found`: what was in the store."""
        self.front = front
        self._found = tuple(found)
        self._store = store
        self._tools = tools
        self._upstream: Upstream | None = None
        self._feed: Feed | None = None
        self._writer: StoreWriter | None = None
        self._calls: dict[int, asyncio.Task[None]] = {}
        """Under way, by the id of the request or of the call of the tool."""

    @asynccontextmanager
    async def running(self, upstream: Upstream, feed: Feed) -> AsyncGenerator[None]:
        """Take up what was found in the store; in the end, write what has gathered."""
        self._upstream, self._feed = upstream, feed
        async with self._tools:
            self._writer = StoreWriter(self._store, feed)
            feed(Recovered(self._found))
            self._found = ()
            try:
                yield
            finally:
                for call in list(self._calls.values()):
                    call.cancel()
                await self._writer.close()
                self._store.close()

    def takes(self, action: FrontAction) -> bool:
        """Whether this is for us: a job's action, or the call of a chat step (its ids are negative)."""
        return isinstance(action, Persist | StartTool | CancelTool | JobEnded) or action.request_id < 0

    def carry_out(self, action: FrontAction) -> None:
        """Do one thing. Never waits."""
        match action:
            case Persist():
                assert self._writer is not None
                self._writer.put(action)
            case StartTool():
                self._begin(action.call_id, self._call_tool(action))
            case CancelTool():
                self._cancel(action.call_id)
            case StartUpstream():
                self._begin(action.request_id, self._call_upstream(action))
            case CancelUpstream():
                self._cancel(action.request_id)
            case JobEnded():
                log_end(action)
            case _:
                pass  # a Record: counted already

    def _begin(self, call_id: int, call: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(call)
        self._calls[call_id] = task
        task.add_done_callback(lambda done: self._ended(call_id, done))

    def _ended(self, call_id: int, done: asyncio.Task[None]) -> None:
        if self._calls.get(call_id) is done:
            del self._calls[call_id]

    def _cancel(self, call_id: int) -> None:
        call = self._calls.pop(call_id, None)
        if call is not None:
            call.cancel()

    async def _call_tool(self, start: StartTool) -> None:
        assert self._feed is not None
        try:
            news = await self._tools.call(start)
        except Exception as error:
            LOG.exception("the call of tool %s failed in an unforeseen way", start.name)
            news = ToolFailed(start.call_id, "tool_unreachable", type(error).__name__)
        self._feed(news)

    async def _call_upstream(self, start: StartUpstream) -> None:
        assert self._feed is not None
        assert self._upstream is not None
        try:
            await self._upstream.run(
                start.request_id, start.call, start.connect_timeout_ns, self._on_upstream
            )
        except Exception:
            LOG.exception(
                "request=%d: the call to the provider failed in an unforeseen way", start.request_id
            )
            self._feed(UpstreamFailed(start.request_id, FailureKind.BROKEN))

    async def _on_upstream(self, event: UpstreamEvent) -> None:
        assert self._feed is not None
        self._feed(event)


def log_end(ended: JobEnded) -> None:
    """One line for each job that ended other than completed."""
    job = ended.job
    if job.state is not JobState.COMPLETED:
        LOG.info("job", extra={FIELDS: job_fields(job)})
