"""A worker's assignment, made ready: the plan drawn, its shard taken, the target checked."""

from __future__ import annotations

import os

from agentload import behaviours
from agentload.drivers.caller import Caller
from agentload.drivers.keyring import with_own_keys
from agentload.drivers.load import Share
from agentload.drivers.processes import FILES_BESIDE_CONNECTIONS, raise_file_limit
from agentload.drivers.protocol import Assignment
from agentload.errors import InconclusiveError
from agentload.model import Profile
from agentload.plan import ClosedLoops, draw, shard
from agentload.targets import Target


class Part:
    """The share of an assignment, ready to run."""

    def __init__(self, assignment: Assignment) -> None:
        """Raises AgentloadError when it cannot be played here."""
        config = assignment.config
        self.index = assignment.index
        self.profile = Profile.model_validate(config.profile)
        plan = draw(self.profile, config.seed)
        if config.fingerprint not in (None, plan.fingerprint):
            raise InconclusiveError(
                f"worker {self.index} draws another plan ({plan.fingerprint[:12]}) than agentload run did "
                f"({str(config.fingerprint)[:12]}): give every host the same version and plug-ins"
            )
        self.fingerprint = plan.fingerprint
        names = [tenant.name for tenant in self.profile.tenants]
        target = with_own_keys(Target.from_dict(config.target, dict(os.environ)), names, os.environ)
        target.check_tenants((tenant.name, tenant.service_class) for tenant in self.profile.tenants)
        self.caller = Caller(target, self.profile, config.run_id, self.index)
        self.cap = self._cap(config.in_flight_cap // assignment.of)
        loops = ClosedLoops(self.profile, plan)
        drain_s = self.profile.drain_s if config.drain_s is None else config.drain_s
        self.share = Share(
            arrivals=shard(plan, self.index, assignment.of),
            users=tuple(user for user in loops.users if user.index % assignment.of == self.index),
            loops=loops,
            behaviours={tenant.name: behaviours.of(tenant) for tenant in self.profile.tenants},
            seed=config.seed,
            horizon_ns=self.profile.duration_ns + round(drain_s * 1e9),
            in_flight_cap=self.cap,
            orders={one.name: one.job for one in self.profile.tenants if one.job is not None},
        )

    def _cap(self, wanted: int) -> int:
        """What this process may keep open, of what its share of the cap would be."""
        allowed = raise_file_limit(wanted + FILES_BESIDE_CONNECTIONS) - FILES_BESIDE_CONNECTIONS
        return max(1, min(wanted, allowed))
