"""Does work reach the provider whose client left while it was queued?"""

from __future__ import annotations

from pydantic import Field

from agentload.checks import Check, Need
from agentload.evidence.departures import MS, departures, grace_ns, remarks
from agentload.evidence.hidden_queue import depth_steps
from agentload.evidence.history import counted_records
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, evidence_of, milliseconds, moot, plural, undecided
from agentload.model import CallEnding, Outcome, Run, Status, Verdict
from agentload.promises import DENIED_BY, Truth

ON_THEIR_WAY = 16
"""Requests that may be between client and provider at one instant without any queue."""
_NO_QUEUE = DENIED_BY[Truth.QUEUE_REQUESTS]


class NoGhosts(Check):
    """Passes when work whose client left while it was queued never reaches the provider.

    A queue that keeps the requests of clients who have gone serves the dead while the living wait, and after
    an overload longer than their patience it serves nobody else. Looked at is every attempt that its client
    abandoned before the provider had seen it; a call that arrives later than 2 RTT + `grace_ms` after that is
    a ghost. None is allowed. (Retries of the gateway's own for a client that has left count, too.) A gateway
    that declares no queue, and shows none, is not asked.
    """

    needs = frozenset({Need.DEPARTURES, Need.QUEUE})
    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True

    rtt_ms: float = Field(default=10.0, ge=0)
    """Round trip between client and gateway."""
    grace_ms: float = Field(default=100.0, ge=0)

    def judge(self, run: Run) -> Verdict:
        """Count the calls that arrived for clients who had left."""
        grace = grace_ns(self.rtt_ms, self.grace_ms)
        left = departures(counted_records(run), run.ledger)
        queued = [departure for departure in left if departure.queued]
        ghosts = [
            (departure, call)
            for departure in left
            for call in departure.calls
            if call.arrived_ns > departure.at_ns + grace
        ]
        if not ghosts and not enough(len(queued), 50):
            return self._too_few_left(run, len(queued))
        because = f"{len(queued):,} clients left while their request was queued in the gateway; "
        if ghosts:
            worst = max(call.arrived_ns - departure.at_ns for departure, call in ghosts)
            because += (
                f"{len(ghosts):,} calls reached the provider for clients who had gone, up to "
                f"{milliseconds(worst)} later"
            )
        else:
            because += f"none of them reached the provider more than {milliseconds(grace)} later"
        because += remarks(counted_records(run))
        return conclude(
            self,
            Status.FAILED if ghosts else Status.PASSED,
            because,
            measured=len(ghosts),
            bound=0,
            unit="calls",
            n=len(left),
            evidence=[
                evidence_of(
                    departure.record,
                    f"{departure.record.tenant}: called {milliseconds(call.arrived_ns - departure.at_ns)} "
                    "after its client had left",
                )
                for departure, call in ghosts
            ],
            details={
                "abandoned": len(left),
                "abandoned_while_queued": len(queued),
                "ghosts": len(ghosts),
                "grace_ms": grace / MS,
                "ghost_tokens": sum(call.charged_tokens for _, call in ghosts),
            },
        )

    def _too_few_left(self, run: Run, queued: int) -> Verdict:
        """More load shows nothing new of a gateway that refuses what it cannot serve at once."""
        left_out = remarks(counted_records(run))
        held = max((depth for _, depth in depth_steps(run.records, run.ledger)), default=0)
        if queued or held > ON_THEIR_WAY:
            because = (
                f"only {queued:,} clients left while their request was queued: at least 20 are needed "
                "(more load, or less patience)"
            )
            return undecided(self, because + left_out, n=queued)
        nothing = f"nothing was queued (at most {plural(held, 'request')} held)"
        if run.denies(Truth.QUEUE_REQUESTS):
            return moot(self, f"{nothing}, as the target declares (`{_NO_QUEUE}`){left_out}")
        says = f"one that does not queue says `declares: {{{_NO_QUEUE}}}`"
        mend = f" ({says}, and no run fails for it)" if run.promises is not None else ""
        because = f"{nothing}: for a gateway that does not queue there is nothing to judge{mend}"
        return undecided(self, because + left_out)

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Clients leave after a second in the queue; one of their requests is sent on a second later."""
        return cls(), _run(ghosts=1)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Two clients left."""
        return cls(), _run(ghosts=0, leavers=2)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Nothing more is heard of those who left."""
        return cls(), _run(ghosts=0)


def _run(*, ghosts: int, leavers: int = 30) -> Run:
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(leavers):
        at_ms = 200.0 * k
        record = build.ended("a", at_ms, Outcome.ABANDONED, after_ms=1_000)
        if k < ghosts:
            build.call(record, at_ms + 2_000, at_ms + 2_050, CallEnding.COMPLETED)
    return build.run()
