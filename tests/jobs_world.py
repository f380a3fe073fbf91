"""Gateways with durable jobs in virtual time, without sockets: they can be killed at any point.

What the shells do with threads and sockets is done here by hand: batches wait until they are flushed, calls
wait until they are answered. A killed gateway leaves its calls behind: the tools go on, as real ones do.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from agentload.gateway.core import GatewayCore
from agentload.gateway.headers import first
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.front import FrontEvent, JobsFront
from agentload.gateway.jobs.model import Job, JobState
from agentload.gateway.jobs.protocol import (
    CancelTool,
    JobAsked,
    JobDeleted,
    JobPosted,
    Persist,
    Recovered,
    StartTool,
    Stored,
    StoreFailed,
    ToolAnswered,
)
from agentload.gateway.jobs.store import Change, Outcome, Renew, Update
from agentload.gateway.jobs.stores.memory import MemoryStore
from agentload.gateway.protocol import (
    CancelUpstream,
    Respond,
    StartUpstream,
    Tick,
    UpstreamData,
    UpstreamEnded,
    UpstreamHeaders,
)
from agentload.gateway.settings import GatewaySettings
from agentload.model import NS
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig, RetryConfig
from agentload.scheduler.jobs_config import JobsSettings

JSON = ((b"content-type", b"application/json"),)
ANSWER = b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":5}}'
EPOCH_NS = 1_700_000_000 * NS


def chat_step(text: str = "hello", max_tokens: int = 8) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"chat": {"model": "m", "messages": messages, "max_tokens": max_tokens}}


def tool_step(name: str = "save", **more: Any) -> dict[str, Any]:
    return {"tool": {"name": name, "seconds": 0.1, "side_effect": True, **more}}


class WatchedStore(MemoryStore):
    """Fails the test when an ended row changes, or a result comes from anybody but the holder."""

    writer = ""

    def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        before = dict(self.rows)
        outcomes = super().commit(changes)
        for change in changes:
            if isinstance(change, Update):
                self._check(before.get(change.job.id), self.rows.get(change.job.id))
                before[change.job.id] = self.rows[change.job.id]
        return outcomes

    def _check(self, old: Job | None, new: Job | None) -> None:
        assert old is not None
        assert new is not None
        if old.state.ended:
            assert new == old, "an ended job changed"
        if len(new.results) > len(old.results):
            assert old.state is JobState.RUNNING
            assert old.owner == self.writer, "a stale holder's result won"


class Process:
    """One gateway process."""

    def __init__(self, world: World, number: int) -> None:
        config, random = world.config, Random(number)
        core = GatewayCore(config, GatewaySettings(), random)
        jobs = world.core(config, world.settings, GatewaySettings(), random, wall_offset_ns=EPOCH_NS)
        self.world = world
        self.front = JobsFront(core, jobs)
        self.owner = jobs._owner
        self.batches: list[Persist] = []
        self.chats: dict[int, StartUpstream] = {}
        self.tools: dict[int, StartTool] = {}
        self.answers: dict[int, Respond] = {}
        self.cancelled_chats = 0

    def feed(self, event: FrontEvent) -> None:
        for action in self.front.handle(self.world.now_ns, event):
            match action:
                case Persist():
                    self.batches.append(action)
                case StartUpstream():
                    self.chats[action.request_id] = action
                case CancelUpstream():
                    self.cancelled_chats += self.chats.pop(action.request_id, None) is not None
                case StartTool():
                    self.tools[action.call_id] = action
                    self.world.tool_called(action)
                case CancelTool():
                    self.tools.pop(action.call_id, None)
                case Respond():
                    self.answers[action.request_id] = action
                case _:
                    pass

    def tick(self) -> None:
        """Tell it the time, as often as it wants to be told."""
        for _ in range(10_000):
            due_ns = self.front.next_wakeup_ns()
            if due_ns is None or due_ns > self.world.now_ns:
                return
            self.feed(Tick())
        raise AssertionError("it wants to be told the same time for ever")

    def write_late(self) -> None:
        """A process that was only slow, and has been replaced, writes what it thinks became of its jobs.

        (A store that lets in one process at a time would take nothing from it; this one has only tokens.)
        """
        self.world.store.writer = self.owner
        batches, self.batches = self.batches, []
        for batch in batches:
            late = [one for one in batch.changes if isinstance(one, Renew) or _settles(one)]
            self.world.store.commit(late)

    def flush(self, *, tell: bool = True) -> None:
        """Make what has gathered safe; `tell`: and say so."""
        batches, self.batches = self.batches, []
        self.world.store.writer = self.owner
        for batch in batches:
            self.world.store.put(batch.batch, batch.changes)
        for number, outcomes in self.world.store.flush():
            if tell and outcomes is None:
                self.feed(StoreFailed(number))
            elif tell and outcomes is not None:
                self.feed(Stored(number, tuple(outcomes)))

    def answer_chat(self, request_id: int, status: int = 200) -> None:
        del self.chats[request_id]
        body = ANSWER if status == 200 else b'{"error":{"message":"no"}}'
        self.feed(UpstreamHeaders(request_id, status, JSON))
        self.feed(UpstreamData(request_id, body))
        self.feed(UpstreamEnded(request_id))

    def answer_tool(self, call_id: int, status: int = 200) -> None:
        call = self.tools.pop(call_id)
        if status == 200:
            self.world.tool_done(call)
        self.feed(ToolAnswered(call_id, status, (), b'{"ok":true}'))


class World:
    """The store, the tools, and the process that is alive."""

    def __init__(
        self,
        *,
        slots: int = 2,
        max_queue: int = 4,
        full: str = "defer",
        core: type[JobsCore] = JobsCore,
        store: type[WatchedStore] = WatchedStore,
        **settings: Any,
    ) -> None:
        self.core = core
        classes = {"standard": ClassConfig(max_queue=max_queue, max_wait_s=5, response_when_full=full)}
        self.config = GatewayConfig(
            pools={"shared": PoolConfig(slots=slots, tenant_slots=slots, classes=classes)},
            retry=RetryConfig(base_seconds=0.5, max_seconds=4),
        )
        self.settings = JobsSettings(**({"lease_s": 2.0, "max_attempts": 3, "deadline_s": 120.0} | settings))
        self.now_ns = 0
        self.store = store()
        self.keys: dict[tuple[str, str], set[str]] = {}
        """Idempotency keys that each step of each job was called with."""
        self.effects: Counter[str] = Counter()
        """Of an idempotent tool, by key."""
        self.duplicates = 0
        self.calls = 0
        """Of tools."""
        self.accepted: list[str] = []
        self.requests = 0
        self.processes = 0
        self.process: Process | None = None
        self.start()

    @property
    def alive(self) -> Process:
        assert self.process is not None
        return self.process

    def start(self) -> None:
        """A new process finds what is in the store."""
        self.processes += 1
        self.process = Process(self, self.processes)
        self.process.feed(Recovered(tuple(self.store.load())))

    def kill(self) -> Process:
        """It is gone, with what it had not flushed. Returned for those who want it to be a zombie."""
        killed, self.process = self.alive, None
        return killed

    def post(
        self, steps: list[dict[str, Any]], tenant: str = "t", key: str | None = None, **more: Any
    ) -> int:
        self.requests += 1
        headers = [(b"x-tenant", tenant.encode())]
        if key is not None:
            headers.append((b"idempotency-key", key.encode()))
        body = json.dumps({"steps": steps, **more}).encode()
        self.alive.feed(JobPosted(self.requests, tuple(headers), body))
        return self.requests

    def get(self, job_id: str, tenant: str = "t") -> Respond:
        self.requests += 1
        self.alive.feed(JobAsked(self.requests, ((b"x-tenant", tenant.encode()),), job_id))
        return self.alive.answers[self.requests]

    def delete(self, job_id: str, tenant: str = "t") -> int:
        self.requests += 1
        self.alive.feed(JobDeleted(self.requests, ((b"x-tenant", tenant.encode()),), job_id))
        return self.requests

    def accept(self, steps: list[dict[str, Any]], **more: Any) -> str:
        """Post and flush; the id of the job, which was accepted."""
        number = self.post(steps, **more)
        self.alive.flush()
        answer = self.alive.answers[number]
        assert answer.status == 202, answer.body
        return str(json.loads(answer.body)["id"])

    def advance(self, seconds: float, *, told: bool = True) -> None:
        self.now_ns += round(seconds * NS)
        if told and self.process is not None:
            self.process.tick()

    def tool_called(self, call: StartTool) -> None:
        self.calls += 1
        job, step = first(call.headers, b"x-job-id"), first(call.headers, b"x-job-step")
        assert job is not None
        assert step is not None
        key = first(call.headers, b"idempotency-key") or "none"
        self.keys.setdefault((job, step), set()).add(key)

    def tool_done(self, call: StartTool) -> None:
        key = first(call.headers, b"idempotency-key") or "none"
        if self.effects[key]:
            self.duplicates += 1
        else:
            self.effects[key] += 1

    def settle(self, most: int = 2_000) -> None:
        """Answer everything well until nothing is open."""
        for _ in range(most):
            process = self.alive
            process.flush()
            for request_id in list(process.chats):
                process.answer_chat(request_id)
            for call_id in list(process.tools):
                process.answer_tool(call_id)
            if not process.batches and all(job.state.ended for job in self.store.rows.values()):
                return
            self.advance(0.1)
        raise AssertionError(
            f"still open: {[job for job in self.store.rows.values() if not job.state.ended]}"
        )


def _settles(change: Change) -> bool:
    return isinstance(change, Update) and change.job.state is not JobState.RUNNING


def body(answer: Respond) -> dict[str, Any]:
    return dict(json.loads(answer.body))
