"""Whether a provider that others may use, too, is still there, and still ours, while the load lasts."""

from __future__ import annotations

import threading
import time

from agentload.drivers.provider_control import ProviderControl, ProviderTakenError
from agentload.errors import AgentloadError, UnreachableError

HOLD_S = 15.0
"""How long it stays ours without a word from us; its next user need not wait longer."""
EVERY_S = 2.0


class ProviderWatch(threading.Thread):
    """A thread that renews the run's hold on the provider; `problem` says why it could not any more."""

    def __init__(self, control: ProviderControl, run: int) -> None:
        super().__init__(name="provider-watch", daemon=True)
        self.problem: AgentloadError | None = None
        self._control, self._run = control, run
        self._stopping = threading.Event()

    def run(self) -> None:
        """Renew, until stopped or lost. A word that got lost is no loss yet: the hold outlasts a few."""
        heard_s = time.monotonic()
        while not self._stopping.wait(EVERY_S):
            try:
                self._control.hold(self._run, HOLD_S)
                heard_s = time.monotonic()
            except ProviderTakenError as taken:
                self.problem = taken
                return
            except UnreachableError as error:
                if time.monotonic() - heard_s > HOLD_S:
                    self.problem = UnreachableError(f"the provider was lost during the run: {error}")
                    return

    def stop(self) -> None:
        """No more words; what is under way is not waited for."""
        self._stopping.set()
