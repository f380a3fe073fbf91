"""When users of somebody's own code end the test, as under plain Locust: `sys.exit()`, `runner.quit()`.

Either would end this worker's process in the middle of its records. Instead the run ends early, told whose
code wanted it. Imports locust's greenlets: only the Locust processes may import this.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from gevent import GreenletExit

from agentload.drivers.locust_users_file import shown_path, where
from agentload.drivers.part import OwnShare

_MEND = "to end one user alone, raise StopUser"


class WayOut:
    """Hears of it. `because` says who wanted the run to end, in one line; None while nobody did."""

    def __init__(
        self,
        shares: Sequence[OwnShare],
        of_this_greenlet: Callable[[], OwnShare | None],
        runner: Any,
        is_over: Callable[[], bool],
    ) -> None:
        """`of_this_greenlet`: whose user is running; `is_over`: nothing is left that could end early. The
        runner's calls pass through here from now on."""
        self.because: str | None = None
        self._shares, self._of_this_greenlet, self._runner = shares, of_this_greenlet, runner
        self._is_over = is_over
        for name in ("stop", "quit"):
            setattr(runner, name, partial(self._called, name, getattr(runner, name)))

    def remove(self) -> None:
        """The runner's calls are its own again."""
        for name in ("stop", "quit"):
            delattr(self._runner, name)

    def exited(self, error: SystemExit, share: OwnShare | None = None) -> bool:
        """Their code has called `sys.exit()`. False: it was none of theirs, as far as is to be seen."""
        tb = error.__traceback__
        share = share or self._raised_by(tb)
        if share is not None:
            self._note(share, where(Path(share.own.file), error, tb))
        return share is not None

    def _called(self, name: str, inner: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        frames = traceback.extract_stack()
        calling = {share.own.file: share for share in self._shares}
        lines = [(calling[f.filename], f.lineno) for f in frames if f.filename in calling]
        mine = self._of_this_greenlet()
        if mine is None and not lines:
            return inner(*arguments, **named)
        share, line = lines[-1] if lines else (mine, None)
        assert share is not None
        at = shown_path(Path(share.own.file)) + (f":{line}" if line else "")
        self._note(share, f"{at}: calls runner.{name}()")
        if mine is not None:
            raise GreenletExit  # under plain Locust, too, this call would be its last
        return None

    def _raised_by(self, tb: TracebackType | None) -> OwnShare | None:
        """Of a greenlet that their code has begun, or of a listener; without a line of theirs (`gevent.spawn(
        sys.exit)`) it is known where all are of one tenant: nobody else's code exits."""
        files = {frame.filename for frame in traceback.extract_tb(tb)}
        found = [share for share in self._shares if share.own.file in files] or self._shares
        return found[0] if len(found) == 1 else None

    def _note(self, share: OwnShare, what: str) -> None:
        if self._is_over():
            return
        users = f"{share.tenant.name} ({share.own.user_class})"
        self.because = self.because or f"the users of {users} ended the run: {what}; {_MEND}"
