"""Does a call to the provider end when the client that wanted it has left?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check, Need
from agentload.evidence.departures import MS, Departure, departures, grace_ns, remarks
from agentload.evidence.history import counted_records, end_ns
from agentload.evidence.statistics import enough, percentile
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import (
    conclude,
    evidence_of,
    finite,
    milliseconds,
    status_of_share,
    undecided,
)
from agentload.model import CallEnding, LedgerEntry, Outcome, Run, Status, Verdict


class CancelUpstream(Check):
    """Passes when calls are closed at the provider within 2 RTT + 100 ms of their client's leaving.

    Looked at is every attempt whose client gave up while its call was at the provider, in service or queued
    there. Work that nobody waits for costs tokens and slots; under overload it is what keeps a gateway from
    ever recovering. A call that runs on to its end counts until then, one that is still open when the run
    ends until that moment. A share of `max_late` may be later.
    """

    needs = frozenset({Need.FIRST_TOKENS, Need.DEPARTURES})
    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True

    rtt_ms: float = Field(default=10.0, ge=0)
    """Round trip between client and gateway, and between gateway and provider."""
    grace_ms: float = Field(default=100.0, ge=0)
    max_late: float = Field(default=0.05, ge=0, lt=1)
    """Share of the calls that may be closed later, 0..1: a busy machine notices some late."""

    def judge(self, run: Run) -> Verdict:
        """How long after its client each call ended."""
        last_ns, bound_ns = end_ns(run), grace_ns(self.rtt_ms, self.grace_ms)
        lags = [
            lag
            for departure in departures(counted_records(run), run.ledger)
            for call in departure.in_flight
            if (lag := _lag(departure, call, last_ns)).ns > bound_ns or not lag.open
        ]
        late = sorted((lag for lag in lags if lag.ns > bound_ns), key=lambda lag: -lag.ns)
        status = status_of_share(len(late), len(lags), self.max_late)
        if status is not Status.FAILED and not enough(len(lags), 50):
            return undecided(
                self,
                f"only {len(lags)} clients left while their call was at the provider: at least 20 are needed "
                f"(shorter timeouts, or longer answers){remarks(counted_records(run))}",
                n=len(lags),
            )
        measured = percentile([float(lag.ns) for lag in lags], 100 * (1 - self.max_late))
        ran_on = sum(lag.call.ending is not CallEnding.CANCELLED for lag in late)
        because = (
            f"{len(late):,} of {len(lags):,} calls were still at the provider {milliseconds(bound_ns)} after "
            f"their client had left"
        )
        if late:
            because += f", {ran_on:,} of them to their end; the longest for {milliseconds(late[0].ns)}"
        if status is Status.INCONCLUSIVE:
            because += ": too few to tell whether that is more than chance, so let more clients leave"
        because += remarks(counted_records(run))
        return conclude(
            self,
            status,
            because,
            measured=measured / MS,
            bound=bound_ns / MS,
            unit="ms",
            n=len(lags),
            evidence=[
                evidence_of(lag.departure.record, f"{lag.call.ending} {milliseconds(lag.ns)} after it left")
                for lag in late
            ],
            details=_details(lags, late),
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Clients leave after 50 ms; the calls run on to their end, after 500 ms."""
        return cls(), _run(closed_after_ms=450)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Two clients left."""
        return cls(), _run(closed_after_ms=5, leavers=2)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Each call is closed 5 ms after its client has left."""
        return cls(), _run(closed_after_ms=5)


class _Lag(msgspec.Struct, frozen=True):
    departure: Departure
    call: LedgerEntry
    ns: int
    open: bool
    """Still open when the run ended: it lasted at least so long."""


def _lag(departure: Departure, call: LedgerEntry, last_ns: int) -> _Lag:
    ended_ns = last_ns if call.ended_ns is None else call.ended_ns
    return _Lag(departure, call, ended_ns - departure.at_ns, call.ended_ns is None)


def _details(lags: Sequence[_Lag], late: Sequence[_Lag]) -> dict[str, Any]:
    endings = sorted({str(lag.call.ending) for lag in lags})
    values = [float(lag.ns) for lag in lags]
    return {
        "late": len(late),
        "p50_ms": finite(percentile(values, 50) / MS) if values else None,
        "max_ms": finite(max(values, default=math.inf) / MS),
        "endings": {ending: sum(lag.call.ending == ending for lag in lags) for ending in endings},
    }


def _run(*, closed_after_ms: float, leavers: int = 30) -> Run:
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(leavers):
        at_ms = 200.0 * k
        record = build.ended("a", at_ms, Outcome.ABANDONED, after_ms=50)
        ending = CallEnding.CANCELLED if closed_after_ms < 450 else CallEnding.COMPLETED
        build.call(record, at_ms + 1, at_ms + 50 + closed_after_ms, ending)
    return build.run()
