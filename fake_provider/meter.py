"""Tells the limits of output while it is produced, even where none of it goes out before all does."""

from __future__ import annotations

from fake_provider.call import Call
from fake_provider.fault_timeline import FaultTimeline
from fake_provider.policies import Policy

GRAIN_NS = 10_000_000
"""Looks at all plain answers are at least so far apart: a thousand of them cost a millisecond."""


class OutputMeter:
    """For policies that charge output as it is produced; of others it knows nothing."""

    def __init__(self) -> None:
        self._whole: dict[int, Call] = {}
        """Calls in service whose answers go out whole."""
        self._looked_ns = 0

    def started(self, call: Call, policy: Policy) -> None:
        """The call has entered service."""
        if policy.charges_output and not call.request.stream:
            self._whole[call.number] = call

    def look(self, now_ns: int, faults: FaultTimeline, policy: Policy) -> None:
        """Charges what all of them have produced by now."""
        if now_ns >= self._looked_ns + GRAIN_NS:
            self._looked_ns = now_ns
            for call in self._whole.values():
                self._charge_due(now_ns, call, faults, policy)

    def ended(self, now_ns: int, call: Call, faults: FaultTimeline, policy: Policy) -> None:
        """The call leaves service: what it has produced was produced, though its caller may never see it."""
        if self._whole.pop(call.number, None) is not None:
            self._charge_due(now_ns, call, faults, policy)

    def charge(self, now_ns: int, call: Call, produced: int, policy: Policy) -> None:
        """So many tokens have been produced in all; those that were not charged are."""
        if produced > call.charged_output:
            policy.produced(now_ns, call.request.caller, produced - call.charged_output)
            call.charged_output = produced

    def _charge_due(self, now_ns: int, call: Call, faults: FaultTimeline, policy: Policy) -> None:
        if call.timing is not None and faults.held_until_ns(now_ns, call) == now_ns:
            stop = call.output_tokens if call.cut is None else call.cut.after_tokens
            self.charge(now_ns, call, min(call.timing.tokens_until(now_ns), stop), policy)
