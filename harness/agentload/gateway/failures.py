"""What a failure means for the client: which status, which reason, whether to come back. PURE.

A provider's refusal is never handed on as the tenant's own 429, its 401 is about our key and not the
tenant's, and its 500 is our 502: the client can do nothing about any of them, and must not be told that it
can.
"""

from __future__ import annotations

import math
from enum import StrEnum
from random import Random

import msgspec

from agentload.gateway.usage import ProviderError, error_in
from agentload.model import NS, Outcome
from agentload.scheduler.config import RetryConfig
from agentload.scheduler.events import Expired, Refused
from agentload.scheduler.reasons import Reason

OVERLOAD_STATUSES = frozenset({429, 503, 529})
"""The provider would not take the call; it has done no work."""
CALLERS_FAULT = frozenset({400, 404, 405, 406, 409, 410, 411, 413, 414, 415, 416, 422, 431, 451})
"""Statuses that tell the caller what is wrong with the request: passed on with their (scrubbed) body."""
_QUOTA_CODES = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "enforced_spend_limit_reached",
    }
)
"""429s that no waiting cures (OpenAI, error codes; the last is Anthropic's, in the error's details)."""


class FailureKind(StrEnum):
    """How a call to the provider can fail without an answer."""

    CONNECT = "connect"
    """No connection: refused, unknown host, TLS. The provider has seen nothing."""
    CONNECT_TIMEOUT = "connect_timeout"
    """No connection in time. The provider has seen nothing."""
    BROKEN = "broken"
    """The connection broke after the request was sent: the provider may have done the work."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One way not to answer."""

    status: int
    """For the client, as long as it has been sent nothing."""
    reason: str
    message: str
    outcome: Outcome = Outcome.FAILED
    may_retry: bool = True
    retry_after: bool = False
    """The client is told when to come back: after what the provider asked for, or our own base."""
    retry_after_s: int | None = None
    """When the client may come back, where the scheduler has worked it out."""
    refused: bool = False
    """The provider would not take the call, so that everybody must slow down."""
    by_rate: bool = False
    """It would not because of its tokens or requests per minute."""
    again: bool = False
    """The gateway may call again: the provider has seen nothing, has refused, or the connection broke before
    it said anything. In the last case the work may be done twice, which has no effect but its price: the
    first call is charged, too, and both carry the client's idempotency key. Not where an answer had begun (a
    status of its own, a body that ends early): that call was taken, and has failed by itself."""
    worked: bool = True
    """The provider may have done work, which is charged."""
    upstream: bool = True
    """The provider is to blame."""


DEADLINE = Failure(
    status=504,
    reason="deadline_exceeded",
    message="the deadline passed before the answer was complete",
    outcome=Outcome.EXPIRED,
    may_retry=False,
    upstream=False,
)
DEADLINE_BEFORE_CALL = msgspec.structs.replace(
    DEADLINE, message="the deadline leaves no time for a call", worked=False
)
LEASE_EXPIRED = Failure(
    status=504, reason="lease_expired", message="the call held its place for longer than it may"
)
FIRST_BYTE_TIMEOUT = Failure(
    status=504, reason="upstream_first_byte_timeout", message="the provider did not begin to answer in time"
)
IDLE_TIMEOUT = Failure(status=504, reason="upstream_idle_timeout", message="the provider's answer stalled")
TOTAL_TIMEOUT = Failure(
    status=504, reason="upstream_total_timeout", message="the provider did not finish its answer in time"
)
TRUNCATED = Failure(
    status=502, reason="upstream_truncated", message="the provider's answer ended before it was complete"
)
SHUTTING_DOWN = Failure(
    status=503,
    reason="shutting_down",
    message="the gateway is shutting down",
    outcome=Outcome.REJECTED,
    retry_after=True,
    upstream=False,
)
QUOTA_EXHAUSTED = Failure(
    status=503,
    reason="provider_quota_exhausted",
    message="this gateway's quota at the provider is used up",
    may_retry=False,
    worked=False,
)
BY_KIND = {
    FailureKind.CONNECT: Failure(
        status=503,
        reason="upstream_unreachable",
        message="the provider cannot be reached",
        retry_after=True,
        refused=True,
        again=True,
        worked=False,
    ),
    FailureKind.CONNECT_TIMEOUT: Failure(
        status=503,
        reason="upstream_connect_timeout",
        message="the provider did not accept a connection in time",
        retry_after=True,
        refused=True,
        again=True,
        worked=False,
    ),
    FailureKind.BROKEN: Failure(
        status=502, reason="upstream_broken", message="the connection to the provider broke", again=True
    ),
}


def of_status(status: int, body: bytes) -> Failure:
    """What a provider's status other than 2xx, and other than the caller's fault, means for the client."""
    if status in (401, 403, 407):
        return Failure(
            status=502,
            reason="upstream_credentials",
            message="the provider does not accept this gateway's credentials",
            may_retry=False,
            worked=False,
        )
    if status in OVERLOAD_STATUSES:
        return _overload(status, error_in(body))
    if status == 402:
        return QUOTA_EXHAUSTED
    return Failure(
        status=502,
        reason="upstream_error",
        message=f"the provider failed with status {status}",
        worked=False,
    )


def _overload(status: int, error: ProviderError | None) -> Failure:
    code = error.code if error else ""
    if code in _QUOTA_CODES:
        return QUOTA_EXHAUSTED
    if status == 429 and error and error.message.startswith("Request too large"):
        return Failure(
            status=413,
            reason="too_large_for_provider",
            message="the request is larger than the provider's limit for a whole minute",
            outcome=Outcome.REJECTED,
            may_retry=False,
            worked=False,
            upstream=False,
        )
    limited = status == 429
    return Failure(
        status=503,
        reason="provider_rate_limited" if limited else "provider_overloaded",
        message="the provider limits this gateway's rate" if limited else "the provider is overloaded",
        outcome=Outcome.REJECTED,
        retry_after=True,
        refused=True,
        by_rate=limited,
        again=True,
        worked=False,
    )


def of_error(error: ProviderError) -> Failure:
    """What an error inside a 200 means for the client. (Its message may tell of our account.)"""
    code = f" ({error.code})" if error.code else ""
    return Failure(
        status=502,
        reason="upstream_error_in_answer",
        message=f"the provider reported an error in its answer{code}",
    )


def retry_after_s(
    failure: Failure, provider_wait_ns: int | None, retry: RetryConfig, random: Random
) -> int | None:
    """When to come back, in whole seconds; None when there is no promise to make.

    What the scheduler worked out, or what the provider asked for, or our own base; the latter two up to
    half as long again, because those who failed together must not come back together.
    """
    if failure.retry_after_s is not None or not failure.retry_after:
        return failure.retry_after_s
    base_s = retry.base_seconds if provider_wait_ns is None else provider_wait_ns / NS
    spread = 1 + random.random() / 2 if retry.jitter == "full" else 1.0
    return max(1, math.ceil(min(base_s * spread, retry.max_seconds)))


_MESSAGES = {
    Reason.TENANT_QUEUE_FULL: "too many of this tenant's requests are waiting",
    Reason.CLASS_QUEUE_FULL: "too many requests of this service class are waiting",
    Reason.DEFERRED_CLASS_FULL: "too much of this service class is waiting, and its work has time",
    Reason.QUEUE_UNITS_FULL: "too much work of this service class is waiting",
    Reason.QUEUE_BYTES_FULL: "too many bytes of this service class are waiting",
    Reason.EVICTED: "its place in the queue went to a tenant with less waiting",
    Reason.PREDICTED_WAIT: "it would wait longer than its service class allows",
    Reason.TENANT_OVER_LIMIT: "this tenant is over its limit",
    Reason.TOO_EARLY: "it comes before the instant that it was told, or asked for itself",
    Reason.BUDGET_SPENT: "a budget does not hold what it may cost",
    Reason.BUDGET_RESERVED: "what is left of a budget is reserved for running calls",
    Reason.TOO_WIDE: "the request is larger than this gateway ever admits",
    Reason.PROVIDER_UNAVAILABLE: "the provider asked for a pause",
    Reason.TOO_MANY_TENANTS: "too many tenants have work here",
    Reason.SHUTTING_DOWN: "the gateway is shutting down",
    Reason.UNKNOWN_CLASS: "there is no such service class",
    Reason.ATTEMPTS_EXHAUSTED: "this request has used up its attempts",
    Reason.IDENTITY_CHANGED: "this idempotency key came in another service class before",
    Reason.DEADLINE_UNMEETABLE: "the deadline cannot be met",
    Reason.EXPIRED: "the deadline passed while the request waited",
    Reason.MAX_WAIT: "the request waited as long as its service class allows",
    Reason.LEASE_EXPIRED: "the call held its place for longer than it may",
}


def of_decision(event: Refused | Expired) -> Failure:
    """What the scheduler's refusal, or its giving up on a waiting request, means for the client."""
    reason = event.reason
    message = _MESSAGES.get(reason, reason.value)
    if isinstance(event, Refused) and event.detail:
        message += f": {event.detail}"
    return Failure(
        status=reason.status,
        reason=reason.value,
        message=message,
        outcome=_outcome(reason.status),
        may_retry=reason.invites_retry,
        retry_after_s=event.retry_after_s if isinstance(event, Refused) else None,
        worked=False,
        upstream=False,
    )


def _outcome(status: int) -> Outcome:
    if status == 504:
        return Outcome.EXPIRED
    return Outcome.REJECTED if status in (402, 413, 429, 503) else Outcome.FAILED
