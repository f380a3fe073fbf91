"""Whoever brings a result first has it counted, also one from whom the job was taken."""

from __future__ import annotations

from typing import Any

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.underway import Underway
from agentload.mutants import Mutant


class StaleResultsWin(Mutant):
    """No fencing: a delivery whose lease has lapsed goes on, and its result is taken when it comes.

    The job is another holder's by then. Two results race for one step, and the older one wins.
    """

    row = "D7"
    breaks = "the result of a holder that had lost the job overwrites that of the one who has it"
    killed_by = "exactly-once"
    profile = "worker-crash"

    def parts(self) -> Parts:
        return Parts(jobs=_ListensToAll)


class _HeardForEver(Underway):
    def forget_call(self, number: int) -> int | None:
        call_id = self._calls.get(number)
        job = None if call_id is None else self._jobs.get(call_id)
        super().forget_call(number)
        if call_id is not None and job is not None:
            self._jobs[call_id] = job
        return None


class _ListensToAll(JobsCore):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._underway = _HeardForEver(self._gate)
