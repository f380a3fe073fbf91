"""Clients that left still stand in line."""

from __future__ import annotations

from random import Random
from typing import Any

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._scenes import IMPATIENCE
from agentload.scheduler.admission import Admission
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.events import Dispatched, Event
from agentload.scheduler.tenants import State


class DeadWaitersHoldPlaces(Mutant):
    """A waiting request whose client has gone is found out only when its turn comes: until then it holds its
    place, and its turn uses up its part of the provider's limit.

    Gateways that sweep such zombies once a second, or not at all, refuse the living for the sake of the dead.
    """

    row = "F20"
    breaks = "requests are refused because the queue is full of clients that left long ago"
    killed_by = "capacity-leak"
    profile = IMPATIENCE

    def parts(self) -> Parts:
        return Parts(admission=_Zombies, watched=False)


class _Zombies(Admission):
    def __init__(self, config: GatewayConfig, random: Random, **options: Any) -> None:
        super().__init__(config, random, **options)
        self._dead: set[int] = set()

    def cancel(self, now_ns: int, request_id: int) -> None:
        ticket = self._tickets.get(request_id)
        if ticket is not None and ticket.state is State.WAITING:
            self._dead.add(request_id)
        else:
            super().cancel(now_ns, request_id)

    def poll(self, now_ns: int) -> list[Event]:
        alive: list[Event] = []
        while events := super().poll(now_ns):
            for event in events:
                if event.request.id not in self._dead:
                    alive.append(event)
                    continue
                self._dead.discard(event.request.id)
                if isinstance(event, Dispatched):
                    super().cancel(now_ns, event.request.id)
        return alive
