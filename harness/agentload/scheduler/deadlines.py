"""Can it still be served in time? Deadlines are absolute and count from arrival, waiting included."""

from __future__ import annotations

from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.estimate import Estimator
from agentload.scheduler.reasons import Reason
from agentload.scheduler.tenants import Ticket
from agentload.scheduler.work import Request


class Deadlines:
    """Says when a request is too late, by how long its kind has taken lately."""

    def __init__(self, estimator: Estimator, *, enforced: bool = True) -> None:
        """`enforced`: False where nothing is ever too late."""
        self._estimator = estimator
        self._enforced = enforced

    def too_late(self, now_ns: int, request: Request, cls: ServiceClass, wait_ns: int = 0) -> Reason | None:
        """Why it must not start after `wait_ns`: its deadline has passed, or passes before it is served."""
        if request.deadline_ns is None or not self._enforced:
            return None
        left_ns = request.deadline_ns - now_ns
        if left_ns <= 0:
            return Reason.EXPIRED
        # A start at the very deadline is too late even when service is expected to take no time.
        needed_ns = wait_ns + max(1, self.service_ns(now_ns, request, cls))
        return Reason.DEADLINE_UNMEETABLE if needed_ns > left_ns else None

    def service_ns(self, now_ns: int, request: Request, cls: ServiceClass) -> int:
        """Time in service that is enough: for its kind, else for its class; 0 while nothing is known."""
        return self._estimator.service_ns(now_ns, request) or cls.service.enough_ns(now_ns) or 0

    def leave_ns(self, now_ns: int, ticket: Ticket) -> int:
        """When a waiting ticket has to be looked at again: then it has waited too long or is too late."""
        leave_ns = ticket.queued_ns + ticket.service_class.max_wait_ns
        deadline_ns = ticket.request.deadline_ns
        if deadline_ns is None:
            return leave_ns
        service_ns = self.service_ns(now_ns, ticket.request, ticket.service_class)
        return min(leave_ns, max(now_ns + 1, deadline_ns - max(service_ns - 1, 0)))
