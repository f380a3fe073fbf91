"""Why a request was not served: a machine-readable word, its HTTP status, and whether to come back."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Answer(NamedTuple):
    """What a reason means to the caller."""

    status: int
    """HTTP status."""
    invites_retry: bool
    """True when the same request may succeed later; it then carries Retry-After."""


class Reason(StrEnum):
    """The word in the body and in `X-Admission-Reason`."""

    TENANT_QUEUE_FULL = "tenant_queue_full"
    """The tenant has as much waiting as it may."""
    CLASS_QUEUE_FULL = "class_queue_full"
    """Too many requests of the class are waiting."""
    DEFERRED_CLASS_FULL = "deferred_class_full"
    """The same, in a class that says `defer`: its work has time, so the caller should bring it later."""
    QUEUE_UNITS_FULL = "queue_units_full"
    """Too much work of the class is waiting."""
    QUEUE_BYTES_FULL = "queue_bytes_full"
    """Too many bytes of the class are waiting."""
    EVICTED = "evicted"
    """It lost its place to a tenant with less waiting per weight."""
    PREDICTED_WAIT = "predicted_wait"
    """It would wait longer than the class allows."""
    TENANT_OVER_LIMIT = "tenant_over_limit"
    """The tenant's own rate limit."""
    TOO_EARLY = "too_early"
    """It came back before it was told to, or before it wanted to itself (X-Not-Before)."""
    BUDGET_SPENT = "budget_spent"
    """A budget that it falls under (its tenant's, its run's, everybody's) does not hold what it may cost."""
    BUDGET_RESERVED = "budget_reserved"
    """The budget would, but for what running calls may yet use of it."""
    TOO_WIDE = "too_wide"
    """It can never fit, however long it waits."""
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    """The provider asked for a pause longer than the request could wait."""
    TOO_MANY_TENANTS = "too_many_tenants"
    """State is kept for as many tenants as configured, and all of them are busy."""
    SHUTTING_DOWN = "shutting_down"
    UNKNOWN_CLASS = "unknown_class"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    """Its attempts are used up, by what was seen of them or by its own word."""
    IDENTITY_CHANGED = "identity_changed"
    """The same idempotency key came in another service class before."""
    DEADLINE_UNMEETABLE = "deadline_unmeetable"
    """Its wait and its expected service end after its deadline."""
    EXPIRED = "expired"
    """Its deadline has passed."""
    MAX_WAIT = "max_wait"
    """It waited as long as its class lets anything wait."""
    LEASE_EXPIRED = "lease_expired"
    """It was dispatched and its holder has not been heard of since: the capacity was taken back."""

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return _ANSWERS[self].status

    @property
    def invites_retry(self) -> bool:
        """Whether the answer carries Retry-After."""
        return _ANSWERS[self].invites_retry


_ANSWERS: dict[Reason, Answer] = {
    Reason.TENANT_QUEUE_FULL: Answer(429, True),
    Reason.CLASS_QUEUE_FULL: Answer(429, True),
    Reason.DEFERRED_CLASS_FULL: Answer(503, True),
    Reason.QUEUE_UNITS_FULL: Answer(429, True),
    Reason.QUEUE_BYTES_FULL: Answer(429, True),
    Reason.EVICTED: Answer(429, True),
    Reason.PREDICTED_WAIT: Answer(429, True),
    Reason.TENANT_OVER_LIMIT: Answer(429, True),
    Reason.TOO_EARLY: Answer(429, True),
    Reason.BUDGET_RESERVED: Answer(429, True),
    Reason.BUDGET_SPENT: Answer(402, False),
    Reason.TOO_WIDE: Answer(413, False),
    Reason.PROVIDER_UNAVAILABLE: Answer(503, True),
    Reason.TOO_MANY_TENANTS: Answer(503, True),
    Reason.SHUTTING_DOWN: Answer(503, True),
    Reason.UNKNOWN_CLASS: Answer(400, False),
    # Not 429: official SDKs retry that by themselves, and this request must not come back.
    Reason.ATTEMPTS_EXHAUSTED: Answer(400, False),
    Reason.IDENTITY_CHANGED: Answer(409, False),
    # The deadline is absolute, so the same request only gets later.
    Reason.DEADLINE_UNMEETABLE: Answer(504, False),
    Reason.EXPIRED: Answer(504, False),
    Reason.MAX_WAIT: Answer(504, False),
    Reason.LEASE_EXPIRED: Answer(504, False),
}
