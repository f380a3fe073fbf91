"""Do inner layers give up before outer ones, and is it recorded which one did?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check, WithoutLedger
from agentload.evidence.deadlines import Bounded, bounded_attempts
from agentload.evidence.departures import grace_ns
from agentload.evidence.hidden_queue import FAST_REFUSAL_NS
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import MS, RunBuilder, profile, with_deadlines
from agentload.evidence.verdicts import (
    conclude,
    evidence_of,
    milliseconds,
    percent_of,
    status_of_share,
    undecided,
)
from agentload.model import CallEnding, Outcome, Run, Status, Verdict, worst
from agentload.promises import Truth

NEAR_NS = 250 * MS
"""What ends so shortly before its deadline was ended by time."""


class NestedTimeouts(Check):
    """Passes when inner layers give up before outer ones, and every ending says which layer it was.

    Three layers can be seen from outside: the call at the provider, the gateway's answer, the client's own
    timeout. Of the requests with a deadline that were not answered, at most a share of `max_share` each may

    * end by the client's own timeout after the deadline: the gateway should have said 504 before;
    * leave a call open at the provider 2 RTT + `grace_ms` after the client has its answer: an inner timeout
      longer than the outer one goes on spending for nobody;
    * end by time without a name for it: a 500, a connection that just breaks, a stream that just stops, a
      504 without a reason.

    Only clients whose timeout is longer than their deadline show anything; deadlines of closed loops are not
    looked at.
    """

    rests_on = frozenset({Truth.DEADLINES})
    needs_ledger = True
    needs_attribution = True
    without_ledger = WithoutLedger.FAILURES

    rtt_ms: float = Field(default=10.0, ge=0)
    """Round trip between client and gateway, and between gateway and provider."""
    grace_ms: float = Field(default=100.0, ge=0)
    max_share: float = Field(default=0.01, ge=0, lt=1)
    """Share of the unanswered requests, 0..1: a busy machine is late with some."""

    def judge(self, run: Run) -> Verdict:
        """The three kinds of wrong endings; the most frequent decides."""
        grace = grace_ns(self.rtt_ms, self.grace_ms)
        ended = [one for one in bounded_attempts(run) if _by_time(one)]
        wrong = {
            "were ended by the client's own timeout": [one for one in ended if _is_silent(one)],
            "left their call open at the provider": [one for one in ended if _outlived_ns(one, grace) > 0],
            "ended without a name for it": [one for one in ended if _is_nameless(one)],
        }
        status = worst([status_of_share(len(bad), len(ended), self.max_share) for bad in wrong.values()])
        at_provider = sum(one.call is not None for one in ended)
        details = _details(ended, wrong, at_provider)
        if status is not Status.FAILED and not enough(at_provider, 50):
            return undecided(
                self,
                f"only {at_provider} requests with a deadline were ended by time while their call was at the "
                "provider: at least 20 are needed (a provider that stalls, and clients more patient than "
                "their deadlines)",
                n=len(ended),
                details=details,
            )
        most = max(wrong, key=lambda kind: len(wrong[kind]))
        because = f"{percent_of(len(wrong[most]), len(ended))} of the requests that time ended {most}"
        if status is Status.PASSED:
            layers = ", ".join(f"{count:,} × {name}" for name, count in details["endings"].items())
            because += f"; the layers that fired: {layers}"
        elif status is Status.INCONCLUSIVE:
            because += ": too few to tell whether that is more than chance, so a longer run would help"
        return conclude(
            self,
            status,
            because,
            measured=100 * len(wrong[most]) / len(ended),
            bound=100 * self.max_share,
            unit="% of the endings",
            n=len(ended),
            evidence=[
                evidence_of(one.record, f"{one.record.tenant}: {_said(one)}") for one in wrong[most][:5]
            ],
            details=details,
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """The gateway's own timeout is fixed at a minute: every client leaves by itself."""
        return cls(), _run(in_time=0)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Four requests were ended by time."""
        return cls(), _run(in_time=4, requests=4)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """The provider stalls; each call is closed, and its client told, just before the deadline."""
        return cls(), _run(in_time=40)


def _by_time(one: Bounded) -> bool:
    """Time ended it: a 504 after a wait, or something at its deadline or later; not its client before that,
    and not a refusal at once of what would take too long."""
    record = one.record
    if record.outcome is Outcome.ANSWERED:
        return False
    if record.status in (500, 504):
        return one.call is not None or record.ended_ns - record.sent_ns > FAST_REFUSAL_NS
    return one.ended_late_ns >= (0 if record.outcome is Outcome.ABANDONED else -NEAR_NS)


def _is_silent(one: Bounded) -> bool:
    """Its client has heard nothing of what became of it."""
    return one.record.outcome in (Outcome.ABANDONED, Outcome.UNFINISHED)


def _is_nameless(one: Bounded) -> bool:
    """Something came to an end, and nobody says what."""
    record = one.record
    if _is_silent(one):
        return False
    return record.status in (0, 500) or record.outcome is Outcome.TRUNCATED or not record.reason


def _outlived_ns(one: Bounded, grace: int) -> int:
    """How much later than allowed its call ended, after the client had its answer."""
    if one.call is None or one.record.outcome is Outcome.ABANDONED:
        return 0
    if one.call.ended_ns is None:
        return grace
    return one.call.ended_ns - one.record.ended_ns - grace


def _said(one: Bounded) -> str:
    record = one.record
    call = "" if one.call is None else f", its call {one.call.ending}"
    named = record.reason or "no reason given"
    late = milliseconds(one.ended_late_ns)
    return f"{record.outcome} ({record.status}, {named}) {late} after its deadline{call}"


def _details(ended: Sequence[Bounded], wrong: dict[str, list[Bounded]], at_provider: int) -> dict[str, Any]:
    endings = Counter(f"{one.record.status} {one.record.reason or '?'}" for one in ended)
    return {
        "ended_by_time": len(ended),
        "while_at_the_provider": at_provider,
        "calls_closed": sum(
            one.call is not None and one.call.ending is CallEnding.CANCELLED for one in ended
        ),
        "wrong": {kind: len(bad) for kind, bad in wrong.items()},
        "endings": dict(endings.most_common(10)),
    }


class _Ending(msgspec.Struct, frozen=True):
    """How a stalled call ends in the runs below, in milliseconds after it was sent."""

    outcome: Outcome
    status: int
    after_ms: float


def _run(*, in_time: int, requests: int = 40) -> Run:
    """Deadlines of 500 ms, client timeouts of 750; the provider never answers."""
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(requests):
        at_ms = 200.0 * k
        how = _Ending(Outcome.EXPIRED, 504, 480) if k < in_time else _Ending(Outcome.ABANDONED, 0, 750)
        record = build.ended("a", at_ms, how.outcome, after_ms=how.after_ms, status=how.status)
        record.reason = "deadline_exceeded" if how.status else "timeout"
        build.call(record, at_ms + 1, at_ms + how.after_ms + 1, CallEnding.CANCELLED)
    return with_deadlines(build.run(), 500 * MS)
