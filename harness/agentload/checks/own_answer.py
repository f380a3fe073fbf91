"""Does everybody get their own answer?"""

from __future__ import annotations

from pydantic import Field

from agentload.checks import Check, Need
from agentload.evidence.history import counted_records
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, evidence_of, percent_of, undecided
from agentload.model import Outcome, Run, Status, Verdict


class OwnAnswer(Check):
    """Passes when every answer carries the acknowledgement of the very request that got it.

    Our provider echoes each request's number and checksum. An answer with another one came from a cache
    shared between tenants, a mixed-up connection or a stream given to the wrong caller: one is too many.
    """

    needs = frozenset({Need.ACKNOWLEDGEMENT})
    zero_tolerance = True

    min_answers: int = Field(default=1, ge=1)
    """Fewest answers that must have been looked at before a pass is believed."""

    def judge(self, run: Run) -> Verdict:
        """Count the answers that belong to another request."""
        looked_at = [record for record in counted_records(run) if record.own_answer is not None]
        strange = [record for record in looked_at if not record.own_answer]
        if not strange and len(looked_at) < self.min_answers:
            return undecided(
                self,
                f"{len(looked_at):,} answers carried an acknowledgement, which only our provider gives: it "
                "takes ours behind the gateway, and some answered requests",
                n=len(looked_at),
            )
        return conclude(
            self,
            Status.FAILED if strange else Status.PASSED,
            f"{percent_of(len(strange), len(looked_at))} of the answers belonged to another request",
            measured=len(strange),
            bound=0,
            unit="answers",
            n=len(looked_at),
            evidence=[evidence_of(r, f"{r.tenant}: got an answer that is not its own") for r in strange],
            details={
                "tenants": {
                    tenant: sum(record.tenant == tenant for record in strange)
                    for tenant in sorted({record.tenant for record in strange})
                }
            },
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """The second of two tenants gets the first one's answer."""
        return cls(), _run(own=False)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """No answer with an acknowledgement in it."""
        return cls(), _run(own=None)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Each gets its own."""
        return cls(), _run(own=True)


def _run(*, own: bool | None) -> Run:
    build = RunBuilder(profile())
    first, second = build.answered("a", 0), build.answered("b", 10)
    first.own_answer = None if own is None else True
    second.own_answer = own
    if own is False:
        second.outcome = Outcome.FAILED
    return build.run()
