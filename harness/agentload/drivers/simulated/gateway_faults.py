"""Faults of the gateway in virtual time: the planned acts, each at its instant."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentload.drivers.simulated.digest import EventLog
from agentload.drivers.simulated.gateway import SimulatedGateway
from agentload.drivers.simulated.kernel import Kernel
from agentload.faults import GatewayAct
from agentload.gateway.core import GatewayCore
from agentload.gateway.jobs.front import JobsFront
from agentload.gateway_faults import Act


class GatewayFaults:
    """Does the acts to a gateway; `heal` undoes what is still to be undone at the run's end."""

    def __init__(
        self,
        kernel: Kernel,
        gateway: SimulatedGateway,
        acts: Iterable[GatewayAct],
        new_core: Callable[[int], GatewayCore | JobsFront],
        log: EventLog,
    ) -> None:
        """`new_core(n)` makes what the gateway is after its n-th start, from 1."""
        self._gateway = gateway
        self._kernel = kernel
        self._new_core = new_core
        self._log = log
        self._starts = 0
        self._undo: Act | None = None
        for one in acts:
            kernel.at(one.at_ns, self._do, one.act)

    def heal(self) -> None:
        """A fault that outlives the run ends with it."""
        if self._undo is not None:
            self._do(self._undo)

    def _do(self, act: Act) -> None:
        self._log.add(self._kernel.now_ns, -1, "", act, "gateway")
        self._undo = {Act.KILL: Act.START, Act.PAUSE: Act.RESUME}.get(act)
        match act:
            case Act.KILL:
                self._gateway.kill()
            case Act.PAUSE:
                self._gateway.pause()
            case Act.RESUME:
                self._gateway.resume()
            case Act.START:
                self._starts += 1
                self._gateway.start(self._new_core(self._starts))
