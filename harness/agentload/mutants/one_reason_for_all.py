"""Every refusal is told as the same one."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle, Step
from agentload.mutants import Mutant
from agentload.mutants._scenes import OBSERVED
from agentload.scheduler.events import Refused
from agentload.scheduler.reasons import Reason


class OneReasonForAll(Mutant):
    """A tenant at its own bound is told that everybody's queue is full, as the one error class at hand says.

    The status and the promise are right. But the tenant asks for more capacity instead of sending less, and
    what it reports does not match what the operator counts.
    """

    row = "–"
    breaks = "refused callers are told another reason than the one that is counted"
    killed_by = "observable"
    profile = OBSERVED

    def parts(self) -> Parts:
        return Parts(lifecycle=_Mislabels)

    def half(self) -> Parts:
        return Parts(lifecycle=_MislabelsOneInTen)


class _Mislabels(RequestLifecycle):
    one_in: ClassVar[int] = 1

    def handle(self, now_ns: int, event: object) -> Step:
        return super().handle(now_ns, self._relabelled(event) if isinstance(event, Refused) else event)

    def _relabelled(self, event: Refused) -> Refused:
        if event.reason is not Reason.TENANT_QUEUE_FULL or event.request.id % self.one_in:
            return event
        return msgspec.structs.replace(event, reason=Reason.CLASS_QUEUE_FULL)


class _MislabelsOneInTen(_Mislabels):
    one_in: ClassVar[int] = 10
