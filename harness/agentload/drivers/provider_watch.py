"""Whether a provider that others may use, too, is still there, and still ours, while the load lasts."""

from __future__ import annotations

import threading
import time

from agentload.drivers.provider_control import ProviderControl, ProviderTakenError
from agentload.errors import AgentloadError, UnreachableError

HOLD_S = 15.0
"""How long it stays ours without a word from us; its next user need not wait longer."""
EVERY_S = 2.0
AGAIN_S = 1.0
"""After a word that got lost."""
LOST_S = 5.0
"""Nothing for so long, and it is lost: the rest of the run would be load on a gateway without a provider."""
LEAST_LOST = 2
"""Words in a row that got lost: one alone may have been the network's hiccup, however long it was waited for
(`probe.TIMEOUT_S`)."""


class ProviderWatch(threading.Thread):
    """A thread that renews the run's hold on the provider; `problem` says why it could not any more.

    One that was killed, so that connections are refused, is known after some 5 s; one that is silent, 13 s.
    """

    def __init__(self, control: ProviderControl, run: int) -> None:
        super().__init__(name="provider-watch", daemon=True)
        self.problem: AgentloadError | None = None
        self._control, self._run = control, run
        self._stopping = threading.Event()

    def run(self) -> None:
        """Renew, until stopped or lost."""
        heard_s, lost = time.monotonic(), 0
        while not self._stopping.wait(AGAIN_S if lost else EVERY_S):
            try:
                self._control.hold(self._run, HOLD_S)
                heard_s, lost = time.monotonic(), 0
            except ProviderTakenError as taken:
                self.problem = taken
                return
            except UnreachableError as error:
                lost += 1
                if lost >= LEAST_LOST and time.monotonic() - heard_s >= LOST_S:
                    self.problem = UnreachableError(f"the provider was lost during the run: {error}")
                    return

    def stop(self) -> None:
        """No more words; what is under way is not waited for."""
        self._stopping.set()
