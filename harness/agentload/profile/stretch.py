"""Phases shorter or longer, and the faults with them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from agentload.faults import is_gateways
from agentload.model import NS, Fault, Phase, Profile

TOLD = "retry_after_s"
"""What a fault says of its end, where it is as long as the fault."""


def stretched(profile: Profile, factor: Mapping[str, float]) -> Profile:
    """The profile with each phase's length multiplied by its `factor`, rounded up to a tenth of a second.

    A fault stays where it is in its phase, and lasts as much longer or shorter. But a fault of the gateway's
    process takes no longer than ever, and an outage that tells when it is over still does when it is longer.
    """
    phases = tuple(
        phase.model_copy(update={"seconds": _tenths(phase, factor[phase.name])}) for phase in profile.phases
    )
    after = profile.model_copy(update={"phases": phases})
    return after.model_copy(update={"faults": tuple(_moved(one, profile, after) for one in profile.faults)})


def _tenths(phase: Phase, factor: float) -> float:
    """A length that was no whole number of tenths does not grow by being shortened."""
    seconds = math.ceil(round(phase.seconds * factor * 10, 6)) / 10
    return min(phase.seconds, seconds) if factor <= 1 else seconds


def _moved(fault: Fault, profile: Profile, after: Profile) -> Fault:
    """The fault in the stretched run."""
    before_s = _length_s(fault, profile)
    if fault.at_s is not None and fault.seconds is not None:
        start_s, end_s = (_moved_s(at_s, profile, after) for at_s in (fault.at_s, fault.at_s + fault.seconds))
        lasts_s = end_s - start_s
        if is_gateways(fault.kind):
            lasts_s = min(lasts_s, fault.seconds)
        fault = fault.model_copy(update={"at_s": round(start_s, 6), "seconds": round(lasts_s, 6)})
    after_s = _length_s(fault, after)
    if before_s is None or after_s is None or after_s <= before_s or fault.params.get(TOLD) != before_s:
        return fault
    return fault.model_copy(update={"params": fault.params | {TOLD: math.ceil(after_s)}})


def _length_s(fault: Fault, profile: Profile) -> float | None:
    if fault.phase is None:
        return fault.seconds
    return next(phase.seconds for phase in profile.phases if phase.name == fault.phase)


def _moved_s(at_s: float, profile: Profile, after: Profile) -> float:
    """The instant in the stretched run: as far into its phase, of the phase's length, as before."""
    passed_s, passed_after_s = 0.0, 0.0
    for phase, now in zip(profile.phases, after.phases, strict=True):
        if at_s < passed_s + phase.seconds:
            return passed_after_s + (at_s - passed_s) / phase.seconds * now.seconds
        passed_s, passed_after_s = passed_s + phase.seconds, passed_after_s + now.seconds
    return after.duration_ns / NS
