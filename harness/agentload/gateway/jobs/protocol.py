"""What goes into the jobs' core (events) and what comes out of it (actions). PURE.

Requests over HTTP are answered with `gateway.protocol.Respond`; chat steps are requests of their own at the
gateway's core, under negative ids, and their `StartUpstream` and `CancelUpstream` are carried out as any.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from agentload.gateway.headers import Headers
from agentload.gateway.jobs.model import Job, JobSpec
from agentload.gateway.jobs.store import Change, Outcome

# --------------------------------------------------------------------------- events in


class Recovered(msgspec.Struct, frozen=True):
    """The store has been read: once, before anything else. Its leases are of processes that have ended."""

    jobs: tuple[Job, ...]


class JobPosted(msgspec.Struct, frozen=True):
    """POST /v1/jobs, as it came over the wire."""

    request_id: int
    headers: Headers
    body: bytes


class ChatPosted(msgspec.Struct, frozen=True):
    """A chat call with `Prefer: respond-async`, as it came over the wire."""

    request_id: int
    headers: Headers
    body: bytes


class JobSubmitted(msgspec.Struct, frozen=True):
    """A job that needs no parsing (the simulator's)."""

    request_id: int
    spec: JobSpec


class JobAsked(msgspec.Struct, frozen=True):
    """GET /v1/jobs/ID."""

    request_id: int
    headers: Headers
    job_id: str


class JobDeleted(msgspec.Struct, frozen=True):
    """DELETE /v1/jobs/ID."""

    request_id: int
    headers: Headers
    job_id: str


class Stored(msgspec.Struct, frozen=True):
    """A batch is safe; what became of each of its changes, in order."""

    batch: int
    outcomes: tuple[Outcome, ...]


class StoreFailed(msgspec.Struct, frozen=True):
    """A batch is not in the store, not in part either."""

    batch: int
    message: str = ""


class ToolAnswered(msgspec.Struct, frozen=True):
    """A tool has answered, whole."""

    call_id: int
    status: int
    headers: Headers = ()
    body: bytes = b""


class ToolFailed(msgspec.Struct, frozen=True):
    """A tool has not answered: no connection, a broken one, no time left."""

    call_id: int
    reason: str
    message: str


JobEvent: TypeAlias = (
    Recovered
    | JobPosted
    | ChatPosted
    | JobSubmitted
    | JobAsked
    | JobDeleted
    | Stored
    | StoreFailed
    | ToolAnswered
    | ToolFailed
)


# --------------------------------------------------------------------------- actions out


class Persist(msgspec.Struct, frozen=True):
    """Commit these changes, and say `Stored` or `StoreFailed` with this number. Batches are made in order."""

    batch: int
    changes: tuple[Change, ...]


class StartTool(msgspec.Struct, frozen=True, kw_only=True):
    """POST to the tool, and say `ToolAnswered` or `ToolFailed`."""

    call_id: int
    name: str
    headers: Headers
    body: bytes
    connect_timeout_ns: int
    timeout_ns: int
    """For the whole call; the core gives up by itself then, too."""


class CancelTool(msgspec.Struct, frozen=True):
    """Close the call of the tool now."""

    call_id: int


class JobEnded(msgspec.Struct, frozen=True):
    """A job has ended and this is safe: for metrics and the log. Exactly one for each."""

    job: Job


JobAction: TypeAlias = Persist | StartTool | CancelTool | JobEnded
