"""The clock starts when the call does."""

from __future__ import annotations

from dataclasses import replace

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle, Step
from agentload.mutants import Mutant
from agentload.mutants._scenes import DEADLINES
from agentload.scheduler.admission import Admission, Dispatched, Request


class DeadlineExcludesWaiting(Mutant):
    """A deadline of one second is a timeout of one second, set at dispatch: the queue does not count.

    The commonest form is a client library whose timeout begins when the connection is handed out.
    """

    row = "D3"
    breaks = "work is begun whose deadline has passed while it waited"
    killed_by = "deadline"
    profile = DEADLINES

    def parts(self) -> Parts:
        return Parts(admission=_NoDeadlines, lifecycle=_FromDispatch)


class _NoDeadlines(Admission):
    def submit(self, now_ns: int, request: Request) -> None:
        super().submit(now_ns, replace(request, deadline_ns=None))


class _FromDispatch(RequestLifecycle):
    def handle(self, now_ns: int, event: object) -> Step:
        request = self.request
        if isinstance(event, Dispatched) and request.deadline_ns is not None:
            waited_ns = now_ns - request.arrived_ns
            self.request = replace(request, deadline_ns=request.deadline_ns + waited_ns)
        return super().handle(now_ns, event)
