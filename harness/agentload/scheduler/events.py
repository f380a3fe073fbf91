"""What admission decides, as things that happen to a request."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from agentload.scheduler.pool import Reservation
from agentload.scheduler.reasons import Reason
from agentload.scheduler.work import Request


class Dispatched(msgspec.Struct, frozen=True):
    """It may start now. It holds its reservation until `complete` or `cancel`."""

    request: Request
    reservation: Reservation
    waited_ns: int
    """Since it was submitted."""


class Refused(msgspec.Struct, frozen=True):
    """It is not served, and was not started. Evicted ones come this way too."""

    request: Request
    reason: Reason
    retry_after_s: int | None
    """Whole seconds, >= 1. None: no promise, coming back is useless."""
    predicted_wait_ns: int | None
    """How long it would have waited; None when it was refused for another reason than load."""
    due_ns: int | None = None
    """The exact instant behind `retry_after_s`, before jitter and rounding."""
    detail: str = ""
    """What makes it too wide, or which budget is spent, in numbers; empty for other reasons."""


class Expired(msgspec.Struct, frozen=True):
    """Its time ran out: in the queue (its deadline or the class's max_wait) or, with `lease_expired`, while
    its holder was silent. Nothing is held for it any more."""

    request: Request
    reason: Reason


Event: TypeAlias = Dispatched | Refused | Expired
