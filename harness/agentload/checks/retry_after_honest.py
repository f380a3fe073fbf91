"""Is a client that waits exactly as long as it was told served when it comes back?"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check, Need, TenantName, WithoutLedger
from agentload.evidence.allowance import told_to_wait
from agentload.evidence.fairness import TRANSIT_NS
from agentload.evidence.hidden_queue import depth_steps, waits
from agentload.evidence.history import end_ns, tenant_names
from agentload.evidence.intervals import Interval, length_ns, merge, subtract, value_at
from agentload.evidence.promises import Promise, promises
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import (
    conclude,
    evidence_of,
    finite,
    moot,
    percent_of,
    seconds,
    status_of_share,
    undecided,
)
from agentload.model import NS, Outcome, RequestRecord, Run, Status, Verdict
from agentload.promises import Truth

ALLOWED = 0.05
"""Share of the promises that may be broken, or too long."""
PATIENCE_NS = 5 * NS
"""A return that is still open when the run ends, and younger than this, has not been decided."""
LONG_S = 4.0
"""The quarter of a shorter promise cannot be told from it: Retry-After knows whole seconds only."""
AT_MOST_HALF = 0.5


class RetryAfterHonest(Check):
    """Passes when clients that wait exactly the promise are served, and the promise is no longer than needed.

    Of the clients that come back when Retry-After said, 95 % must be answered at that attempt: a promise that
    ends in another refusal has cost everybody a round. And it must not be longer than max(2, 2 · needed + 1)
    seconds, where needed is what it takes, at the rate at which the provider was called while work waited,
    to serve all that waited in the gateway at that instant and all whose promise was still outstanding, after
    any time for which the provider wanted no calls at all. (First refusals only: for clients that come back
    again and again it may grow.) Only where the flood is finite: under a lasting one every promise is broken.
    Where tenants are named that come back after a
    `quarter` of their time, promises of 4 s and more are tried: at most half of those may be served.
    """

    needs = frozenset({Need.RETRY_AFTER})
    needs_ledger = True
    needs_attribution = True
    without_ledger = WithoutLedger.PART
    stalls_only_worsen = True

    quarter: tuple[TenantName, ...] = ()
    """Tenants or groups that come back much too early, on purpose."""
    factor: float = Field(default=2.0, ge=1)
    slack_s: float = Field(default=1.0, ge=0)
    """Whole seconds have to be rounded up."""

    def judge(self, run: Run) -> Verdict:
        """What came of the returns, and how long they had to wait."""
        made = promises(run)
        if not made and run.denies(Truth.RETRY_AFTER):
            said = "nobody was told when to come back, as the target declares (`retry_after: false`)"
            return moot(self, said)
        found = [
            self._returns(run, made),
            *([self._lengths(run, made)] if run.ledger_available else []),
            *([self._quarters(run, made)] if self.quarter else []),
        ]
        details: dict[str, Any] = {one.what: one.details for one in found} | {"promises": len(made)}
        if not self.quarter:
            details["quarter"] = "not judged: no tenant is named that comes back after a quarter"
        if not run.ledger_available:
            details["lengths"] = "not judged: what was needed is known only with our provider's ledger"
        failed = [one for one in found if one.status is Status.FAILED]
        unclear = [one for one in found if one.status is Status.INCONCLUSIVE]
        if unclear and not failed:
            return undecided(self, "; ".join(one.because for one in unclear), n=found[0].n, details=details)
        decisive = max(failed or found[:1], key=lambda one: one.share / one.allowed)
        because = "; ".join(one.because for one in (failed or found))
        because += "" if run.ledger_available else "; whether promises were longer than needed was not judged"
        return conclude(
            self,
            decisive.status,
            because,
            measured=100 * decisive.share,
            bound=100 * decisive.allowed,
            unit=decisive.unit,
            n=decisive.n,
            evidence=[evidence_of(p.refusal, _story(p)) for p in decisive.bad],
            details=details,
        )

    def _returns(self, run: Run, made: Sequence[Promise]) -> _Finding:
        last_ns = end_ns(run)
        back = [p for p in made if p.kept_to and p.retry is not None and _decided(p.retry, last_ns)]
        bad = [p for p in back if not p.served]
        status = status_of_share(len(bad), len(back), ALLOWED)
        because = (
            f"{percent_of(len(back) - len(bad), len(back))} of the clients that came back as told were served"
        )
        if status is Status.PASSED and not enough(len(back), 95):
            status = Status.INCONCLUSIVE
            because = (
                f"only {len(back):,} clients came back when they had been told to: at least 72 are needed "
                "(a flood of clients that obey)"
            )
        elif status is Status.INCONCLUSIVE:
            because += ", too few returns to tell"
        return _Finding("returns", status, because, len(back), bad, ALLOWED, "% turned away again", {})

    def _lengths(self, run: Run, made: Sequence[Promise]) -> _Finding:
        """First refusals whose promise is longer than twice what was needed, and a second."""
        rate = _calls_per_s(run)
        needed = _needed_s(run, made, rate)
        first = [p for p in made if p.refusal.attempt == 0]
        bad = [p for p in first if p.wait_s > self._longest_s(needed[_key(p)])]
        bad.sort(key=lambda p: self._longest_s(needed[_key(p)]) - p.wait_s)
        status = status_of_share(len(bad), len(first), ALLOWED)
        because = f"{percent_of(len(bad), len(first))} of the promises were longer than needed"
        if bad:
            because += (
                f", such as {bad[0].wait_s:g} s where {needed[_key(bad[0])]:.1f} s would have done for all "
                f"({rate:.1f} calls a second)"
            )
        waits_s = sorted(p.wait_s for p in first)
        details = {
            "calls_per_s": finite(rate),
            "longest_promise_s": finite(waits_s[-1]) if waits_s else None,
            "median_promise_s": finite(waits_s[len(waits_s) // 2]) if waits_s else None,
            "most_needed_s": finite(max((needed[_key(p)] for p in first), default=0.0)),
        }
        return _Finding("lengths", status, because, len(first), bad, ALLOWED, "% too long", details)

    def _longest_s(self, needed_s: float) -> float:
        return max(2.0, self.factor * needed_s + self.slack_s)

    def _quarters(self, run: Run, made: Sequence[Promise]) -> _Finding:
        names = set(tenant_names(run, self.quarter))
        tried = [
            p
            for p in made
            if p.refusal.tenant in names and p.wait_s >= LONG_S and (p.waited_part or 1.0) <= AT_MOST_HALF
        ]
        good = [p for p in tried if p.served]
        status = status_of_share(len(good), len(tried), AT_MOST_HALF)
        because = (
            f"{percent_of(len(good), len(tried))} of those that came back much earlier were served as well"
        )
        if status is Status.PASSED and not enough(len(tried), 50):
            status = Status.INCONCLUSIVE
            because = f"only {len(tried):,} clients came back after a quarter of 4 s or more: 20 are needed"
        return _Finding("quarter", status, because, len(tried), good, AT_MOST_HALF, "% served early", {})

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Everybody is told the same second; one in four is served when they all come back."""
        return cls(), _run(served_every=4)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Ten clients were refused, and served when they came back."""
        return cls(), _run(served_every=1, refused=10)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """A hundred are refused and told when their turn is, ten a second; all are served then."""
        return cls(), _run(served_every=1)


class _Finding(msgspec.Struct, frozen=True):
    what: str
    status: Status
    because: str
    n: int
    bad: list[Promise]
    allowed: float
    unit: str
    details: dict[str, Any]

    @property
    def share(self) -> float:
        return len(self.bad) / self.n if self.n else 0.0


def _key(promise: Promise) -> tuple[int, int]:
    return promise.refusal.seq, promise.refusal.attempt


def _decided(retry: RequestRecord, last_ns: int) -> bool:
    if retry.outcome is Outcome.UNSENT:
        return False
    return retry.outcome is not Outcome.UNFINISHED or last_ns - retry.sent_ns >= PATIENCE_NS


def _calls_per_s(run: Run) -> float:
    """How many calls the provider took up per second while work waited and it wanted any; 0 for none."""
    held = [w for w in waits(run.records, run.ledger) if w.length_ns > TRANSIT_NS]
    waited = subtract(merge((w.start_ns, w.end_ns) for w in held), told_to_wait(run.ledger))
    starts = [call.started_ns for call in run.ledger if call.started_ns is not None]
    taken = sum(_inside(at_ns, waited) for at_ns in starts)
    waited_ns = length_ns(waited)
    return taken / (waited_ns / NS) if waited_ns else 0.0


def _inside(at_ns: int, merged: Sequence[Interval]) -> bool:
    """Ends included: the call that ends a wait was taken up in it."""
    index = bisect_right(merged, at_ns, key=lambda interval: interval[0]) - 1
    return index >= 0 and at_ns <= merged[index][1]


def _needed_s(run: Run, made: Sequence[Promise], rate: float) -> dict[tuple[int, int], float]:
    """What each refused caller had to wait for: the provider, everything in the gateway, and everybody who
    had been promised before."""
    depth, away = depth_steps(run.records, run.ledger), told_to_wait(run.ledger)
    due = sorted(promise.due_ns for promise in made)
    needed: dict[tuple[int, int], float] = {}
    for earlier, promise in enumerate(made):
        outstanding = max(0, earlier - bisect_right(due, promise.made_ns))
        ahead = value_at(depth, promise.made_ns) + outstanding + 1
        needed[_key(promise)] = _left_ns(away, promise.made_ns) / NS + (ahead / rate if rate else 0.0)
    return needed


def _left_ns(merged: Sequence[Interval], at_ns: int) -> int:
    """How long the interval around an instant still lasts; 0 outside of all."""
    index = bisect_right(merged, at_ns, key=lambda interval: interval[0]) - 1
    return max(0, merged[index][1] - at_ns) if index >= 0 else 0


def _story(promise: Promise) -> str:
    told = f"{promise.refusal.tenant}: told to wait {promise.wait_s:g} s"
    if promise.retry is None:
        return told
    back = promise.retry
    waited = seconds(back.due_ns - promise.made_ns)
    return f"{told}, back after {waited}, {back.outcome} {back.status or ''}".rstrip()


def _run(*, served_every: int, refused: int = 100) -> Run:
    """Ten calls a second are served. A burst fills a queue of ten; the others are refused and told when."""
    build = RunBuilder(profile(phases={"flood": 5.0, "after": 20.0}, tenants={"a": 1.0}))
    for k in range(10):
        build.answered("a", 0, wait_ms=100 * k, service_ms=100)
    for k in range(refused):
        promise_s = 1 if served_every > 1 else 1 + (k + 1) // 10
        seq, back_ms = 1_000 + k, 1_010 + 1_000 * (promise_s - 1)
        build.refused("a", 9, retry_after=str(promise_s), seq=seq, final=False)
        if k % served_every:
            build.refused("a", back_ms, seq=seq, attempt=1, first_due_ms=9, retry_after=None)
        else:
            turn_ms = 100 * (k % 10)
            build.answered("a", back_ms, seq=seq, attempt=1, first_due_ms=9, wait_ms=turn_ms, service_ms=100)
    return build.run()
