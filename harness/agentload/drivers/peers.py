"""The workers as the master knows them: processes that it started, or names that called from elsewhere."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from agentload.drivers.protocol import Ready

SILENCE_S = 10.0
"""A worker that has not reported for so long is lost."""
GOODBYE_S = 3.0


class Peer:
    """A worker, local or remote."""

    def __init__(
        self, index: int, process: subprocess.Popen[bytes] | None = None, log: Path | None = None
    ) -> None:
        self.index = index
        self.process = process
        """None for a worker from elsewhere."""
        self.log = log
        self.client_id: str | None = None
        """Locust's name for it, known since its hello."""
        self.ready: Ready | None = None
        self.heard_s = time.monotonic()

    @classmethod
    def start(cls, index: int, host: str, port: int, folder: Path) -> Peer:
        """A worker process on this host, in its own session, that ends when our end of its pipe closes."""
        log = folder / "logs" / f"worker-{index}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "agentload.drivers.locust_worker", host, str(port)]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*command, "--parent-pipe"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return cls(index, process, log)

    def ended(self) -> bool:
        """Its process is gone; never true of one from elsewhere."""
        return self.process is not None and self.process.poll() is not None

    def death(self) -> str | None:
        """Why it is to be counted as lost, or None."""
        if self.process is not None and self.ended():
            return f"its process ended with status {self.process.returncode}"
        silence_s = time.monotonic() - self.heard_s
        return f"it has not reported for {silence_s:.0f} s" if silence_s > SILENCE_S else None

    def is_it(self, pid: object) -> bool:
        """Whether a hello from `pid` can be this one's."""
        return self.client_id is None and (self.process is None or self.process.pid == pid)

    def end(self) -> None:
        """Close its pipe, and kill it if that is not enough."""
        if self.process is None:
            return
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(timeout=GOODBYE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None:
            with suppress(OSError):
                self.process.kill()
