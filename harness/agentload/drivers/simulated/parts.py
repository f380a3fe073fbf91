"""Which parts a simulated world is built from: the reference's, or the reference with one of them replaced.

Every safeguard is behind one field. A mutant is `Parts` with one field changed; the rest is what runs live.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from agentload.behaviours import Behaviour
from agentload.drivers.simulated.gateway import SimulatedGateway
from agentload.gateway.core import GatewayCore
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.front import JobsFront
from agentload.gateway.jobs.stores.memory import MemoryStore
from agentload.gateway.lifecycle import RequestLifecycle
from agentload.gateway.settings import GatewaySettings
from agentload.model import Tenant
from agentload.scheduler.admission import Admission
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.wall_clock import EPOCH_NS
from fake_provider.config import ProviderConfig
from fake_provider.core import Provider

T = TypeVar("T")


def unchanged(value: T) -> T:
    """What a configuration becomes when nothing overrides it."""
    return value


def own_behaviour(_: Tenant, behaviour: Behaviour) -> Behaviour:
    """Every tenant's client behaves as the profile says."""
    return behaviour


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The factories. Each takes what the reference's takes."""

    policy: type[FairQueue] | None = None
    """Who goes next inside a class. None: the one that the profile names."""
    admission: type[Admission] = Admission
    """May it start, may it wait, when may it come back (Retry-After, tickets, bounds, deadlines)."""
    lifecycle: type[RequestLifecycle] = RequestLifecycle
    """What becomes of one request: cancelling, truncation, statuses, settling."""
    core: type[GatewayCore] = GatewayCore
    jobs: type[JobsCore] = JobsCore
    """Durable jobs: leases, fencing, retries, bounds. Its `lifecycle` is what becomes of one of them."""
    store: type[MemoryStore] = MemoryStore
    """Where jobs are kept (a real gateway has its own)."""
    shell: type[SimulatedGateway] = SimulatedGateway
    """What carries the core's actions out, and notices that clients leave."""
    settings: GatewaySettings = field(default_factory=GatewaySettings)
    gateway_config: Callable[[GatewayConfig], GatewayConfig] = unchanged
    """Queue bounds, caps, retry, estimation, margins: whatever is configured."""
    provider: type[Provider] = Provider
    provider_config: Callable[[ProviderConfig], ProviderConfig] = unchanged
    behaviour: Callable[[Tenant, Behaviour], Behaviour] = own_behaviour
    """How a tenant's client takes refusals."""
    watched: bool = True
    """Whether a violated invariant ends the run. False for a mutant that violates one on purpose and is to be
    caught by a check."""

    def make_core(
        self,
        config: GatewayConfig,
        random: Random,
        *,
        settings: GatewaySettings | None = None,
        keys: Mapping[str, str] | None = None,
        wall_offset_ns: int = EPOCH_NS,
    ) -> GatewayCore:
        """The gateway's core. Raises UsageError for a policy that does not exist.

        `settings` (by default the parts' own), `keys` and `wall_offset_ns` are those of a real gateway.
        """
        return self.core(
            config,
            settings or self.settings,
            random,
            keys,
            admission=self.admission(config, random, policy=self.policy, wall_offset_ns=wall_offset_ns),
            lifecycle=self.lifecycle,
            wall_offset_ns=wall_offset_ns,
        )

    def make_front(self, config: GatewayConfig, seed: str) -> GatewayCore | JobsFront:
        """A simulated gateway's core, with jobs beside it where there is a `jobs:` section."""
        core = self.make_core(config, Random(seed))
        if config.jobs is None:
            return core
        return JobsFront(core, self.jobs(config, config.jobs, self.settings, Random(f"{seed}/jobs")))
