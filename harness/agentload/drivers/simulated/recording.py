"""From a profile and a plan to a `Run`, with the very types that a live run leaves behind."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agentload import behaviours, checks
from agentload.drivers import health
from agentload.drivers.simulated.client import Demand
from agentload.drivers.simulated.network import Timing
from agentload.drivers.simulated.parts import Parts
from agentload.drivers.simulated.world import Sinks, Trouble, World
from agentload.errors import UsageError
from agentload.faults import gateway_acts, provider_faults
from agentload.interrupts import INTERRUPTED
from agentload.model import (
    NS,
    CallEnding,
    Distribution,
    GeneratorHealth,
    JobRecord,
    LedgerEntry,
    Plan,
    Profile,
    RequestRecord,
    Run,
    Sample,
)
from agentload.plan import ClosedLoops
from agentload.provider_records import tools_from_provider
from fake_provider.ledger import Entry

DRIVER = "simulated"
_MARKER_RUNS = 65_535


class Recording:
    """One simulated run and what it brought. `record` drives it; `stop` ends it early."""

    def __init__(
        self, profile: Profile, plan: Plan, parts: Parts | None = None, timing: Timing | None = None
    ) -> None:
        """Raises UsageError for a policy, behaviour or workload that does not exist, or users' own code."""
        refuse_own_code(profile)
        self.profile, self.plan = profile, plan
        self._records: list[RequestRecord] = []
        self._samples: list[Sample] = []
        self._jobs: list[JobRecord] = []
        parts = parts or Parts()
        self.world = World(
            profile.gateway,
            profile.provider,
            _demand(profile, plan, parts),
            # A run of its own for every seed: the provider's draws go by it.
            run=plan.seed % _MARKER_RUNS + 1,
            sinks=Sinks(record=self._records.append, sample=self._samples.append, job=self._jobs.append),
            parts=parts,
            timing=timing,
            trouble=Trouble(provider=provider_faults(profile), gateway=gateway_acts(profile)),
            health_page=checks.Need.HEALTH_PAGE in checks.needs_of(profile.checks),
        )

    def record(self) -> Run:
        """Drive it to its end. Raises InvariantError."""
        world = self.world
        world.run()
        names = [tenant.name for tenant in self.profile.tenants]
        ledger = [_ledger_entry(entry, names) for entry in world.provider.core.ledger.entries]
        return Run(
            profile=self.profile,
            plan=self.plan,
            driver=DRIVER,
            records=self._records,
            ledger=ledger,
            samples=self._samples,
            health=_health(world),
            jobs=sorted(self._jobs, key=lambda job: job.seq),
            tools=tools_from_provider(map(msgspec.structs.asdict, world.tools.entries), 0),
            interrupted=INTERRUPTED if world.stopped else None,
            meta={"digest": world.log.hexdigest(), "events": world.kernel.events},
        )

    def stop(self) -> None:
        """End it at the present event (from a signal handler, say)."""
        self.world.stop()


def refuse_own_code(profile: Profile) -> None:
    """Leaving such tenants out would answer another question than was asked. Raises UsageError."""
    for tenant in profile.tenants:
        if tenant.locust is not None:
            raise UsageError(
                f"{profile.name}: {tenant.name}: its load is Python code ({tenant.locust.file}), which "
                "has no virtual time: `agentload run` it"
            )


def _demand(profile: Profile, plan: Plan, parts: Parts) -> Demand:
    loops = ClosedLoops(profile, plan)
    return Demand(
        arrivals=plan.arrivals,
        behaviours={t.name: parts.behaviour(t, behaviours.of(t)) for t in profile.tenants},
        places={tenant.name: place for place, tenant in enumerate(profile.tenants)},
        seed=plan.seed,
        horizon_ns=profile.duration_ns + round(profile.drain_s * NS),
        loops=loops,
        users=loops.users,
        orders={tenant.name: tenant.job for tenant in profile.tenants if tenant.job is not None},
    )


def _health(world: World) -> GeneratorHealth:
    """Exact: everything was sent in the very nanosecond in which it was due."""
    clients = world.clients
    found = GeneratorHealth(
        scheduled=clients.scheduled,
        issued=clients.issued,
        lateness_ms=Distribution(p50=0.0, p95=0.0, p99=0.0, p999=0.0, n=clients.attempts),
        trustworthy=True,
        peak_in_flight=clients.peak_in_flight,
    )
    return health.assess(found)


_ENDINGS: Mapping[str, CallEnding] = {ending.value: ending for ending in CallEnding}


def _ledger_entry(entry: Entry, names: list[str]) -> LedgerEntry:
    return LedgerEntry(
        call=entry.call,
        arrived_ns=entry.arrived_ns,
        ending=_ENDINGS[entry.ending.value],
        tenant=None if entry.tenant is None else names[entry.tenant],
        seq=entry.seq,
        attempt=entry.attempt,
        model=entry.model,
        endpoint=entry.endpoint,
        stream=entry.stream,
        queued_ns=entry.queued_ns,
        started_ns=entry.started_ns,
        ended_ns=entry.ended_ns,
        status=entry.status,
        input_tokens=entry.input_tokens,
        charged_tokens=entry.charged_tokens,
        output_tokens=entry.output_tokens,
        not_before_ns=entry.not_before_ns,
        early=entry.early,
        retry_header=entry.retry_header,
        reason=entry.reason,
    )
