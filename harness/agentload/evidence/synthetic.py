"""Tiny runs made by hand: the examples and counterexamples of the checks, and material for tests.

Every request is written out, so that what a check says about it can be checked with a pencil.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from agentload.model import (
    NS,
    Arrival,
    CallEnding,
    Distribution,
    GeneratorHealth,
    Job,
    LedgerEntry,
    Outcome,
    Phase,
    Plan,
    Profile,
    RequestRecord,
    Run,
    Sample,
    Spec,
    Tenant,
)
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig
from fake_provider.config import ProviderConfig

MS = 1_000_000


def profile(
    *,
    phases: Mapping[str, float] | None = None,
    tenants: Mapping[str, float] | None = None,
    only: Mapping[str, tuple[str, ...]] | None = None,
    classes: Mapping[str, str] | None = None,
    provider: ProviderConfig | None = None,
    max_queue: int = 256,
    checks: Iterable[Spec] = (Spec(kind="status-codes"),),
) -> Profile:
    """A profile: phases (name → seconds), tenants (name → weight), the phases some are limited to, and the
    classes of those that are not `standard`.

    A phase called `warm-up` is not recorded. A tenant `quiet-1` belongs to the group `quiet`.
    """
    lengths = phases or {"load": 10.0}
    return Profile(
        name="synthetic",
        about="A run made by hand.",
        phases=tuple(
            Phase(name=name, seconds=length, record=name != "warm-up") for name, length in lengths.items()
        ),
        tenants=tuple(
            Tenant(
                name=name,
                group=name.rsplit("-", 1)[0],
                weight=weight,
                service_class=(classes or {}).get(name, "standard"),
                users=1,
                during=(only or {}).get(name, ()),
                workload=Spec(kind="fixed"),
                client=Spec(kind="none"),
            )
            for name, weight in (tenants or {"a": 1.0, "b": 1.0}).items()
        ),
        provider=provider or ProviderConfig(),
        gateway=GatewayConfig(
            pools={"shared": PoolConfig(classes={"standard": ClassConfig(max_queue=max_queue)})}
        ),
        checks=tuple(checks),
    )


def healthy(records: int) -> GeneratorHealth:
    """A generator that did all it should."""
    return GeneratorHealth(scheduled=records, issued=records, lateness_ms=Distribution(), trustworthy=True)


class RunBuilder:
    """A run under construction: say what happened to each request, then take `run()`."""

    def __init__(self, of: Profile) -> None:
        self.profile = of
        self.records: list[RequestRecord] = []
        self.ledger: list[LedgerEntry] = []
        self.samples: list[Sample] = []
        self._next_seq = 0
        self._class_of = {tenant.name: tenant.service_class for tenant in of.tenants}

    def answered(
        self,
        tenant: str,
        at_ms: float,
        *,
        wait_ms: float = 0.0,
        service_ms: float = 50.0,
        input_tokens: int = 20,
        output_tokens: int = 20,
        seq: int | None = None,
        attempt: int = 0,
        first_due_ms: float | None = None,
        stream: bool = False,
    ) -> RequestRecord:
        """Sent at `at_ms`, waited in the gateway, served by the provider, answered."""
        ended_ms = at_ms + wait_ms + service_ms
        record = self._record(
            tenant,
            at_ms,
            ended_ms,
            Outcome.ANSWERED,
            seq=seq,
            attempt=attempt,
            first_due_ms=first_due_ms,
            status=200,
            final=True,
        )
        record.input_tokens, record.output_tokens = input_tokens, output_tokens
        record.planned_output_tokens, record.stream, record.own_answer = output_tokens, stream, True
        record.first_token_ns = record.last_token_ns = record.ended_ns
        self.call(
            record,
            at_ms + wait_ms,
            ended_ms,
            CallEnding.COMPLETED,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )
        return record

    def refused(
        self,
        tenant: str,
        at_ms: float,
        *,
        after_ms: float = 1.0,
        status: int = 429,
        retry_after: str | None = "1",
        seq: int | None = None,
        attempt: int = 0,
        first_due_ms: float | None = None,
        final: bool = True,
    ) -> RequestRecord:
        """Refused by the gateway; the provider never sees it."""
        outcome = Outcome.EXPIRED if status == 504 else Outcome.REJECTED
        record = self._record(
            tenant,
            at_ms,
            at_ms + after_ms,
            outcome,
            seq=seq,
            attempt=attempt,
            first_due_ms=first_due_ms,
            status=status,
            final=final,
        )
        record.retry_after, record.retry_after_s = retry_after, _seconds(retry_after)
        return record

    def ended(
        self, tenant: str, at_ms: float, outcome: Outcome, *, after_ms: float = 1000.0, status: int = 0
    ) -> RequestRecord:
        """Any other ending, without a call at the provider (add one with `call`)."""
        return self._record(tenant, at_ms, at_ms + after_ms, outcome, status=status)

    def call(
        self,
        record: RequestRecord | None,
        arrived_ms: float,
        ended_ms: float,
        ending: CallEnding,
        *,
        input_tokens: int = 20,
        output_tokens: int = 20,
        charged_tokens: int | None = None,
        status: int = 200,
    ) -> LedgerEntry:
        """The provider's own entry for an attempt (None: a call without a marker)."""
        served = ending in (CallEnding.COMPLETED, CallEnding.CANCELLED, CallEnding.CUT, CallEnding.OPEN)
        entry = LedgerEntry(
            call=len(self.ledger),
            arrived_ns=round(arrived_ms * MS),
            ending=ending,
            tenant=None if record is None else record.tenant,
            seq=None if record is None else record.seq,
            attempt=None if record is None else record.attempt,
            started_ns=round(arrived_ms * MS) if served else None,
            ended_ns=round(ended_ms * MS),
            status=status,
            input_tokens=input_tokens,
            output_tokens=output_tokens if served else 0,
            charged_tokens=input_tokens + output_tokens if charged_tokens is None else charged_tokens,
        )
        self.ledger.append(entry)
        return entry

    def dispatches(
        self,
        order: Iterable[str],
        *,
        every_ms: float,
        start_ms: float = 0.0,
        slots: int = 4,
        tokens: int = 40,
    ) -> None:
        """A saturated gateway: tenants in the order in which it let their calls go, one every so often.

        Each call holds one of `slots` for slots × every_ms, and was sent when its tenant's last call but one
        was dispatched: from its second dispatch on, a tenant always has something waiting.
        """
        earlier: dict[str, list[float]] = {}
        for position, tenant in enumerate(order):
            at_ms = start_ms + position * every_ms
            mine = earlier.setdefault(tenant, [start_ms, start_ms])
            self.answered(
                tenant,
                mine[-2],
                wait_ms=at_ms - mine[-2],
                service_ms=slots * every_ms,
                input_tokens=tokens // 2,
                output_tokens=tokens - tokens // 2,
            )
            mine.append(at_ms)

    def run(self) -> Run:
        """The finished run: simulated, complete, with a healthy generator."""
        return Run(
            profile=self.profile,
            plan=Plan(seed=self.profile.seed, arrivals=(), closed_users=0, fingerprint="by hand"),
            driver="simulated",
            records=self.records,
            ledger=self.ledger,
            samples=self.samples,
            health=healthy(len(self.records)),
        )

    def _record(
        self,
        tenant: str,
        at_ms: float,
        ended_ms: float,
        outcome: Outcome,
        *,
        status: int,
        seq: int | None = None,
        attempt: int = 0,
        first_due_ms: float | None = None,
        final: bool = True,
    ) -> RequestRecord:
        if seq is None:
            seq, self._next_seq = self._next_seq, self._next_seq + 1
        at_ns = round(at_ms * MS)
        record = RequestRecord(
            seq=seq,
            attempt=attempt,
            tenant=tenant,
            service_class=self._class_of.get(tenant, "standard"),
            phase=self._phase_at(at_ns if first_due_ms is None else round(first_due_ms * MS)),
            due_ns=at_ns,
            sent_ns=at_ns,
            ended_ns=round(ended_ms * MS),
            first_due_ns=at_ns if first_due_ms is None else round(first_due_ms * MS),
            outcome=outcome,
            final=final,
            status=status,
        )
        self.records.append(record)
        return record

    def _phase_at(self, at_ns: int) -> str:
        start_ns = 0
        for phase in self.profile.phases:
            start_ns += round(phase.seconds * NS)
            if at_ns < start_ns:
                return phase.name
        return self.profile.phases[-1].name


def _seconds(retry_after: str | None) -> float | None:
    try:
        value = float(retry_after or "nan")
    except ValueError:
        return None
    return None if math.isnan(value) else value


def with_deadlines(run: Run, deadline_ns: int | None) -> Run:
    """The run with a plan in which each of its requests has that deadline, from when it was due."""
    job = Job(input_tokens=20, output_tokens=20, declared_output_tokens=20, deadline_ns=deadline_ns)
    arrivals = tuple(
        Arrival(seq=r.seq, tenant=r.tenant, service_class="standard", phase=r.phase, due_ns=r.due_ns, job=job)
        for r in run.records
    )
    run.plan = msgspec.structs.replace(run.plan, arrivals=arrivals)
    return run
