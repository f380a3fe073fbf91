"""Shuffle sharding: a fixed number of queues for any number of tenants, and a hand of them for each.

As in Kubernetes APF (KEP-1040), after Weinstein's shuffle sharding at Amazon Route 53: a keyed hash of the
tenant's name deals it a few of many queues, and each request joins the one with least work of those. A
tenant that floods fills its own hand; with 128 queues and hands of 6 the whole hand of another tenant lies
within it in one case out of 5.4 thousand million, so that the other nearly always has a queue that is not
flooded.

What is lost: fairness is between queues. Tenants that meet in one are served first come, first served, share
its place in virtual time, its bound and its cap, and a tenant that floods has as many shares as it has queues
in its hand. In return state is kept per queue, and names made up by the million cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from agentload.scheduler.config import ShuffleConfig
from agentload.scheduler.tenants import TenantLane


class ShuffleShards:
    """Deals hands and picks queues. Without state: equal names have equal hands, on every replica."""

    def __init__(self, config: ShuffleConfig) -> None:
        self._queues = config.queues
        self._hand = config.hand
        self._key = config.seed.to_bytes(8, "big")
        self._names = [f"~queue-{number}" for number in range(config.queues)]

    def hand(self, tenant: str) -> list[int]:
        """The tenant's queues, all different, in the order dealt."""
        digest = blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=16, key=self._key).digest()
        left = int.from_bytes(digest, "big")
        dealt: list[int] = []
        for taken in range(self._hand):
            left, card = divmod(left, self._queues - taken)
            for earlier in sorted(dealt):  # the card-th of those that are not dealt yet
                card += card >= earlier
            dealt.append(card)
        return dealt

    def choose(self, tenant: str, lanes: Mapping[str, TenantLane]) -> str:
        """The queue of the tenant's hand with the least work waiting and running; the first among equals."""
        best, least = "", -1
        for card in self.hand(tenant):
            lane = lanes.get(self._names[card])
            work = 0 if lane is None else lane.work + lane.serving
            if least < 0 or work < least:
                best, least = self._names[card], work
                if not work:
                    break
        return best
