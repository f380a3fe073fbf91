"""Does the status say what happened?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import Field

from agentload.checks import Check
from agentload.evidence.history import counted_records
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, evidence_of, undecided
from agentload.model import Outcome, RequestRecord, Run, Status, Verdict
from agentload.promises import Truth

BLAMING = frozenset({400, 401, 403})
"""Statuses that say the request itself is wrong, or not allowed."""


class StatusCodes(Check):
    """Passes when no answer has status 500, no 200 hides an error, and impossible work never gets a 429.

    Clients, SDKs and load balancers act on the status alone. A 500 is a crash, not a refusal: load is 429 or
    503, a passed deadline 504. An error in a 200 looks like success to all of them (an error *event* after
    the first token of a stream is the only way left there, and right). A 429 for work that can never fit
    makes the client try for ever: that is a permanent 4xx, such as 413. Where the profile says what is
    impossible, a 503 for it (which invites a retry, too), a 504 after a wait, and no answer at all are wrong
    as well. And a 400, 401 or 403 blames the caller: for a request that is as good as others of the same
    tenant that were answered, it is a refusal in disguise; a retry beyond the gateway's `max_attempts` is not
    (400 may say that it is the last; where a target declares none, any retry may have been). (402 for a spent
    budget is a should.)
    """

    better_with = frozenset({Truth.MAX_ATTEMPTS, Truth.MAX_REQUEST_TOKENS})
    zero_tolerance = True

    impossible_tokens: int | None = Field(default=None, ge=1)
    """Prompt and declared output tokens together, above which a request can never be served. By default a
    request is impossible when its prompt or its declared output alone exceeds the provider's token bucket.
    That is said of the bundled gateway: of a target, what it declares as `max_request_tokens` counts."""

    def judge(self, run: Run) -> Verdict:
        """Count the three kinds of wrong answers."""
        records = [r for r in counted_records(run) if r.status]
        bucket = _bucket_tokens(run)
        most = run.profile.gateway.retry.max_attempts if run.knows(Truth.MAX_ATTEMPTS) else 1
        largest = self._largest(run)
        served = {r.tenant for r in records if r.outcome is Outcome.ANSWERED}
        wrong = {
            "status 500": [r for r in records if r.status == 500],
            "200 with an error in it": [r for r in records if _hides_an_error(r)],
            "429 for impossible work": [
                r for r in records if r.status == 429 and _impossible(r, largest, bucket)
            ],
            "impossible work not refused for good": [
                r for r in counted_records(run) if _strung_along(r, largest)
            ],
            "400, 401 or 403 for work like any other": [
                r
                for r in records
                if r.status in BLAMING and r.tenant in served and not _impossible(r, largest, bucket)
                if not (r.status == 400 and r.attempt >= most)
            ],
        }
        count = sum(len(found) for found in wrong.values())
        if not count and not enough(len(records), 50):
            return undecided(
                self, f"only {len(records):,} answers had a status: at least 20 are needed", n=len(records)
            )
        kinds = [f"{len(found):,} × {kind}" for kind, found in wrong.items() if found]
        return conclude(
            self,
            Status.FAILED if count else Status.PASSED,
            ", ".join(kinds)
            if kinds
            else f"none of {len(records):,} answers was a 500, a false 200, a false 429 or a false 4xx",
            measured=count,
            bound=0,
            unit="answers",
            n=len(records),
            evidence=[
                evidence_of(r, f"{r.tenant}: {kind} ({r.reason or r.outcome})")
                for kind, found in wrong.items()
                for r in found[:2]
            ],
            details={"by_status": _by_status(records), "wrong": {k: len(v) for k, v in wrong.items()}},
        )

    def _largest(self, run: Run) -> int | None:
        """Tokens above which a request can never be served; None: only the provider's bucket says so."""
        return self.impossible_tokens if run.promises is None else run.promises.max_request_tokens

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """A 500 where the gateway was merely full."""
        return cls(), _run(status=500)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Four answers."""
        return cls(), _run(status=429, answers=3)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Answers and a 429."""
        return cls(), _run(status=429)


def _impossible(record: RequestRecord, largest: int | None, bucket: float) -> bool:
    declared = record.declared_output_tokens or 0
    if largest is not None:
        return record.input_tokens + declared > largest
    return max(record.input_tokens, declared) > bucket


def _strung_along(record: RequestRecord, largest: int | None) -> bool:
    """Kept waiting, or told to come again, with work of which it is said that it can never be served."""
    if largest is None or not _impossible(record, largest, float("inf")):
        return False
    return record.status in (503, 504) or record.outcome in (Outcome.UNFINISHED, Outcome.ABANDONED)


def _hides_an_error(record: RequestRecord) -> bool:
    if record.status != 200 or record.outcome is not Outcome.FAILED or record.own_answer is False:
        return False
    return not (record.stream and record.first_token_ns is not None)


def _bucket_tokens(run: Run) -> float:
    provider = run.profile.provider
    if provider.tokens_per_minute is None:
        return float("inf")
    return provider.tokens_per_minute / 60 * provider.bucket_s


def _by_status(records: Sequence[RequestRecord]) -> dict[str, int]:
    return dict(sorted(Counter(str(record.status) for record in records).items()))


def _run(*, status: int, answers: int = 30) -> Run:
    build = RunBuilder(profile())
    for k in range(answers):
        build.answered("a", 100 * k)
    build.refused("b", 1_000, status=status)
    return build.run()
