"""The faults of a live run: the provider is told its own ahead, the gateway's are done to its process.

Only processes that we started are touched, by their own handle, and a target's that its file names.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from agentload.clock_alignment import ClockAlignment
from agentload.drivers.processes import Child
from agentload.drivers.provider_control import ProviderControl
from agentload.errors import InconclusiveError, UnreachableError
from agentload.faults import GatewayAct, gateway_acts, provider_requests
from agentload.gateway_faults import Act
from agentload.model import Profile

PARKED_S = 30.0
"""For an act that is under way when the run ends: a gateway that is being started."""


class Hand(Protocol):
    """Does things to a gateway's process."""

    def prepare(self) -> None:
        """Faults are to come."""
        ...

    def do(self, act: Act) -> None:
        """One act. Raises UnreachableError when the gateway does not come up again."""
        ...

    def mend(self) -> None:
        """It is left running. Raises as `do`."""
        ...


class Scenery(Protocol):
    """What faults happen to: `drivers.stage.Stage`."""

    profile: Profile
    control: ProviderControl | None
    clock: ClockAlignment | None
    gateway_url: str
    children: dict[str, Child]
    away: set[str]
    """Children that are meant to be gone for a while."""
    foreign: Hand | None
    """For a target whose file names its process; None: the gateway is a child."""

    def restart_gateway(self, port: int) -> None:
        """A new gateway in the place of the old one. Raises UnreachableError."""
        ...


class Faults:
    """`begin` once time zero is known, `end` when the load is over, `release` when all children are gone."""

    def __init__(self, scenery: Scenery) -> None:
        self._scenery = scenery
        self._timeline: Timeline | None = None
        self._hand: Hand | None = None
        self._unmended: UnreachableError | None = None
        self._begun = False

    @property
    def problem(self) -> UnreachableError | None:
        """Why a fault could not heal: a gateway that did not come up again."""
        return self._unmended or (None if self._timeline is None else self._timeline.problem)

    def begin(self, t0_ns: int) -> None:
        """Put every fault on the clock. `t0_ns`: time zero, monotonic.

        Raises UnreachableError when the provider does not take its part.
        """
        profile = self._scenery.profile
        self._begun = bool(profile.faults)
        control, clock = self._scenery.control, self._scenery.clock
        requests = provider_requests(profile, t0_ns if clock is None else clock.theirs_ns(t0_ns))
        if requests and control is not None:
            control.add_faults(requests)
        acts = gateway_acts(profile)
        if acts:
            self._hand = self._scenery.foreign or GatewayHand(self._scenery)
            self._hand.prepare()
            self._timeline = Timeline(acts, t0_ns, self._hand.do)
            self._timeline.start()

    def end(self) -> None:
        """No more faults: what is paused goes on, the provider is itself again. May be called again."""
        if not self._begun:
            return
        self._begun = False
        if self._timeline is not None:
            self._timeline.stop()
        if self._hand is not None:
            try:
                self._hand.mend()
            except UnreachableError as error:
                self._unmended = error
        if self._scenery.control is not None:
            with suppress(UnreachableError, InconclusiveError):
                self._scenery.control.remove_faults()

    def release(self) -> None:
        """Let the thread end; a gateway that it started would die with it."""
        if self._timeline is not None:
            self._timeline.release()


class GatewayHand:
    """Does things to the bundled gateway's process."""

    def __init__(self, scenery: Scenery) -> None:
        self._scenery = scenery
        self._port = int(scenery.gateway_url.rpartition(":")[2])
        self._place: socket.socket | None = None

    def do(self, act: Act) -> None:
        """One act. Raises UnreachableError when the gateway does not come up again."""
        gateway = self._scenery.children["gateway"]
        match act:
            case Act.PAUSE:
                gateway.process.send_signal(signal.SIGSTOP)
            case Act.RESUME:
                gateway.process.send_signal(signal.SIGCONT)
            case Act.KILL:
                self._scenery.away.add("gateway")
                gateway.process.kill()
                gateway.terminate()
                self._place = keep_place(self._port)
            case Act.START:
                self._scenery.restart_gateway(self._port)
                self._scenery.away.discard("gateway")
                if self._place is not None:
                    self._place.close()

    def prepare(self) -> None:
        """Nothing: it is a child."""

    def mend(self) -> None:
        """It goes on; one that is dead dies with the run anyway."""
        gateway = self._scenery.children["gateway"]
        if gateway.alive():
            gateway.process.send_signal(signal.SIGCONT)


def keep_place(port: int) -> socket.socket | None:
    """Hold the port while nobody listens at it: else the kernel might give it to a client's connection, which
    then talks to itself (a TCP simultaneous open), and the gateway could not have it back."""
    place = socket.socket()
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", port))
    except OSError:
        place.close()
        return None
    return place


class Timeline(threading.Thread):
    """A thread that does each act at its instant. It stays until `release`: the kernel kills what it started
    when it ends (PR_SET_PDEATHSIG goes by thread)."""

    def __init__(self, acts: Sequence[GatewayAct], t0_ns: int, do: Callable[[Act], None]) -> None:
        super().__init__(name="faults", daemon=True)
        self._acts, self._t0_ns, self._do = acts, t0_ns, do
        self._stopping, self._parked, self._released = (threading.Event() for _ in range(3))
        self.problem: UnreachableError | None = None

    def run(self) -> None:
        """Act by act, then wait."""
        try:
            for one in self._acts:
                if self._stopping.wait(max(0.0, (self._t0_ns + one.at_ns - time.monotonic_ns()) / 1e9)):
                    break
                self._do(one.act)
        except UnreachableError as error:
            self.problem = error
        finally:
            self._parked.set()
        self._released.wait()

    def stop(self) -> None:
        """No further act; waits for one that is under way."""
        self._stopping.set()
        self._parked.wait(PARKED_S)

    def release(self) -> None:
        """The thread may end."""
        self._stopping.set()
        self._released.set()
        self.join(PARKED_S)
