"""Capacity that classes share: units of work and slots, floors that are kept, the rest lent and taken back.

Three rules. What a class is short of its floor is kept free of everybody else, so a class below its floor
never waits for others. Up to its nominal share a class comes before those that borrow, so what was lent comes
back as work ends; calls are not preempted, so it takes as long as the borrowers' calls in service. Beyond
that, idle capacity is lent to whoever may borrow, as far as its limit goes.

In the words of Kubernetes APF (KEP-1040): the floor is MinCL = nominal - lendable, or min_units where that is
more, and the limit is MaxCL = nominal + borrowing. APF sets limits anew every ten seconds; here every call
that ends gives its place to whoever is due it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agentload.errors import UsageError
from agentload.scheduler.config import ClassConfig, PoolConfig
from agentload.scheduler.lease import Leases
from agentload.scheduler.scale_out import ScaleOut
from agentload.scheduler.shards import ShuffleShards
from agentload.scheduler.virtual_time import Flow
from agentload.scheduler.work import UNIT, WorkEstimate

ROUNDING = 1e-9
"""Shares are floats: 0.29 of 100 slots are 29, and not 28.999999999999996."""


class Reservation(msgspec.Struct, frozen=True):
    """Capacity granted to one call, all of it or none, until it is released or its lease runs out."""

    id: int
    """Unique, ascending in the order of grants."""
    request_id: int
    tenant: str
    service_class: str
    estimate: WorkEstimate
    units: float
    """Work units of the pool; beside them it holds one slot."""
    provider_tokens: int
    """Taken from the provider's token bucket."""
    granted_ns: int
    expires_ns: int
    """The lease's first end; every progress report moves the real one on."""
    fallback_model: str | None = None
    """The model to be called; None: the one that was asked for."""


class ClassShare(Flow):
    """One class's part of its pool, and its place among all classes in virtual time."""

    __slots__ = (
        "bounded",
        "contending",
        "floor_slots",
        "floor_units",
        "has_floor",
        "limit",
        "limit_slots",
        "limit_units",
        "name",
        "nominal",
        "nominal_slots",
        "nominal_units",
        "slots_used",
        "steady_slots",
        "steady_units",
        "units_used",
        "unmet_slots",
        "unmet_units",
    )

    def __init__(self, name: str, config: ClassConfig, pool: PoolConfig, nominal: float) -> None:
        floor_share = max(config.min_units / pool.capacity_units, nominal * (1 - config.lendable))
        # Classes of different pools meet at the provider, each with the weight of the capacity it is due.
        super().__init__(weight=max(nominal, floor_share) * pool.capacity_units)
        self.name = name
        self.nominal = max(nominal, floor_share)
        """Share of the pool, 0..1, that it may use before those that borrow."""
        self.nominal_units = round(self.nominal * pool.capacity_units * UNIT)
        self.nominal_slots = int(self.nominal * pool.slots + ROUNDING)
        """Whole ones: a class of 4.8 slots that takes a fifth may take it from one due eight. What the
        fractions add up to is shared by virtual time."""
        self.limit = None if config.borrows is None else self.nominal * (1 + config.borrows)
        """Share of the pool that it may use at most; None: all that is there."""
        self.limit_units = round((self.limit or 0.0) * pool.capacity_units * UNIT)
        self.limit_slots = max(1, int((self.limit or 0.0) * pool.slots + ROUNDING))
        self.floor_units = round(floor_share * pool.capacity_units * UNIT)
        # Rounded down: a fraction of a slot kept free would keep a whole one from everybody.
        self.floor_slots = int(floor_share * pool.slots + ROUNDING)
        self.has_floor = self.floor_units > 0 or self.floor_slots > 0
        steady = max(floor_share, self.nominal * (1 - pool.headroom))
        self.steady_units = round(steady * pool.capacity_units * UNIT)
        """With so much in use it leaves the pool's headroom to others."""
        self.steady_slots = max(1, int(steady * pool.slots + ROUNDING))
        self.bounded = self.limit is not None or pool.headroom > 0
        """There is more to respect than the pool's capacity and the others' floors."""
        self.units_used = 0
        self.slots_used = 0
        self.unmet_units = self.floor_units
        """Micro-units by which it is below its floor."""
        self.unmet_slots = self.floor_slots
        self.contending = False
        """It has work that could be picked; a class that had none joins anew in virtual time."""

    def measure_floor(self) -> tuple[int, int]:
        """By how many micro-units and slots it is further below its floor than when last measured."""
        units_before, slots_before = self.unmet_units, self.unmet_slots
        below_units = self.floor_units - self.units_used
        below_slots = self.floor_slots - self.slots_used
        self.unmet_units = below_units if below_units > 0 else 0
        self.unmet_slots = below_slots if below_slots > 0 else 0
        return self.unmet_units - units_before, self.unmet_slots - slots_before


class Pool:
    """Units and slots in use, by class and tenant. Micro-units throughout."""

    def __init__(self, name: str, config: PoolConfig, tenant_caps: Mapping[str, int] | None = None) -> None:
        """`tenant_caps`: tenants with a cap of their own instead of the pool's `tenant_slots`.

        Raises UsageError when the classes' floors do not fit into the pool.
        """
        self.name = name
        self.capacity = round(config.capacity_units * UNIT)
        self.slots = config.slots
        self.shards = None if config.shuffle_shards is None else ShuffleShards(config.shuffle_shards)
        self.lanes_each = config.lanes_each
        """Queues that one tenant may use in a class: what is bounded is each of them."""
        self.tenant_slots = config.lane_slots
        """Calls of one tenant in flight, at most: half the slots by default, rounded up."""
        self._own_caps = tenant_caps or {}
        self.caps_tenants = min(self.tenant_slots, *self._own_caps.values(), self.slots) < self.slots
        """False when the slots run out before a tenant could reach its cap."""
        self.leases = Leases(round(config.lease_s * 1e9))
        """By request id: who holds something of the pool."""
        self.gather_after_ns = round(config.gather_after_s * 1e9)
        total = max(1.0, sum(c.nominal_share for c in config.classes.values()))
        self.shares = {
            class_name: ClassShare(class_name, c, config, c.nominal_share / total)
            for class_name, c in config.classes.items()
        }
        floors = sum(share.floor_units for share in self.shares.values())
        if floors > self.capacity + len(self.shares):  # each was rounded, by half a micro-unit at most
            raise UsageError(
                f"pool '{name}': what its classes keep for themselves (min_units, and the nominal share of"
                " those that are not lendable) adds up to more than capacity_units; lower one of them"
            )
        self.units_used = 0
        self.slots_used = 0
        self.slots_free = config.slots
        """Slots that nobody holds; some may be kept for classes below their floor."""
        self.headroom_units = round(config.headroom * config.capacity_units * UNIT)
        self.headroom_slots = min(round(config.headroom * config.slots), config.slots - 1)
        self.scale_out = ScaleOut()
        """Whether refusals happen only for want of this pool's capacity."""
        self._unmet_units = sum(share.unmet_units for share in self.shares.values())
        self._unmet_slots = sum(share.unmet_slots for share in self.shares.values())
        self._in_flight: dict[str, int] = {}

    def room(self, share: ClassShare) -> int:
        """Micro-units that the class may take now for one more call; -1 when there is no slot for it."""
        if self.slots_free <= self._unmet_slots - share.unmet_slots:
            return -1
        room = self.capacity - self.units_used - self._unmet_units + share.unmet_units
        return self._bounded(share, room) if share.bounded else room

    def _bounded(self, share: ClassShare, room: int) -> int:
        """What of the room lies within the class's limit, and is not headroom that it has to leave free."""
        if share.slots_used >= share.steady_slots or share.units_used >= share.steady_units:
            if self.slots_free <= self.headroom_slots:
                return -1
            room = min(room, max(0, self.capacity - self.headroom_units - self.units_used))
        return room if share.limit is None else min(room, self._left_of_limit(share))

    def _left_of_limit(self, share: ClassShare) -> int:
        """What a class has left of what it may use at most."""
        if share.slots_used >= share.limit_slots:
            return -1
        # With nothing in flight it may take more: a job wider than its limit would never run otherwise.
        return share.limit_units - share.units_used if share.units_used else self.capacity

    def free_for(self, share: ClassShare) -> int:
        """Micro-units that are free and not kept for other classes."""
        return self.capacity - self.units_used - self._unmet_units + share.unmet_units

    def kept_slots(self, share: ClassShare) -> int:
        """Slots that are kept free of one more call of the class, for other classes or as headroom."""
        kept = self._unmet_slots - share.unmet_slots
        return max(kept, self.headroom_slots) if share.slots_used >= share.steady_slots else kept

    def cap(self, tenant: str) -> int:
        """Calls of the tenant in flight, at most."""
        return self._own_caps.get(tenant, self.tenant_slots) if self._own_caps else self.tenant_slots

    def widest(self, share: ClassShare) -> int:
        """Micro-units that the class can ever take for one job."""
        kept_for_others = sum(s.floor_units for s in self.shares.values()) - share.floor_units
        return self.capacity - kept_for_others

    def over_nominal(self, share: ClassShare) -> bool:
        """Whether the class uses its nominal share of slots or units already: one more call would borrow."""
        return share.slots_used >= share.nominal_slots or share.units_used >= share.nominal_units

    def borrowing(self, share: ClassShare) -> bool:
        """Whether the class uses more than its nominal share."""
        return share.slots_used > share.nominal * self.slots or share.units_used > share.nominal_units

    def in_flight(self, tenant: str) -> int:
        """The tenant's calls in flight in this pool."""
        return self._in_flight.get(tenant, 0)

    def take(self, share: ClassShare, tenant: str, width: int) -> int:
        """Take a slot and `width` micro-units; the tenant's calls in flight afterwards."""
        self._change(share, width, 1)
        count = self._in_flight.get(tenant, 0) + 1
        self._in_flight[tenant] = count
        return count

    def release(self, share: ClassShare, tenant: str, width: int) -> int:
        """Give back what `take` took; the tenant's calls in flight afterwards."""
        self._change(share, -width, -1)
        count = self._in_flight[tenant] - 1
        if count:
            self._in_flight[tenant] = count
        else:
            del self._in_flight[tenant]
        return count

    def _change(self, share: ClassShare, units: int, slots: int) -> None:
        self.units_used += units
        self.slots_used += slots
        self.slots_free -= slots
        share.units_used += units
        share.slots_used += slots
        if share.has_floor:
            more_units, more_slots = share.measure_floor()
            self._unmet_units += more_units
            self._unmet_slots += more_slots
