"""A profile's plan under plain `locust -f`: what the files of `agentload locustfile` are made of.

    Plan, Schedule = under_locust(profile="noisy-neighbor")

Locust starts, stops and distributes as ever; its web UI, CSV files and exit code are its own. In each process
that generates load one user of `Plan` plays that process's share, as a worker of `agentload run` does;
`Schedule` ends the test with the plan. The process that would show the web UI starts our provider and gateway
where the target does not say otherwise, and writes the run's folder.

Imports locust: only files that Locust itself runs may import this.
"""

from __future__ import annotations

import io
import logging
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, cast

import gevent
import locust.runners
from gevent.event import Event
from locust import LoadTestShape, User, constant, events, task
from locust.exception import StopUser
from locust.runners import LocalRunner, MasterRunner, WorkerRunner
from rich.console import Console

from agentload import recording, rundir
from agentload.circumstances import bundled, circumstances
from agentload.drivers.locust_conductor import DriverWithin, Router, players
from agentload.drivers.locust_worker import MASTER_SILENCE_S, Worker
from agentload.errors import AgentloadError, ExitCode
from agentload.interrupts import INTERRUPTED, OUT_OF_TIME
from agentload.order import Options, Prepared, prepare
from agentload.rundir import RunDir
from agentload.rundir.unbegun import clear_away

BEGIN_S = 120.0
"""How long everything may take to stand before the load begins."""
END_S = 60.0
"""How long a stopped test may take to be written down."""

HELLO_S = 2.0

log = logging.getLogger("agentload")


class UnderLocust(NamedTuple):
    """What a locustfile must define."""

    plan: type[User]
    schedule: type[LoadTestShape]


def under_locust(
    *,
    profile: str,
    seed: int | None = None,
    target: str | None = None,
    settings: tuple[str, ...] = (),
    quick: bool = False,
    provider: str | None = None,
    provider_port: int = 0,
    allow_hosts: tuple[str, ...] = (),
    allow_cost: bool = False,
    out: str | None = None,
) -> UnderLocust:
    """The classes of a locustfile that plays the profile; the options are those of `agentload run`.

    Ends the process with one line and exit code 2 when one of them is wrong.
    """
    logging.getLogger("httpx").setLevel(logging.WARNING)
    locust.runners.HEARTBEAT_LIVENESS = 60  # a busy machine is no dead worker: we see by reports who is dead
    locust.runners.MASTER_HEARTBEAT_TIMEOUT = MASTER_SILENCE_S
    options = Options(
        profile=profile,
        seed=seed,
        target=target,
        settings=settings,
        quick=quick,
        provider_url=provider,
        provider_port=provider_port,
        allow_hosts=allow_hosts,
        allow_cost=allow_cost,
        out=None if out is None else Path(out),
        command=tuple(sys.argv[1:]),
    )
    stage = _Stage(options)
    worker = Worker()
    events.init.add_listener(lambda environment, runner, **_: stage.enter(environment, runner, worker))
    plan = _plan_class(worker)
    return UnderLocust(plan, _schedule_class(stage, plan))


def _plan_class(worker: Worker) -> type[User]:
    class Plan(User):  # type: ignore[misc]
        """One in each process, whatever number is asked for: it plays the process's share of the plan."""

        wait_time = constant(0)

        @task  # type: ignore[untyped-decorator]
        def play(self) -> None:
            worker.run_share()
            raise StopUser

    return Plan


def _schedule_class(stage: _Stage, plan: type[User]) -> type[LoadTestShape]:
    class Schedule(LoadTestShape):  # type: ignore[misc]
        """As many users as there are processes, until the plan has been played, or `--run-time` is over."""

        # False, and the web UI does not ask for numbers that mean nothing here.
        use_common_options = "--headless" in sys.argv

        def tick(self) -> tuple[int, float, list[type[User]] | None] | None:
            count = stage.players(self.runner)
            # The class is named, because tenants' own users are Locust's too, once their files are imported.
            return None if count is None else (count, max(1.0, float(count)), [plan])

    return Schedule


class _Stage:
    """The side of the process that shows the web UI (or would): one run for each test that Locust starts."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.prepared: Prepared | None = None
        self._environment: Any = None
        self._run: _Run | None = None
        self._players = 0
        self._router: Router | None = None

    def enter(self, environment: Any, runner: Any, worker: Worker) -> None:
        """Locust has made its runner: in a worker process it plays, in the master it directs, alone both."""
        self._environment = environment
        if not isinstance(runner, MasterRunner):
            worker.attach(environment, runner)
        if isinstance(runner, WorkerRunner):
            gevent.spawn(_keep_saying_hello, worker)
        if isinstance(runner, MasterRunner | LocalRunner):
            try:
                self.prepared = prepare(self.options)
            except AgentloadError as error:
                _leave(error)
            self._router = Router(runner)
            events.test_start.add_listener(self._on_test_start)
            events.test_stopping.add_listener(self._on_test_stopping)

    def players(self, runner: Any) -> int | None:
        """How many processes play; None ends the test."""
        if self._run is not None and (self._run.ended or self._run.is_out_of_time()):
            return None
        if self._run is None:
            self._players = len(players(runner))
        return self._players

    def _on_test_start(self, environment: Any, **_: Any) -> None:
        """Returns when the load is about to begin, or cannot."""
        assert self.prepared is not None
        assert self._router is not None
        self._run = _Run(self.options, self.prepared, environment, self._router)
        self._run.begin()

    def _on_test_stopping(self, **_: Any) -> None:
        """Whoever stops the test: what there is is written down first."""
        if self._run is not None:
            self._run.end()
            self._run = None


class _Run:
    """One test of Locust's, recorded as a run of ours."""

    def __init__(self, options: Options, prepared: Prepared, environment: Any, router: Router) -> None:
        self._environment = environment
        self._begun, self._ended = Event(), Event()
        self._ends_s = float("inf")
        started, target = datetime.now(), prepared.target
        made = circumstances((), bundled(None) if target is None else target.to_dict(), ("locust", "gevent"))
        made["command"] = ["locust", *options.command]
        self.folder = RunDir.create(prepared.profile.name, started, out=options.out)
        manifest = rundir.manifest_of(prepared.profile, prepared.plan, "live", started, **made)
        self.folder.write_manifest(manifest)

        messages = router

        class Driver(DriverWithin):
            runner = environment.runner
            router = messages
            begun = self._begun

        console = Console(
            file=cast(IO[str], _LogLines()), width=160, highlight=False, markup=False, emoji=False
        )
        self._recording = recording.Recording(options, prepared, self.folder, manifest, console, Driver)

    @property
    def ended(self) -> bool:
        """Everything is written down, or nothing will be."""
        return bool(self._ended.is_set())

    def begin(self) -> None:
        """Start the servers and the load, in a greenlet of its own."""
        gevent.spawn(self._make)
        gevent.wait([self._begun, self._ended], timeout=BEGIN_S, count=1)
        seconds = getattr(self._environment.parsed_options, "run_time", None)
        self._ends_s = time.monotonic() + float(seconds or "inf")

    def is_out_of_time(self) -> bool:
        """`--run-time` is over."""
        return time.monotonic() > self._ends_s

    def end(self) -> None:
        """Nothing more is sent; open requests get a moment, then all is written down."""
        self._recording.interrupt(OUT_OF_TIME if self.is_out_of_time() else INTERRUPTED)
        self._ended.wait(END_S)

    def _make(self) -> None:
        try:
            self._recording.make()
            self._say()
        except AgentloadError as error:
            for line in error.lines:
                log.error(line)
            if not self._recording.manifest.t0_ns and (line := clear_away(self.folder, error)):
                log.info(line)
            self._environment.process_exit_code = int(error.exit_code)
        except Exception:
            log.exception("the run cannot be made")
            self._environment.process_exit_code = int(ExitCode.INCONCLUSIVE)
        finally:
            self._ended.set()

    def _say(self) -> None:
        for line in self._recording.ended_by.lines if self._recording.ended_by is not None else ():
            log.error(line)
        log.info("recorded; to have it judged: agentload judge %s", self.folder.path)


class _LogLines(io.TextIOBase):
    """Whatever is printed goes to Locust's log: its terminal belongs to its own tables."""

    def write(self, text: str) -> int:
        for line in filter(str.strip, text.splitlines()):
            log.info(line.rstrip())
        return len(text)


def _keep_saying_hello(worker: Worker) -> None:
    """A master that has no ears yet drops what it is told."""
    while worker.part is None:
        worker.say_hello()
        gevent.sleep(HELLO_S)


def _leave(error: AgentloadError) -> NoReturn:
    for line in error.lines:
        print(line, file=sys.stderr)
    sys.exit(int(error.exit_code))
