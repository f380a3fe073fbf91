"""Client, gateway and provider, wired up: one world, driven to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agentload.drivers.simulated.client import Clients, Demand
from agentload.drivers.simulated.digest import EventLog
from agentload.drivers.simulated.gateway_faults import GatewayFaults
from agentload.drivers.simulated.health_watch import HealthWatch
from agentload.drivers.simulated.invariants import InvariantError, NoWatch, Watch
from agentload.drivers.simulated.job_clients import JobClients, Keepers
from agentload.drivers.simulated.jobs import SimulatedJobs
from agentload.drivers.simulated.kernel import OBSERVE, Kernel
from agentload.drivers.simulated.messages import Submitter
from agentload.drivers.simulated.network import Timing
from agentload.drivers.simulated.parts import Parts
from agentload.drivers.simulated.provider import SimulatedProvider
from agentload.faults import GatewayAct
from agentload.gateway.core import GatewayCore
from agentload.gateway.jobs.front import JobsFront
from agentload.model import JobRecord, RequestRecord, Sample
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.gauges import gauges
from fake_provider.config import ProviderConfig
from fake_provider.faults import Fault
from fake_provider.ledger import Entry
from fake_provider.tools import ToolDesk


def _nothing(_: object) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Sinks:
    """Who takes what the world brings forth, as it comes: nothing is kept inside."""

    record: Callable[[RequestRecord], None] = _nothing
    sample: Callable[[Sample], None] = _nothing
    job: Callable[[JobRecord], None] = _nothing
    call: Callable[[Entry], None] | None = None
    """Every ledger entry when it is final. (Up to `max_ledger_entries` the provider keeps them, too.)"""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What goes wrong, and when (see `agentload.faults`)."""

    provider: Iterable[Fault] = ()
    gateway: Iterable[GatewayAct] = ()


class World:
    """One simulated run. `run` drives it to its end; `stop`, from a signal handler, say, ends it early."""

    def __init__(
        self,
        gateway: GatewayConfig,
        provider: ProviderConfig,
        demand: Demand,
        *,
        run: int = 1,
        sinks: Sinks | None = None,
        parts: Parts | None = None,
        timing: Timing | None = None,
        trouble: Trouble | None = None,
        health_page: bool = False,
    ) -> None:
        """`run`: the number in markers, 0..65535. `health_page`: ask for the gateway's once a second, too.

        Raises UsageError for a policy that does not exist.
        """
        sinks, parts, timing = sinks or Sinks(), parts or Parts(), timing or Timing()
        config = parts.gateway_config(gateway)
        self.kernel = kernel = Kernel()
        self.timing = timing
        self.log = EventLog()
        self._sinks = sinks
        self._until_ns = demand.horizon_ns
        self._stopping = False
        trouble = trouble or Trouble()
        front = parts.make_front(config, f"{demand.seed}/gateway")
        core = front.core if isinstance(front, JobsFront) else front
        provider_core = parts.provider(parts.provider_config(provider), run=run, on_ended=sinks.call)
        for fault in trouble.provider:
            provider_core.add_fault(0, fault)
        watch = Watch if parts.watched else NoWatch
        self.watch = watch(core, config, provider_core, timing.timer_grain_ns)
        self.gateway = parts.shell(kernel, timing, core, self.log, self.watch)
        self.provider = SimulatedProvider(kernel, timing, provider_core, self.gateway.answered, self.watch)
        submitter = Submitter(run, demand.places)
        self.clients = Clients(
            kernel, timing, demand, submitter, self.log, keep=sinks.record, idle=kernel.stop
        )
        self.clients.front = self.gateway
        self.gateway.upstream = self.provider
        self._health = HealthWatch(kernel, timing, self.gateway, sinks.sample) if health_page else None
        self.tools = ToolDesk(run)
        """The fake tools' ledger."""
        if isinstance(front, JobsFront):
            self._keep_jobs(front, parts, demand, run)

        def new_core(start: int) -> GatewayCore | JobsFront:
            return parts.make_front(config, f"{demand.seed}/gateway/{start}")

        self._gateway_faults = GatewayFaults(kernel, self.gateway, trouble.gateway, new_core, self.log)

    def _keep_jobs(self, front: JobsFront, parts: Parts, demand: Demand, run: int) -> None:
        """Durable jobs: their store, their tools, and their clients."""
        kernel, timing, gateway, clients = self.kernel, self.timing, self.gateway, self.clients
        gateway.front = front
        gateway.jobs = SimulatedJobs(
            kernel, timing, gateway, parts.store(), self.tools, list(demand.places), self.log
        )
        keepers = Keepers(record=clients.posted, job=self._sinks.job, over=clients.job_over)
        clients.jobs = JobClients(
            kernel,
            timing,
            demand.orders,
            demand.places,
            run=run,
            horizon_ns=demand.horizon_ns,
            keepers=keepers,
        )
        clients.jobs.door = gateway

    def run(self) -> None:
        """To the end: every request has ended, or the drain is over. Raises InvariantError."""
        if self.timing.sample_ns:
            self.kernel.at(self.timing.sample_ns, self._sample, None, OBSERVE)
        if self._health is not None:
            self._health.begin()
        self.clients.begin()
        if not self._stopping:
            self.kernel.run(self._until_ns)
        if self._stopping:
            self.clients.stop()
        self._gateway_faults.heal()
        self.kernel.run(self.kernel.now_ns + self.timing.settle_ns)
        self.watch.look(self.kernel.now_ns)
        self._reconcile()

    def stop(self) -> None:
        """End the run at the present event; what is open then is unfinished."""
        self._stopping = True
        self.kernel.stop()

    @property
    def stopped(self) -> bool:
        """Whether it was ended early."""
        return self._stopping

    def _sample(self, _: None) -> None:
        if self.gateway.answers:
            seen = self.watch.look(self.kernel.now_ns)
            values = gauges(seen) | {"metric_series": float(self.gateway.core.books.series)}
            self._sinks.sample(Sample(at_ns=seen.at_ns, source="gateway", values=values))
        self.kernel.at(self.kernel.now_ns + self.timing.sample_ns, self._sample, None, OBSERVE)

    def _reconcile(self) -> None:
        """Client and gateway must agree on how many attempts there were."""
        offered, sent = self.gateway.offered + self.gateway.lost_sight_of, self.clients.attempts
        if self.watch.asserts and offered != sent:
            raise InvariantError(f"the clients sent {sent} attempts, the gateway was offered {offered}")
