"""Does the gateway stay away from the provider for as long as it was told to?"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec
from pydantic import Field

from agentload.checks import Check
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.evidence.verdicts import conclude, milliseconds, percent_of, undecided
from agentload.model import NS, CallEnding, Evidence, LedgerEntry, Run, Status, Verdict


class UpstreamRetryAfter(Check):
    """Passes when no call reaches the provider before the instant at which the gateway was told to return.

    A provider that says 429 or 503 with Retry-After has said for how long it is of no use to call; whoever
    calls all the same burns its own limit and prolongs the outage. The provider marks calls that come before
    an instant that their caller (key and model) had been told; those that arrive within `grace_ms` of the
    refusal were on their way when it was said.
    """

    needs_ledger = True
    zero_tolerance = True

    grace_ms: float = Field(default=100.0, ge=0)
    """For what was on its way, and for a gateway of several loops to tell itself."""

    def judge(self, run: Run) -> Verdict:
        """Count the calls that came although the gateway could have known better."""
        told = [call for call in run.ledger if call.not_before_ns is not None]
        if not told:
            return undecided(
                self,
                "the provider never told the gateway when to come back: a profile in which it refuses with "
                "Retry-After (an outage with retry_after_s, a TPM cut) would show what the gateway does then",
                n=len(run.ledger),
            )
        early = _early(run.ledger, round(self.grace_ms * MS))
        first = min(early, key=lambda one: one.call.arrived_ns, default=None)
        times = "once" if len(told) == 1 else f"{len(told):,} times"
        because = (
            f"the provider said {times} when to come back, and "
            f"{percent_of(len(early), len(run.ledger))} of the calls came before that"
        )
        if first is not None:
            because += f", the first {milliseconds(first.by_ns)} too early"
        return conclude(
            self,
            Status.FAILED if early else Status.PASSED,
            because,
            measured=len(early),
            bound=0,
            unit="calls",
            n=len(run.ledger),
            evidence=[
                Evidence(
                    note=f"{one.call.tenant or 'unknown'}: {milliseconds(one.by_ns)} too early",
                    seq=one.call.seq,
                    at_ns=one.call.arrived_ns,
                )
                for one in sorted(early, key=lambda one: -one.by_ns)
            ],
            details={
                "promises": len(told),
                "early": len(early),
                "early_on_their_way": sum(call.early for call in run.ledger) - len(early),
                "longest_promise_s": max(((c.not_before_ns or 0) - c.arrived_ns) / NS for c in told),
            },
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Told to come back in two seconds, it is there again after half a second."""
        return cls(), _run(back_after_ms=500)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """The provider refused nothing."""
        return cls(), _run(back_after_ms=None)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """It waits, but for one call that was on its way."""
        return cls(), _run(back_after_ms=2_000)


class _Early(msgspec.Struct, frozen=True):
    call: LedgerEntry
    by_ns: int


def _early(ledger: Sequence[LedgerEntry], grace_ns: int) -> list[_Early]:
    """The calls marked early that came before an instant known for longer than the grace, by model."""
    calls = sorted(ledger, key=lambda call: call.arrived_ns)
    models = sorted({call.model for call in calls})
    return [one for model in models for one in _early_of([c for c in calls if c.model == model], grace_ns)]


def _early_of(calls: Sequence[LedgerEntry], grace_ns: int) -> list[_Early]:
    on_its_way: deque[tuple[int, int]] = deque()
    """(when the gateway could know, until when it was to stay away), oldest first."""
    not_before_ns = 0
    found: list[_Early] = []
    for call in calls:
        while on_its_way and on_its_way[0][0] < call.arrived_ns:
            not_before_ns = max(not_before_ns, on_its_way.popleft()[1])
        if call.early and call.arrived_ns < not_before_ns:
            found.append(_Early(call, not_before_ns - call.arrived_ns))
        if call.not_before_ns is not None:
            on_its_way.append(((call.ended_ns or call.arrived_ns) + grace_ns, call.not_before_ns))
    return found


def _run(*, back_after_ms: float | None) -> Run:
    """A call is refused for two seconds; one was on its way; ten more come later."""
    build = RunBuilder(profile(tenants={"a": 1.0}))
    build.answered("a", 0)
    if back_after_ms is None:
        return build.run()
    refused = build.refused("a", 1_000, status=503, retry_after="2")
    build.call(refused, 1_000, 1_000, CallEnding.FAULTED, status=503).not_before_ns = 3_000 * MS
    under_way = build.refused("a", 1_000, status=503, retry_after="2", after_ms=2)
    build.call(under_way, 1_001, 1_001, CallEnding.FAULTED, status=503).early = True
    for k in range(10):
        build.answered("a", 1_000 + back_after_ms + 300 * k)
        build.ledger[-1].early = build.ledger[-1].arrived_ns < 3_000 * MS
    return build.run()
