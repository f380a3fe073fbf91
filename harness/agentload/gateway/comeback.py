"""What a refused client is told of coming back: when, and with which envelope. PURE.

A retry is new demand that must be known again: the envelope holds what the client has to send with it. Its
fields are those of the article, and each has its way back in: `X-Attempt`, `X-Max-Attempts`, `X-Not-Before`,
`X-Deadline-Ms` (which is relative), `Idempotency-Key`, `X-Service-Class`, `X-Workflow`.
"""

from __future__ import annotations

from random import Random

import msgspec

from agentload.gateway import failures
from agentload.gateway.failures import Failure
from agentload.model import NS
from agentload.scheduler.admission import Admission
from agentload.scheduler.config import RetryConfig
from agentload.scheduler.wall_clock import WallClock
from agentload.scheduler.work import Request


class RetryEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """The body's `retry`, beside its `error`."""

    tenant_id: str
    service_class: str
    workflow: str
    attempt: int
    """Of the retry: the refused one was one less."""
    max_attempts: int
    """The retry is refused for good when its attempt is as high as this."""
    not_before: str
    """RFC 3339."""
    deadline: str | None
    """RFC 3339. None: it has none."""
    estimated_work_units: float
    idempotency_key: str | None
    """As it was sent."""


class Comeback:
    """Makes promises and envelopes for the clients of one gateway."""

    def __init__(self, admission: Admission, config: RetryConfig, random: Random, wall: WallClock) -> None:
        self._admission = admission
        self._config = config
        self._random = random
        self._wall = wall

    def seconds(self, now_ns: int, failure: Failure, request: Request, pause_ns: int | None) -> int | None:
        """When to come back, in whole seconds; None when there is no promise to make.

        What the scheduler has worked out or, for a call that has failed, a place in the same virtual queue;
        `pause_ns` is how long the provider wants nothing. While it shuts down, the gateway has no places to
        give away, and says how long a start usually takes.
        """
        if failure.retry_after_s is not None or not failure.retry_after:
            return failure.retry_after_s
        if failure is failures.SHUTTING_DOWN:
            return failures.retry_after_s(failure, pause_ns, self._config, self._random)
        return self._admission.come_back_s(now_ns, request, pause_ns)

    def envelope(self, now_ns: int, request: Request, seconds: int) -> RetryEnvelope:
        """For a client that was told to come back after so many seconds."""
        most, own, deadline_ns = self._config.max_attempts, request.max_attempts, request.deadline_ns
        return RetryEnvelope(
            tenant_id=request.tenant,
            service_class=request.service_class,
            workflow=request.workflow,
            attempt=request.attempt + 1,
            max_attempts=most if own is None else min(own, most),
            not_before=self._wall.text(now_ns + seconds * NS),
            deadline=None if deadline_ns is None else self._wall.text(deadline_ns),
            estimated_work_units=round(self._admission.expected_units(request), 3),
            idempotency_key=request.idempotency_key,
        )
