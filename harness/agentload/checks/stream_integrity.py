"""Is a broken answer ever passed off as a whole one?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pydantic import Field

from agentload.checks import Check, Need
from agentload.evidence.hidden_queue import calls_by_attempt
from agentload.evidence.history import counted_records
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, evidence_of, percent_of, undecided
from agentload.model import CallEnding, LedgerEntry, Outcome, RequestRecord, Run, Status, Verdict


class StreamIntegrity(Check):
    """Passes when no answer that ended early is presented as complete.

    An answer is complete when it holds all the tokens that the provider produced for it. Where the provider
    was cut off, failed or was left by the gateway, a shorter answer with a proper ending (a `finish_reason`,
    `[DONE]`) is a lie that no client can see through. An answer that visibly breaks off is honest, and no
    failure here.
    """

    needs = frozenset({Need.STREAMS})
    needs_ledger = True
    needs_attribution = True
    zero_tolerance = True

    min_answers: int = Field(default=1, ge=1)
    """Fewest answers that must have been compared before a pass is believed."""

    def judge(self, run: Run) -> Verdict:
        """Compare every complete answer with what the provider produced for it."""
        calls = calls_by_attempt(run.ledger)
        records = counted_records(run)
        compared = [
            (record, mine)
            for record in records
            if record.outcome is Outcome.ANSWERED and (mine := calls.get((record.seq, record.attempt)))
        ]
        short = [s for record, mine in compared if (s := _shortfall(record, mine)) is not None]
        if not short and len(compared) < self.min_answers:
            return undecided(
                self,
                f"{len(compared):,} answers could be compared with the provider's ledger: "
                "let some requests be answered through our provider",
                n=len(compared),
            )
        broken = sum(call.ending is CallEnding.CUT for mine in calls.values() for call in mine)
        because = (
            f"{percent_of(len(short), len(compared))} of the complete answers are shorter than they should be"
        )
        if not broken:
            because += "; the provider cut no call off, so nothing tempted the gateway"
        return conclude(
            self,
            Status.FAILED if short else Status.PASSED,
            because,
            measured=len(short),
            bound=0,
            unit="answers",
            n=len(compared),
            evidence=[evidence_of(s.record, s.note) for s in short],
            details={
                "short": len(short),
                "calls_cut_by_the_provider": broken,
                "visibly_truncated": sum(r.outcome is Outcome.TRUNCATED for r in records),
                "streamed": sum(record.stream for record, _ in compared),
            },
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """The provider breaks off after 7 of 20 tokens; the gateway closes the stream as if all were well."""
        return cls(), _run(presented_as=Outcome.ANSWERED)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Only a truncated answer: there is no complete one to look at."""
        return cls(), _run(presented_as=Outcome.TRUNCATED, whole=0)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """The same break, visible to the client."""
        return cls(), _run(presented_as=Outcome.TRUNCATED)


class _Short(msgspec.Struct, frozen=True):
    record: RequestRecord
    note: str


def _shortfall(record: RequestRecord, calls: Sequence[LedgerEntry]) -> _Short | None:
    """What is missing from a complete answer, None when nothing is."""
    whole = [call.output_tokens for call in calls if call.ending is CallEnding.COMPLETED]
    wanted = max(whole) if whole else _wanted(record)
    if record.output_tokens >= wanted:
        return None
    how = "completed" if whole else str(calls[-1].ending)
    return _Short(
        record,
        f"{record.tenant}: {record.output_tokens:,} of {wanted:,} tokens in an answer that claims to be "
        f"complete (provider's call: {how})",
    )


def _wanted(record: RequestRecord) -> int:
    """What the provider would have produced."""
    if record.declared_output_tokens is None:
        return record.planned_output_tokens
    return min(record.planned_output_tokens, record.declared_output_tokens)


def _run(*, presented_as: Outcome, whole: int = 3) -> Run:
    build = RunBuilder(profile())
    for k in range(whole):
        build.answered("a", 100 * k, stream=True)
    record = build.ended("a", 500, presented_as, after_ms=200, status=200)
    record.stream, record.output_tokens, record.planned_output_tokens = True, 7, 20
    build.call(record, 500, 700, CallEnding.CUT, output_tokens=7)
    return build.run()
