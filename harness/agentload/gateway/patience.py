"""How long each part of a call may take: every timeout is derived from what the deadline leaves. PURE."""

from __future__ import annotations

from agentload.gateway import failures
from agentload.gateway.failures import Failure
from agentload.gateway.settings import GatewaySettings
from agentload.model import NS


class Patience:
    """The instants at which one call to the provider is given up. Made when it is dispatched."""

    def __init__(self, settings: GatewaySettings, dispatched_ns: int, deadline_ns: int | None) -> None:
        """`deadline_ns`: the caller's, absolute; what our own answer takes is kept back from it."""
        self._connect_ns = _ns(settings.connect_s)
        self._idle_ns = _ns(settings.idle_s)
        self._linger_ns = _ns(settings.linger_s)
        self._first_byte_ns = dispatched_ns + _ns(settings.first_byte_s)
        self._total_ns = dispatched_ns + _ns(settings.total_s)
        self.limit_ns = self._total_ns
        """Nothing is of use to the caller from this instant on."""
        if deadline_ns is not None:
            self.limit_ns = min(self._total_ns, deadline_ns - _ns(settings.answer_margin_s))

    def connect_ns(self, now_ns: int) -> int:
        """How long connecting may take from now."""
        return min(self._connect_ns, self.limit_ns - now_ns)

    def first_event_ns(self) -> int:
        """When a stream must have begun."""
        return min(self._first_byte_ns, self.limit_ns)

    def silence_ns(self, now_ns: int) -> int:
        """When something more must have come."""
        return min(now_ns + self._idle_ns, self.limit_ns)

    def close_ns(self, now_ns: int) -> int:
        """When the provider must have closed an answer that has said it is over."""
        return min(now_ns + self._linger_ns, self.limit_ns)

    def failure(self, now_ns: int, *, begun: bool) -> Failure:
        """Which patience has run out; `begun` when the awaited answer has."""
        if now_ns >= self.limit_ns:
            return failures.TOTAL_TIMEOUT if self.limit_ns == self._total_ns else failures.DEADLINE
        return failures.IDLE_TIMEOUT if begun else failures.FIRST_BYTE_TIMEOUT


def _ns(seconds: float) -> int:
    return round(seconds * NS)
