"""A worker's assignment, made ready: the plan drawn, its shard taken, the target checked."""

from __future__ import annotations

import os
from dataclasses import dataclass

from agentload import behaviours
from agentload.drivers.caller import Caller
from agentload.drivers.keyring import with_own_keys
from agentload.drivers.load import Share
from agentload.drivers.processes import FILES_BESIDE_CONNECTIONS, raise_file_limit
from agentload.drivers.protocol import Assignment
from agentload.errors import InconclusiveError
from agentload.model import NS, LocustUsers, Profile, Tenant
from agentload.plan import ClosedLoops, draw, shard, windows
from agentload.targets import Target


@dataclass(frozen=True)
class OwnShare:
    """A tenant whose load comes from a user's own code: what of it one worker plays."""

    tenant: Tenant
    own: LocustUsers
    place: int
    """In the profile: what markers call the tenant."""
    numbers: tuple[int, ...]
    """Of its users, those that are this worker's."""
    windows: tuple[tuple[int, int], ...]
    """When it is active."""
    headers: tuple[tuple[str, str], ...]
    """What names the tenant to the target. They hold keys: show them to nobody."""

    def begins_ns(self, number: int) -> int:
        """How long after its window's start a user begins."""
        rate = self.own.spawn_rate
        return 0 if rate is None else round(number / rate * NS)


class Part:
    """The share of an assignment, ready to run."""

    def __init__(self, assignment: Assignment) -> None:
        """Raises AgentloadError when it cannot be played here."""
        config = assignment.config
        self.index, self.of, self.run_id = assignment.index, assignment.of, config.run_id
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
        self.caller.hold_to(self.cap, config.max_answer_bytes)
        self.max_answer_bytes, self.allow_hosts = config.max_answer_bytes, tuple(config.allow_hosts)
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
            max_rate=None if config.max_rate is None else config.max_rate / assignment.of,
            orders={
                one.name: target.api.job_order(one.job) for one in self.profile.tenants if one.job is not None
            },
        )
        self.target = target
        self.own = _own_shares(self.profile, target, self.index, assignment.of)

    def _cap(self, wanted: int) -> int:
        """What this process may keep open, of what its share of the cap would be."""
        allowed = raise_file_limit(wanted + FILES_BESIDE_CONNECTIONS) - FILES_BESIDE_CONNECTIONS
        return max(1, min(wanted, allowed))


def _own_shares(profile: Profile, target: Target, index: int, of: int) -> tuple[OwnShare, ...]:
    """Every of-th user from `index` on, counted over all such tenants."""
    shares: list[OwnShare] = []
    before = 0
    for place, tenant in enumerate(profile.tenants):
        if tenant.locust is None:
            continue
        headers = target.standing_headers(tenant.name, tenant.service_class, "locust", 0)
        shares.append(
            OwnShare(
                tenant=tenant,
                own=tenant.locust,
                place=place,
                numbers=tuple(n for n in range(tenant.locust.users) if (before + n) % of == index),
                windows=tuple(windows(profile, tenant)),
                headers=tuple(headers),
            )
        )
        before += tenant.locust.users
    return tuple(shares)
