"""How a client behaves when it is refused, kept waiting or cut off: one policy per file.

Formulas are those of the named programs, by version, checked against the installed packages where we can.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import accumulate
from random import Random
from typing import Any, ClassVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from agentload.behaviours._budget import RetryBudget
from agentload.model import Arrival, Outcome, Spec, Tenant
from agentload.registry import Seam
from fake_provider.keyed import uniform


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What a behaviour may look at after an attempt has ended."""

    number: int
    """0 for the first attempt: the number of retries already taken."""
    outcome: Outcome
    status: int
    """0 when no status arrived (connection error, timeout)."""
    retry_after_s: float | None
    """Parsed Retry-After (delay-seconds or HTTP-date); floats, zero and negatives as sent."""
    retry_after: str | None = None
    """The same as received: not every client reads all of its forms."""
    retry_after_ms: float | None = None
    """The `retry-after-ms` header, where sent; the official SDKs prefer it."""
    should_retry: bool | None = None
    """The `x-should-retry` header, where sent."""
    streamed: bool = False
    """True once any token of this attempt has arrived: no SDK retries then."""


class Behaviour(BaseModel, ABC):
    """The contract. An instance is the client program of one tenant: what it remembers (a budget, say) is
    shared by all requests of that tenant, and by nobody else's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    draws: ClassVar[bool] = True
    """False where `random` is never used: seeding one for every refused request is not free."""

    timeout_s: float = Field(default=60.0, gt=0, le=3600)
    """Total time the client waits for one attempt before it leaves."""
    retry_budget: float | None = Field(default=None, gt=0, le=1)
    """At most so many retries for every first attempt of the tenant (`RetryBudget`); None: no such bound."""

    sends_key: bool = False
    """Whether it sends an `Idempotency-Key`, the same with all attempts at a request. Most SDKs send none."""

    _budget: RetryBudget | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:  # noqa: ARG002
        """pydantic calls it once the fields are there."""
        self._budget = None if self.retry_budget is None else RetryBudget(self.retry_budget)

    @abstractmethod
    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:
        """Seconds to wait before the next attempt, or None to give up. Never asked after an answer."""

    def for_request(self, seed: int, arrival: Arrival) -> Behaviour:  # noqa: ARG002
        """What handles one logical request: itself, unless it must tell requests apart."""
        return self

    def said_attempt(self, number: int) -> int:
        """The attempt's number as the client gives it (`X-Attempt`): the true one, unless it lies."""
        return number

    def leave_after_s(self) -> float | None:
        """Seconds after sending at which the client leaves if nothing of an answer has come by then."""
        return None

    def leave_after_tokens(self) -> int | None:
        """Tokens of a stream that are enough for it: then it leaves."""
        return None

    def heard(self, attempt: Attempt) -> None:
        """Told of every attempt that has ended, answered ones too, before it is asked what to do next."""
        # The field is asked first: pydantic takes a microsecond to look up a private attribute.
        if self.retry_budget is not None and self._budget is not None and attempt.number == 0:
            self._budget.deposit()

    def may_retry(self) -> bool:
        """Whether the budget allows the retry that is about to be made, which it then has paid for."""
        return self._budget is None or self._budget.withdraw()


SEAM: Seam[Behaviour] = Seam(__name__, Behaviour)


def make(spec: Spec) -> Behaviour:
    """The behaviour a profile asked for. Raises UsageError or pydantic.ValidationError."""
    return SEAM.get(spec.kind).model_validate(spec.params)


# --------------------------------------------------------------------------- populations


class _Population(Behaviour):
    """Several programs in use at one tenant; which one a logical request has is its own draw."""

    members: tuple[Behaviour, ...]
    shares: tuple[float, ...]

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:
        """Of a request that nobody has drawn a program for: the first one's."""
        return self.members[0].retry_delay_s(attempt, random)

    def for_request(self, seed: int, arrival: Arrival) -> Behaviour:
        """One of the members, as `client_of` draws it."""
        place = _place(self.shares, seed, arrival.tenant, arrival.seq)
        return self.members[place].for_request(seed, arrival)


def of(tenant: Tenant) -> Behaviour:
    """A tenant's client: one program, or a population of them. Raises as `make` does."""
    if not tenant.clients:
        return make(tenant.client)
    return _Population(
        members=tuple(make(one.client) for one in tenant.clients),
        shares=tuple(one.share for one in tenant.clients),
    )


def client_of(tenant: Tenant, seed: int, seq: int) -> Spec:
    """The client of one logical request: a keyed draw, the same in every process, live and simulated."""
    if not tenant.clients:
        return tenant.client
    shares = tuple(one.share for one in tenant.clients)
    return tenant.clients[_place(shares, seed, tenant.name, seq)].client


def _place(shares: tuple[float, ...], seed: int, tenant: str, seq: int) -> int:
    drawn = uniform(f"{seed}/{tenant}/{seq}/client") * sum(shares)
    reached = (place for place, upper in enumerate(accumulate(shares)) if drawn < upper)
    return next(reached, len(shares) - 1)
