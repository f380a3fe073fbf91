"""Does a retry stay what it was, whatever its client says of it?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from pydantic import Field

from agentload import behaviours
from agentload.checks import Check, TenantName
from agentload.evidence.history import LogicalRequest, logical_requests, tenant_names
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, evidence_of, undecided
from agentload.model import NS, Evidence, Outcome, RequestRecord, Run, Status, Verdict
from agentload.promises import Truth

_PROMISED = {"early": Truth.IDEMPOTENCY_KEYS, "exhausted": Truth.MAX_ATTEMPTS}
_FOR_EVER_NS = 2**63
INVITING = frozenset({429, 503})
LEAST = 20
"""Retries that came early, and retries beyond the last attempt, from which a pass is believed."""


class RetryIdentity(Check):
    """Passes when early retries are refused until they are due, and attempts beyond the last one for good.

    For clients that name their requests (`sends_key`), whatever they say of their attempts: one that comes
    before the instant that it was told must not be served, and must be told of what is left and of no more;
    what has had all its attempts is refused without being invited back. Whoever trusts a caller's own count
    is asked for ever by one that always says 0. (The bundled gateway's promises: a target is held to what it
    declares of them, `idempotency_keys` and `max_attempts`.)
    """

    rests_on = frozenset({Truth.IDEMPOTENCY_KEYS, Truth.MAX_ATTEMPTS})
    only_where_said = True
    needs_ledger = True
    zero_tolerance = True

    tenants: tuple[TenantName, ...] = ()
    """Tenants or groups to look at; by default all. Clients that send no key are left out."""
    max_attempts: int | None = Field(default=None, ge=1)
    """By default `retry.max_attempts` of the gateway."""
    grace_ms: float = Field(default=150.0, ge=0)
    """A retry that is early by no more may be served: clocks and networks have their grain."""
    only: tuple[Literal["early", "exhausted"], ...] = ("early", "exhausted")
    """Which of the two promises are looked at."""

    def judge(self, run: Run) -> Verdict:
        """Every retry of every request that has a name."""
        at_provider = {(call.seq, call.attempt) for call in run.ledger}
        most = self.max_attempts or run.profile.gateway.retry.max_attempts
        kinds = [kind for kind in self.only if self._is_known(kind, run)]
        # Who keeps no keys takes an early retry for an attempt like any other.
        grace_ns = round(self.grace_ms * 1e6) if self._is_known("early", run) else _FOR_EVER_NS
        seen = _Seen()
        for request in self._named(run):
            for kind, record, wrong in _follow(request, most, grace_ns, at_provider):
                if kind in kinds:
                    seen.note(kind, record, wrong)
        n = sum(seen.counts.values())
        details: dict[str, Any] = {"looked_at": seen.counts, "wrong": len(seen.wrong)}
        if not seen.wrong:
            for kind in kinds:
                if seen.counts.get(kind, 0) < LEAST:
                    because = f"only {seen.counts.get(kind, 0):,} retries were {kind}: {LEAST} are needed"
                    return undecided(self, because, n=n, details=details)
        counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(seen.counts.items()))
        return conclude(
            self,
            Status.FAILED if seen.wrong else Status.PASSED,
            f"{len(seen.wrong):,} of {n:,} retries ({counted}) were taken for what they are not"
            + (f": {seen.wrong[0].note}" if seen.wrong else ""),
            measured=len(seen.wrong),
            bound=0,
            unit="retries",
            n=n,
            evidence=seen.wrong,
            details=details,
        )

    def rests(self) -> frozenset[Truth]:
        """On what it looks at; how many attempts there are may be said here."""
        if self.max_attempts and "exhausted" in self.only:
            return frozenset()
        return frozenset(_PROMISED[kind] for kind in self.only)

    def _is_known(self, kind: str, run: Run) -> bool:
        told = kind == "exhausted" and self.max_attempts is not None
        return told or run.knows(_PROMISED[kind])

    def _named(self, run: Run) -> Iterator[LogicalRequest]:
        named = {tenant.name: tenant for tenant in run.profile.tenants}
        wanted = set(tenant_names(run, self.tenants))
        for request in logical_requests(run.records):
            if request.tenant in wanted and len(request.attempts) > 1:
                client = behaviours.client_of(named[request.tenant], run.plan.seed, request.seq)
                if behaviours.make(client).sends_key:
                    yield request

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Thirty are told to wait five seconds, come back after one, and are served."""
        return cls(only=("early",)), _run(30, served=True)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Five come early."""
        return cls(only=("early",)), _run(5, served=False)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Thirty come early and are told of the four seconds that are left."""
        return cls(only=("early",)), _run(30, served=False)


class _Seen(msgspec.Struct):
    counts: dict[str, int] = {}
    wrong: list[Evidence] = []

    def note(self, kind: str, record: RequestRecord, wrong: str | None) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if wrong is not None:
            self.wrong.append(evidence_of(record, f"{record.tenant}, attempt {record.attempt}: {wrong}"))


def _follow(
    request: LogicalRequest, most: int, grace_ns: int, at_provider: set[tuple[int | None, int | None]]
) -> Iterator[tuple[str, RequestRecord, str | None]]:
    """Every retry that was early or beyond the last attempt, with what was wrong about its answer."""
    counted, told_ns = 0, -1
    for record in request.attempts:
        if record.outcome in (Outcome.UNSENT, Outcome.UNFINISHED):
            return
        served = record.outcome is Outcome.ANSWERED or (record.seq, record.attempt) in at_provider
        if counted >= most:
            invited = record.status in INVITING
            wrong = "was served" if served else "was invited back" if invited else None
            yield "exhausted", record, wrong and f"{wrong} after {counted} attempts"
        elif record.sent_ns < told_ns - grace_ns:
            yield "early", record, _wrong_when_early(record, served, told_ns)
            continue  # neither an attempt nor a new promise
        counted += 1
        if record.status in INVITING and record.retry_after_s is not None:
            told_ns = record.ended_ns + round(record.retry_after_s * NS)


def _wrong_when_early(record: RequestRecord, served: bool, told_ns: int) -> str | None:
    left_s = (told_ns - record.sent_ns) / NS
    if served:
        return f"was served {left_s:.2f} s before it was due"
    if record.status in INVITING and (record.retry_after_s or 0) > math.ceil(left_s) + 1:
        return f"was told {record.retry_after} s with {left_s:.2f} s left"
    return None


def _run(requests: int, *, served: bool) -> Run:
    of = profile(tenants={"a": 1.0}, phases={"load": 60.0})
    client = of.tenants[0].client.model_copy(update={"kind": "forgetful"})
    named = of.model_copy(update={"tenants": (of.tenants[0].model_copy(update={"client": client}),)})
    build = RunBuilder(named)
    for k in range(requests):
        first = build.refused("a", 1_000 * k, retry_after="5", final=False)
        again_ms, first_ms = 1_000 * k + 1_001, 1_000.0 * k
        if served:
            build.answered("a", again_ms, seq=first.seq, attempt=1, first_due_ms=first_ms)
        else:
            build.refused("a", again_ms, retry_after="4", seq=first.seq, attempt=1, first_due_ms=first_ms)
    return build.run()
