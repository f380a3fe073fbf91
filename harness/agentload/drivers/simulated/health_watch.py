"""Who asks for the gateway's health page in virtual time, as `drivers/health_watch.py` does over HTTP."""

from __future__ import annotations

from collections.abc import Callable

from agentload.drivers.simulated.gateway import SimulatedGateway
from agentload.drivers.simulated.kernel import OBSERVE, Kernel
from agentload.drivers.simulated.network import Timing
from agentload.evidence.health_samples import EVERY_NS, PATIENCE_NS, next_due_ns, sample
from agentload.model import Sample


class HealthWatch:
    """Asks once a second, one at a time, over a connection of its own."""

    def __init__(
        self, kernel: Kernel, timing: Timing, gateway: SimulatedGateway, keep: Callable[[Sample], None]
    ) -> None:
        self._kernel, self._timing, self._gateway, self._keep = kernel, timing, gateway, keep

    def begin(self) -> None:
        """Ask for the first time in a second, and again and again from then on."""
        self._kernel.at(self._kernel.now_ns + EVERY_NS, self._ask, None, OBSERVE)

    def _ask(self, _: None) -> None:
        now_ns = self._kernel.now_ns
        examination = _Examination(now_ns, self._ended)
        self._kernel.at(now_ns + self._timing.one_way_ns, self._gateway.examine, examination)
        self._kernel.at(now_ns + PATIENCE_NS, examination.cut, "timeout", OBSERVE)

    def _ended(self, sent_ns: int, status: int) -> None:
        now_ns = self._kernel.now_ns
        self._keep(sample(sent_ns, now_ns, status))
        self._kernel.at(next_due_ns(sent_ns, now_ns), self._ask, None, OBSERVE)


class _Examination:
    """One of them: its first end is its only one."""

    def __init__(self, sent_ns: int, ended: Callable[[int, int], None]) -> None:
        self._sent_ns = sent_ns
        self._ended: Callable[[int, int], None] | None = ended

    def hear(self, status: int) -> None:
        """An answer has come."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(self._sent_ns, status)

    def cut(self, _: str) -> None:
        """None will: refused, reset, or waited for too long."""
        self.hear(0)
