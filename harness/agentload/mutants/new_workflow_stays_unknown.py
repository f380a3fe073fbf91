"""A workflow that nobody has heard of is a caller that nobody knows."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission
from agentload.scheduler.estimate import Estimator


class NewWorkflowStaysUnknown(Mutant):
    """Estimates are kept by tenant, workflow and model, and the workflow is what the caller writes.

    Whoever names a new one each time is new each time, and is expected to need what is assumed of strangers.
    """

    row = "F4"
    breaks = "a caller that changes a header is never found out: its reservations stay far too small"
    killed_by = "estimate-drift"
    profile = "liar"

    def parts(self) -> Parts:
        return Parts(admission=_ByKindAlone)


class _ForgetsTheTenant(Estimator):
    def _of_a_new_kind(self, learnt: float, declared: int | None) -> int:  # noqa: ARG002
        return self._config.default_output_tokens if declared is None else declared


class _ByKindAlone(Admission):
    estimator: ClassVar[type[Estimator]] = _ForgetsTheTenant
