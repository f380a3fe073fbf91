"""botocore's `standard` retry mode, its default (read in 1.44: `retries/standard.py`, `retries/quota.py`)."""

from __future__ import annotations

from random import Random

from pydantic import Field, PrivateAttr

from agentload.behaviours import Attempt, Behaviour
from agentload.behaviours._stainless import connection_failed
from agentload.model import Arrival, Outcome

MAX_BACKOFF_S = 20.0
THROTTLED = 429
_TRANSIENT = frozenset({500, 502, 503, 504})
_THROTTLED_SCALE_S, _OTHER_SCALE_S = 1.0, 0.05
_THROTTLED_COST, _OTHER_COST, _ANSWER_REFUND = 5, 14, 1


class _Quota:
    """The client's retry quota, shared by all its requests."""

    CAPACITY = 500

    def __init__(self) -> None:
        self.level = self.CAPACITY

    def acquire(self, cost: int) -> bool:
        if cost > self.level:
            return False
        self.level -= cost
        return True

    def release(self, amount: int) -> None:
        self.level = min(self.CAPACITY, self.level + amount)


class Botocore(Behaviour):
    """`{kind: botocore, max_attempts: 3}`: U(0, min(2^i, 20)) s after a 429, while its quota lasts.

    After a 5xx or a lost connection the same with a twentieth of 2^i. All requests of a tenant share the
    quota (500; a retry costs 5 or 14, an answer pays back). Retry-After it does not read.
    """

    max_attempts: int = Field(default=3, ge=1, le=255)

    _quota: _Quota = PrivateAttr(default_factory=_Quota)
    _paid: int = PrivateAttr(default=_ANSWER_REFUND)
    """What an answer gives back: the price of the request's last retry."""

    def for_request(self, seed: int, arrival: Arrival) -> Behaviour:  # noqa: ARG002
        """A copy that knows what the request has paid; quota and budget stay shared."""
        return self.model_copy()

    def heard(self, attempt: Attempt) -> None:
        """Answers refill the quota."""
        super().heard(attempt)
        if attempt.outcome is Outcome.ANSWERED:
            self._quota.release(self._paid)

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:
        """One draw, when there is quota."""
        if attempt.number + 1 >= self.max_attempts or attempt.streamed:
            return None
        throttled = attempt.status == THROTTLED
        if not throttled and not connection_failed(attempt) and attempt.status not in _TRANSIENT:
            return None
        cost = _THROTTLED_COST if throttled else _OTHER_COST
        if not self._quota.acquire(cost):
            return None
        self._paid = cost
        scale_s = _THROTTLED_SCALE_S if throttled else _OTHER_SCALE_S
        return random.random() * min(scale_s * 2.0 ** min(attempt.number, 1000), MAX_BACKOFF_S)
