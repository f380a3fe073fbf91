"""The live driver as the CLI sees it: start, events, stop, result. No gevent in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import msgspec

from agentload.drivers.processes import Child
from agentload.drivers.protocol import (
    Done,
    Failed,
    MasterConfig,
    MasterEvent,
    MasterReady,
    Started,
    read_event,
)
from agentload.errors import InconclusiveError
from agentload.model import GeneratorHealth
from agentload.storage import write_file

TICK_S = 0.25
READY_S = 60.0
SILENCE_S = 30.0
"""A master says how the run goes twice a second: one that is silent for so long is stuck."""


class LiveDriver:
    """One live run: `start`, `events` to its end, `result`. A context manager that leaves nothing behind.

    with LiveDriver(config, run_dir, os.environ) as driver:
        driver.start()
        for event in driver.events(): ...
        health = driver.result()
    """

    def __init__(
        self, config: MasterConfig, run_dir: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment` holds the keys that the target's headers name; None: this process's own."""
        self.config = config
        self.run_dir = run_dir
        self.environment = os.environ if environment is None else environment
        self.started: Started | None = None
        """Time zero, once the load has begun."""
        self.port = 0
        """Where the master listens for workers, once started."""
        self.done: Done | None = None
        self._child: Child | None = None

    @property
    def records_path(self) -> Path:
        """Where the records go while the run goes on."""
        return self.run_dir / "records.jsonl"

    @property
    def latency_log_path(self) -> Path:
        """The HdrHistogram log."""
        return self.run_dir / "latency.hlog"

    @property
    def log_path(self) -> Path:
        """What the driver itself had to say."""
        return self.run_dir / "logs" / "driver.log"

    def start(self) -> None:
        """Start the master; it starts the workers. Raises UnreachableError when it does not come up."""
        path = self.run_dir / "driver.json"
        write_file(path, msgspec.json.format(msgspec.json.encode(self.config), indent=2) + b"\n")
        arguments = ["-m", "agentload.drivers.locust_master", "--config", str(path)]
        self._child = Child.start("the load driver", arguments, self.log_path, self.environment)
        ready = self._child.wait_ready(READY_S)
        self.port = int(ready["port"])

    def events(self) -> Iterator[MasterEvent | None]:
        """What the master says, until the run is over; None every quarter of a second of silence.

        Raises InconclusiveError when the master dies.
        """
        child = self._running()
        yield MasterReady(port=self.port, pid=child.pid)
        heard_s = time.monotonic()
        while self.done is None:
            raw = child.next_event(TICK_S)
            if raw is None:
                if not child.alive():
                    raise self._died(child)
                if self.started is not None and time.monotonic() - heard_s > SILENCE_S:
                    raise InconclusiveError(
                        f"the load driver has said nothing for {SILENCE_S:g} s: it is stuck"
                    )
                yield None
                continue
            heard_s = time.monotonic()
            event = read_event(msgspec.json.encode(raw))
            if isinstance(event, Started):
                self.started = event
            elif isinstance(event, Done):
                self.done = event
            yield event
            if isinstance(event, Failed):
                return

    def stop(self) -> None:
        """Have the run end early: nothing more is sent, open requests get a moment, then `Done` comes."""
        self._running().send("stop")

    def result(self) -> GeneratorHealth:
        """Whether the load was as planned, as the master wrote it. Raises InconclusiveError without it."""
        path = self.run_dir / "generator.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=GeneratorHealth)
        except (OSError, msgspec.DecodeError) as error:
            raise InconclusiveError(f"{path}: the load driver left no report of itself: {error}") from error

    def close(self) -> None:
        """End the master, and with it the workers."""
        if self._child is not None:
            self._child.terminate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> Child:
        if self._child is None:
            raise RuntimeError("start() comes first")
        return self._child

    def _died(self, child: Child) -> InconclusiveError:
        quoted = [f"  | {line}" for line in child.log_tail()]
        return InconclusiveError(
            f"the load driver died (status {child.process.returncode}); see {self.records_path}",
            *quoted,
        )
