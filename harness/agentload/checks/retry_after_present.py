"""Is a refused caller told when to come back?"""

from __future__ import annotations

from collections import Counter

from pydantic import Field

from agentload.checks import Check, Need
from agentload.evidence.history import counted_records
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, evidence_of, percent_of, undecided
from agentload.model import Run, Status, Verdict
from agentload.promises import Truth

INVITE_A_RETRY = frozenset({429, 503})


class RetryAfterPresent(Check):
    """Passes when every 429 and every 503 carries a Retry-After header.

    Without it each client guesses, and guesses meet (RFC 9110 §10.2.3, RFC 6585 §4). Refusals that promise no
    retry (402, 413, other 4xx) need none. Whether the value is well-formed is `retry-after-syntax`'s
    question. A target that declares `retry_after: false` fails all the same: what its refused callers meet is
    no better for having been announced. Who accepts that writes `severity: should`.
    """

    needs = frozenset({Need.REFUSALS})
    zero_tolerance = True

    min_refusals: int = Field(default=1, ge=1)
    """Fewest 429s and 503s from which a pass is believed."""

    def judge(self, run: Run) -> Verdict:
        """Count the refusals without the header."""
        refused = [r for r in counted_records(run) if r.status in INVITE_A_RETRY]
        bare = [r for r in refused if r.retry_after is None]
        if not bare and len(refused) < self.min_refusals:
            return undecided(
                self, f"{len(refused):,} requests got a 429 or 503: more load would show some", n=len(refused)
            )
        kinds = Counter(f"{r.status} {r.reason or ''}".strip() for r in bare)
        because = f"{percent_of(len(bare), len(refused))} of the 429 and 503 answers came without Retry-After"
        if bare:
            because += f": {', '.join(f'{count:,} × {kind}' for kind, count in kinds.most_common(3))}"
        if bare and run.denies(Truth.RETRY_AFTER):
            because += "; as the target declares: `severity: should` where that is accepted"
        return conclude(
            self,
            Status.FAILED if bare else Status.PASSED,
            because,
            measured=len(bare),
            bound=0,
            unit="refusals",
            n=len(refused),
            evidence=[evidence_of(r, f"{r.tenant}: {r.status} without Retry-After") for r in bare],
            details={
                "without": dict(kinds),
                "by_status": dict(Counter(str(r.status) for r in refused)),
            },
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """One bare 429."""
        return cls(), _run("1", None)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Nothing was refused."""
        return cls(), _run()

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """A 429 with seconds, and one with a date."""
        return cls(), _run("1", "Fri, 31 Dec 2027 23:59:59 GMT")


def _run(*headers: str | None) -> Run:
    build = RunBuilder(profile())
    build.answered("a", 0)
    for k, header in enumerate(headers):
        build.refused("a", 100 * (k + 1), retry_after=header)
    return build.run()
