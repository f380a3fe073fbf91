"""Can a client read what the gateway says in Retry-After?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from agentload.checks import Check, Need
from agentload.client.http_fields import parse_retry_after
from agentload.evidence.history import counted_records
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, evidence_of, listed, moot, percent_of, undecided
from agentload.model import Evidence, RequestRecord, Run, Status, Verdict
from agentload.promises import Truth


class RetryAfterSyntax(Check):
    """Passes when every Retry-After is delay-seconds or an HTTP-date, as RFC 9110 §10.2.3 says.

    Delay-seconds is a whole number without sign or fraction; an HTTP-date is one of the three forms of
    §5.6.7, always GMT. Clients ignore anything else, or worse: `0.35`, `-1`, `5s` and milliseconds are all in
    the wild. Well-formed but unwise values are noted, not failed: 0 and dates gone by invite an immediate
    retry, and more than `cap_s` is a caller lost.
    """

    needs = frozenset({Need.RETRY_AFTER})
    zero_tolerance = True

    cap_s: float = Field(default=120.0, gt=0)
    """Longest wait a caller should be told."""

    def judge(self, run: Run) -> Verdict:
        """Read every Retry-After that arrived, on whatever status."""
        told = [(r, r.retry_after) for r in counted_records(run) if r.retry_after is not None]
        if not told:
            if run.denies(Truth.RETRY_AFTER):
                said = "no answer carried Retry-After, as the target declares (`retry_after: false`)"
                return moot(self, said)
            return undecided(self, "no answer carried Retry-After: more load would show some")
        broken = [(r, value) for r, value in told if not well_formed(value)]
        unwise = {kind: [r for r, value in told if self._is(kind, r, value)] for kind in _UNWISE}
        because = f"{percent_of(len(broken), len(told))} of the Retry-After values cannot be read by RFC 9110"
        if broken:
            because += f": {listed([repr(value) for value in dict.fromkeys(v for _, v in broken)])}"
        notes = [f"{len(records):,} {_UNWISE[kind]}" for kind, records in unwise.items() if records]
        if notes:
            because += f"; not wise: {', '.join(notes)}"
        return conclude(
            self,
            Status.FAILED if broken else Status.PASSED,
            because,
            measured=len(broken),
            bound=0,
            unit="values",
            n=len(told),
            evidence=_evidence(broken, unwise),
            details=_details(broken, unwise, told),
        )

    def _is(self, kind: str, record: RequestRecord, value: str) -> bool:
        seconds = record.retry_after_s
        if seconds is None or not well_formed(value):
            return False
        if kind == "over_cap":
            return seconds > self.cap_s
        return seconds <= 0 and _is_date(value) == (kind == "past")

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """One fraction among whole seconds."""
        return cls(), _run("1", "0.35")

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Nobody was told anything."""
        return cls(), _run(None)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Whole seconds and a date; a 0 is only noted."""
        return cls(), _run("1", "0", "Fri, 31 Dec 2027 23:59:59 GMT")


_UNWISE = {
    "zero": "of 0 seconds",
    "past": "with a date gone by",
    "over_cap": "over the cap",
}


def well_formed(value: str) -> bool:
    """Whether a Retry-After value, as received, is delay-seconds or an HTTP-date."""
    return parse_retry_after(value, 0.0) is not None


def _is_date(value: str) -> bool:
    return well_formed(value) and not value.strip(" \t").isdigit()


def _evidence(
    broken: Sequence[tuple[RequestRecord, str]], unwise: dict[str, list[RequestRecord]]
) -> list[Evidence]:
    found = [evidence_of(record, f"Retry-After: {value!r}") for record, value in broken]
    noted = [
        evidence_of(record, f"Retry-After: {record.retry_after!r}, {_UNWISE[kind]}")
        for kind, records in unwise.items()
        for record in records[:1]
    ]
    return found[:4] + noted


def _details(
    broken: Sequence[tuple[RequestRecord, str]],
    unwise: dict[str, list[RequestRecord]],
    told: Sequence[tuple[RequestRecord, str]],
) -> dict[str, Any]:
    return {
        "broken": dict(Counter(value for _, value in broken).most_common(20)),
        "unwise": {kind: len(records) for kind, records in unwise.items()},
        "dates": sum(_is_date(value) for _, value in told),
        "longest_s": max((r.retry_after_s for r, _ in told if r.retry_after_s is not None), default=None),
    }


def _run(*headers: str | None) -> Run:
    build = RunBuilder(profile())
    for k, header in enumerate(headers):
        build.refused("a", 100 * k, retry_after=header)
    return build.run()
