"""How many calls does the provider get for one thing that a user wanted?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName
from agentload.evidence.history import counted_phases
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, finite, undecided
from agentload.model import CallEnding, Evidence, LedgerEntry, Outcome, Run, Status, Verdict

TINY = 1e-9
"""A bound of 1 allows no retry at all."""


class RetryAmplification(Check):
    """Passes when the provider gets few calls per request, and hardly any that only the gateway wanted.

    Retries multiply: three attempts of a client, each tried three times by the gateway, are nine calls at a
    provider that is already down. Judged phase by phase (an outage's ratio would drown in the calm around
    it), by cause: calls of one attempt beyond its first are the gateway's own retries, at most `max_own`
    calls per attempt on average; with the clients' retries that the gateway let through, a logical request
    may cause `max_calls` on average. Requests that never reached the provider do not count: they would
    flatter the mean.
    """

    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True

    phases: tuple[PhaseName, ...] = ()
    """By default every recorded phase."""
    max_calls: float = Field(default=2.0, ge=1)
    """Provider calls per logical request that reached the provider, on average."""
    max_own: float = Field(default=1.2, ge=1)
    """Provider calls per attempt that reached it, on average: a retry budget of 10 % and its burst."""

    def judge(self, run: Run) -> Verdict:
        """Both ratios in every phase; the worst against its bound decides."""
        found = self._ratios(run)
        usable = [ratios for ratios in found if enough(ratios.requests, 50)]
        if not usable:
            most = max((ratios.requests for ratios in found), default=0)
            return undecided(
                self, f"at most {most:,} requests of a phase reached the provider: at least 20 are needed"
            )
        worst = max(usable, key=lambda ratios: max(self._excess(ratios)))
        total, own = self._excess(worst)
        by_gateway = own > total
        over = worst.total > self.max_calls or worst.own > self.max_own
        cause = (
            f"{worst.own:.2f} calls for each attempt, so {worst.calls - worst.attempts:,} retries of its own"
            if by_gateway
            else f"{worst.total:.2f} calls for each request: {worst.attempts - worst.requests:,} for clients "
            f"that came again and {worst.calls - worst.attempts:,} retries of the gateway's own"
        )
        return conclude(
            self,
            Status.FAILED if over else Status.PASSED,
            f"in '{worst.phase}' {worst.requests:,} requests reached the provider with {worst.calls:,} calls"
            f", {cause}",
            measured=worst.own if by_gateway else worst.total,
            bound=self.max_own if by_gateway else self.max_calls,
            unit="calls per attempt" if by_gateway else "calls per request",
            n=worst.calls,
            evidence=worst.evidence,
            details={"phases": {ratios.phase: ratios.details() for ratios in found}},
        )

    def _excess(self, ratios: _Ratios) -> tuple[float, float]:
        """Both ratios: 0 for one call each, 1 at the bound."""
        total = (ratios.total - 1) / max(self.max_calls - 1, TINY)
        own = (ratios.own - 1) / max(self.max_own - 1, TINY)
        return total, own

    def _ratios(self, run: Run) -> list[_Ratios]:
        phases = list(self.phases or counted_phases(run))
        # Of users' own code only the outermost call is seen: an SDK's retries inside would be the gateway's.
        own = {tenant.name for tenant in run.profile.tenants if tenant.locust is not None}
        phase_of = {record.seq: record.phase for record in run.records if record.tenant not in own}
        calls: dict[str, list[LedgerEntry]] = {phase: [] for phase in phases}
        for call in run.ledger:
            phase = None if call.seq is None else phase_of.get(call.seq)
            if phase in calls and call.ending is not CallEnding.INVALID:
                calls[phase].append(call)
        return [_Ratios.of(phase, mine) for phase, mine in calls.items()]

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """The gateway tries each of the client's two attempts three times."""
        return cls(), _run(attempts=2, own=3)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Four requests."""
        return cls(), _run(attempts=2, own=3, requests=4)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Each client tries twice, and the gateway passes it on."""
        return cls(), _run(attempts=2, own=1)


class _Ratios(msgspec.Struct, frozen=True):
    phase: str
    requests: int
    """Logical requests that reached the provider."""
    attempts: int
    """Attempts of clients that did."""
    calls: int
    evidence: list[Evidence]

    @classmethod
    def of(cls, phase: str, calls: Sequence[LedgerEntry]) -> _Ratios:
        by_attempt = {(call.seq, call.attempt) for call in calls}
        by_request = Counter(call.seq for call in calls)
        last = {call.seq: call for call in calls}
        most = sorted(by_request, key=lambda seq: -by_request[seq])[:5]
        return cls(
            phase,
            len(by_request),
            len(by_attempt),
            len(calls),
            [
                Evidence(
                    note=f"{last[seq].tenant}: {by_request[seq]:,} calls", seq=seq, at_ns=last[seq].arrived_ns
                )
                for seq in most
            ],
        )

    @property
    def total(self) -> float:
        return self.calls / self.requests if self.requests else 1.0

    @property
    def own(self) -> float:
        return self.calls / self.attempts if self.attempts else 1.0

    def details(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "attempts": self.attempts,
            "calls": self.calls,
            "calls_per_request": finite(self.total),
            "calls_per_attempt": finite(self.own),
            "client_retries": self.attempts - self.requests,
            "gateway_retries": self.calls - self.attempts,
        }


def _run(*, attempts: int, own: int, requests: int = 20) -> Run:
    """An outage: every attempt fails, and reaches the provider `own` times."""
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(requests):
        for attempt in range(attempts):
            record = build.ended("a", 400 * k + 100 * attempt, Outcome.FAILED, after_ms=50, status=502)
            record.seq, record.attempt, record.final = k, attempt, attempt == attempts - 1
            for again in range(own):
                at_ms = 400 * k + 100 * attempt + 10 * again
                build.call(record, at_ms, at_ms + 1, CallEnding.FAULTED, status=503)
    return build.run()
