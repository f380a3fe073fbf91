"""What is known of requests that come again: who they were, how often they came, when they may come back.

Kept by tenant and idempotency key, and only for those that were not answered: a request that is answered at
once leaves nothing behind. A key means one logical request of one tenant; the same key of another tenant is
another request. Memory is bounded (`retry.remembered_keys`): of a request that was forgotten, its own word on
its attempt is all there is to go by again.
"""

from __future__ import annotations

from agentload.scheduler.config import RetryConfig
from agentload.scheduler.remembered import Remembered
from agentload.scheduler.work import Request

GRACE_NS = 50_000_000
"""A caller that is so little early is not: clocks and timers have their grain."""


class Tried:
    """One request that was not answered so far."""

    __slots__ = ("attempts", "deadline_ns", "max_attempts", "not_before_ns", "service_class")

    def __init__(self, request: Request) -> None:
        self.service_class = request.service_class
        self.max_attempts = request.max_attempts
        """As its first attempt said: a later one cannot grant itself more."""
        self.deadline_ns = request.deadline_ns
        self.attempts = 0
        """Attempts so far."""
        self.not_before_ns: int | None = None
        """When it was told to come back; None when it was told nothing."""


class AttemptBook:
    """Keeps attempts."""

    def __init__(self, config: RetryConfig) -> None:
        self._max_attempts = config.max_attempts
        self._tried: Remembered[Tried] = Remembered(config.remembered_keys)

    def __len__(self) -> int:
        return len(self._tried)

    def recall(self, request: Request) -> Tried | None:
        """What is known of a request that comes in, None when nothing is.

        What is known holds: its attempt, its attempt budget and its deadline are set right where it says more
        (or less) than is true.
        """
        if request.idempotency_key is None:
            return None
        tried = self._tried.get(request.tenant, request.idempotency_key)
        if tried is not None:
            request.attempt = max(request.attempt, tried.attempts)
            request.max_attempts = _least(tried.max_attempts, request.max_attempts)
            request.deadline_ns = _least(tried.deadline_ns, request.deadline_ns)
        return tried

    def exhausted(self, request: Request) -> bool:
        """Whether it has used up the attempts that it may make; no caller may make more than configured."""
        allowed = request.max_attempts
        most = self._max_attempts if allowed is None else min(allowed, self._max_attempts)
        return request.attempt >= most

    def came_as_told(self, now_ns: int, request: Request) -> bool:
        """Whether it waited for an instant that it was told."""
        if request.idempotency_key is None:
            return False
        tried = self._tried.get(request.tenant, request.idempotency_key)
        told_ns = None if tried is None else tried.not_before_ns
        return told_ns is not None and now_ns >= told_ns - GRACE_NS

    def unanswered(self, request: Request, not_before_ns: int | None) -> None:
        """An attempt ended without an answer, and was told when to come back; None: nothing new."""
        if request.idempotency_key is not None:
            tried = self._note(request, request.idempotency_key, not_before_ns)
            tried.attempts = max(tried.attempts, request.attempt + 1)

    def promised(self, request: Request, not_before_ns: int) -> None:
        """One whose call has failed, and is about to end without an answer, is told when to come back."""
        if request.idempotency_key is not None:
            self._note(request, request.idempotency_key, not_before_ns)

    def _note(self, request: Request, key: str, not_before_ns: int | None) -> Tried:
        tried = self._tried.get(request.tenant, key)
        if tried is None:
            tried = Tried(request)
            self._tried.put(request.tenant, key, tried)
        if not_before_ns is not None:
            tried.not_before_ns = not_before_ns
        return tried

    def answered(self, request: Request) -> None:
        """It has what it wanted: the key may be used for something else."""
        if request.idempotency_key is not None:
            self._tried.forget(request.tenant, request.idempotency_key)


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
