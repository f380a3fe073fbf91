"""A GatewayCore and a JobsCore as one: the same `handle` and `next_wakeup_ns` as a GatewayCore alone. PURE.

A chat step is a request at the gateway's own core, under a negative id: it waits, is refused, is called,
times out and is charged as anybody's. Two things are different. Its call to the provider is held back until
its lease is safe; and its answer goes to the job. So outside only the call itself is seen (`StartUpstream`,
`CancelUpstream`) and its `Record`.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from agentload.gateway.core import GatewayCore
from agentload.gateway.jobs.at_work import CoreAction
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.ends import of_chat
from agentload.gateway.jobs.protocol import (
    ChatPosted,
    JobAction,
    JobAsked,
    JobDeleted,
    JobEvent,
    JobPosted,
    JobSubmitted,
    Recovered,
    Stored,
    StoreFailed,
    ToolAnswered,
    ToolFailed,
)
from agentload.gateway.jobs.wishes import AskAdmission, CallOff, LetGo
from agentload.gateway.protocol import (
    Action,
    CancelUpstream,
    ClientLeft,
    Drain,
    Event,
    Record,
    Respond,
    StartUpstream,
    Stop,
    Submitted,
    Tick,
)

FrontEvent: TypeAlias = Event | JobEvent
FrontAction: TypeAlias = Action | JobAction
_JOB_EVENTS = (
    Recovered,
    JobPosted,
    ChatPosted,
    JobSubmitted,
    JobAsked,
    JobDeleted,
    Stored,
    StoreFailed,
    ToolAnswered,
    ToolFailed,
)


class JobsFront:
    """One gateway with jobs."""

    def __init__(self, core: GatewayCore, jobs: JobsCore) -> None:
        self.core = core
        self.jobs = jobs
        self._held: dict[int, StartUpstream] = {}
        """Calls that wait for their lease."""
        self._let_go: dict[int, None] = {}
        """Requests whose lease is safe."""
        self.asked = 0
        """Requests that jobs have put before admission."""
        self._answers: dict[int, Respond] = {}

    @property
    def busy(self) -> bool:
        """Whether anything is under way that a drain should wait for."""
        return bool(self.core.open_requests or self.jobs.in_service)

    def handle(self, now_ns: int, event: FrontEvent) -> list[FrontAction]:
        """Take one event; everything that is to be done now, in order."""
        pending: deque[Action | CoreAction] = deque()
        if isinstance(event, _JOB_EVENTS):
            pending.extend(self.jobs.handle(now_ns, event))
        else:
            if isinstance(event, Tick | Drain | Stop):
                pending.extend(self.jobs.handle(now_ns, event))
                if isinstance(event, Drain | Stop):
                    # What the jobs give back must be gone before the core ends what is left.
                    out = self._settle(now_ns, pending)
                    pending.extend(self.core.handle(now_ns, event))
                    return out + self._settle(now_ns, pending)
            pending.extend(self.core.handle(now_ns, event))
        return self._settle(now_ns, pending)

    def next_wakeup_ns(self) -> int | None:
        """When to send a Tick at the latest; None when only another event can change anything."""
        core, jobs = self.core.next_wakeup_ns(), self.jobs.next_wakeup_ns()
        if core is None or jobs is None:
            return jobs if core is None else core
        return min(core, jobs)

    def _settle(self, now_ns: int, pending: deque[Action | CoreAction]) -> list[FrontAction]:
        """Carry what passes between the two, until only what is for outside is left."""
        out: list[FrontAction] = []
        while pending:
            action = pending.popleft()
            match action:
                case AskAdmission():
                    self.asked += 1
                    submitted = Submitted(action.request_id, action.envelope)
                    pending.extend(self.core.handle(now_ns, submitted))
                case LetGo():
                    self._release(action.request_id, out)
                case CallOff():
                    self._held.pop(action.request_id, None)
                    pending.extend(self.core.handle(now_ns, ClientLeft(action.request_id)))
                case Respond() if action.request_id < 0:
                    self._answers[action.request_id] = action
                case Record() if action.request_id < 0:
                    out.append(action)
                    pending.extend(self._ended(now_ns, action))
                case StartUpstream() if action.request_id < 0 and action.request_id not in self._let_go:
                    self._held[action.request_id] = action
                    pending.extend(self.jobs.chat_granted(now_ns, action.request_id))
                case CancelUpstream() if action.request_id < 0 and action.request_id not in self._let_go:
                    self._held.pop(action.request_id, None)
                case _:
                    out.append(action)
        return out

    def _release(self, request_id: int, out: list[FrontAction]) -> None:
        start = self._held.pop(request_id, None)
        self._let_go[request_id] = None
        if start is not None:
            out.append(start)

    def _ended(self, now_ns: int, record: Record) -> list[CoreAction]:
        respond = self._answers.pop(record.request_id, None)
        self._held.pop(record.request_id, None)
        self._let_go.pop(record.request_id, None)
        end = of_chat(record, respond, self.jobs.settings.max_output_bytes)
        return self.jobs.chat_ended(now_ns, record.request_id, end)
