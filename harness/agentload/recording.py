"""A live run while it is being recorded: the stage, the load, the samples, and what is written down."""

from __future__ import annotations

import os
import secrets
import socket
import time
from typing import Any

import msgspec
from rich.console import Console

from agentload import checks, screen, targets
from agentload.caps import MAX_ANSWER_BYTES
from agentload.clock_alignment import ClockAlignment
from agentload.drivers import first_look, protocol, target_probe
from agentload.drivers.foreign_hand import ForeignHand
from agentload.drivers.foreign_process import ForeignProcess
from agentload.drivers.gauges import Gauge, OwnGauge, gauge_of, missing_series
from agentload.drivers.health import reassess, without_silent_users
from agentload.drivers.health_watch import HealthWatch
from agentload.drivers.kept_samples import KeptSamples
from agentload.drivers.live import LiveDriver
from agentload.drivers.processes import FILES_BESIDE_CONNECTIONS, raise_file_limit
from agentload.drivers.provider_control import ProviderLedger, ProviderTakenError, token_of
from agentload.drivers.sampler import Sampler
from agentload.drivers.stage import Stage
from agentload.errors import AgentloadError, InconclusiveError, UnreachableError
from agentload.interrupts import INTERRUPTED, WayOut
from agentload.model import NS, Profile, RequestRecord, Sample, Stall
from agentload.order import Options, Prepared, bind_address
from agentload.provider_records import ledger_from_provider, on_the_run, tools_from_provider
from agentload.report import live_view, text
from agentload.rundir import Manifest, RunDir
from agentload.storage import StorageError, read_lines
from agentload.targets import Target
from agentload.targets._keys import to_hand_over
from agentload.targets._provider import ProviderExpectation
from fake_provider.control_token import TOKEN_VARIABLE

BEGUN_WORK_S = 5.0
"""How long a gateway that takes work to do later may take to call the provider for it, with nothing to do."""
NOT_OURS = "the provider is somebody else's, as the target file says"


class Recording:
    """One run being recorded into its folder."""

    def __init__(
        self,
        options: Options,
        prepared: Prepared,
        folder: RunDir,
        manifest: Manifest,
        console: Console,
        drive: type[LiveDriver] = LiveDriver,
    ) -> None:
        """`drive`: who drives the load; by default processes of our own."""
        self.options, self.prepared, self.folder, self.console = options, prepared, folder, console
        self.manifest = manifest
        self.run_id = secrets.randbelow(0xFFFF) + 1
        self.ended_by: AgentloadError | None = None
        """What ended the run before its time, when it was not the user."""
        self.view = live_view.view(prepared.profile, console)
        self._drive_with = drive
        self.way_out = WayOut()
        self._samplers: list[Sampler] = []
        self._health: HealthWatch | None = None
        self._process: ForeignProcess | None = None
        self._gauges: dict[str, float] = {}
        self._user_errors: dict[str, int] = {}

    def interrupt(self, because: str = INTERRUPTED) -> None:
        """The user wants out: the load ends early, and what there is is reported."""
        self.way_out.because = because

    def make(self) -> None:
        """Start everything, drive the load, write down what happened, take everything down.

        Raises AgentloadError; of a disk that takes no more, InconclusiveError.
        """
        try:
            self._make()
        except StorageError as full:  # a wrong `--out` (2) is told before anything was started
            raise InconclusiveError(*full.lines) from full

    def _make(self) -> None:
        token = token_of(os.environ)
        trust = None if self.prepared.target is None else self.prepared.target.trust
        with Stage(self.prepared.profile, self.folder.path, self.run_id, token, trust) as stage:
            target = self._set_up(stage)
            environment = {**os.environ, **to_hand_over(target.keyring)}
            environment.pop(TOKEN_VARIABLE, None)
            with self._drive_with(self._master_config(target), self.folder.path, environment) as driver:
                driver.start()
                with self.folder.samples() as lines:
                    samples = KeptSamples(lines)
                    try:
                        self._drive(driver, stage, samples)
                    finally:
                        self.view.finish()
                        stage.faults.end()
                        self.ended_by = self.ended_by or stage.faults.problem
                        self._stop_samplers()
                    self.ended_by = self.ended_by or samples.lost()
                self._write_down(stage, driver)
        self._tell_user_errors()

    def _set_up(self, stage: Stage) -> Target:
        target = self.prepared.target
        expected = target.provider if target is not None else ProviderExpectation()
        running = self.options.provider_url or expected.running
        if expected.external:
            self.manifest.ledger_available, self.manifest.no_ledger_because = False, NOT_OURS
        elif running is not None:
            with self.way_out.at_once():
                stage.use_provider(running)
        else:
            stage.start_provider(self.options.provider_port or expected.port)
        if target is None:
            stage.start_gateway(self.options.mutant)
            return targets.bundled(stage.gateway_url)
        if target.process is not None:
            self._process = ForeignProcess(target.process, f"{target.name}: process")
            stage.foreign = ForeignHand(self._process, lambda: target_probe.await_ready(target))
        with self.way_out.at_once():
            self._probe(stage, target)
        return target

    def _probe(self, stage: Stage, target: Target) -> None:
        """One careful request before the load: is the target there, is our provider behind it, and does it
        speak as was said?"""
        if stage.control is not None:
            self.console.print(f"the provider behind it: {stage.provider_url}/v1", soft_wrap=True)
        request = targets.probe_request(target, self.prepared.profile)
        if target.health is not None:
            target_probe.await_ready(target)
        reply = first_look.ask_until_served(target, request, lambda: self.way_out.because is None)
        status = reply.status
        unseen = stage.control is not None and status >= 500 and stage.calls_seen() == 0
        first_look.refuse_unusable(target, request, reply, stage.provider_url if unseen else None)
        if status in first_look.REFUSALS:
            refused = f"the target refuses even one request before the load ({status})"
            screen.warn(self.console, f"{refused}: what it answers is not known yet")
        for missing in missing_series(target):
            screen.warn(self.console, missing)
        served = stage.control is not None and not 300 <= status < 500
        if served and not _reached(stage, target):
            raise UnreachableError(
                f"the target gateway at {request.url}: answered {status}, but our provider saw nothing: "
                f"is the gateway's upstream {stage.provider_url}?",
                "--provider-port N says where ours listens; --provider URL names one that runs already",
            )
        first_look.refuse_other_words(target, request, reply)
        if stage.control is not None:
            stage.begin_run()

    def _master_config(self, target: Target) -> protocol.MasterConfig:
        host, port = bind_address(self.options.bind)
        return protocol.MasterConfig(
            profile=self.manifest.profile,
            seed=self.prepared.plan.seed,
            target=target.to_dict(),
            run_id=self.run_id,
            run_dir=str(self.folder.path),
            workers=self.options.workers,
            expect_workers=self.options.expect_workers,
            bind=host,
            bind_port=port,
            in_flight_cap=min(
                _in_flight_cap(), self.prepared.caps.connections or protocol.DEFAULT_IN_FLIGHT_CAP
            ),
            max_rate=self.prepared.caps.rate,
            allow_hosts=self.options.allow_hosts,
            max_answer_bytes=self.prepared.caps.answer_bytes or MAX_ANSWER_BYTES,
            web_port=self.options.locust_web,
            fingerprint=self.prepared.plan.fingerprint,
        )

    def _drive(self, driver: LiveDriver, stage: Stage, samples: KeptSamples) -> None:
        """Follow the load to its end; a user who wants out or a fallen server ends it early, once."""
        try:
            for event in driver.events():
                if event is not None:
                    self._on_event(event, stage, samples)
                if self.manifest.interrupted is None:
                    self._look_for_trouble(driver, stage, samples)
        except InconclusiveError as error:  # the master itself has died: what it wrote down is still there
            self.ended_by = self.ended_by or error
            self.manifest.interrupted = self.manifest.interrupted or error.lines[0]

    def _look_for_trouble(self, driver: LiveDriver, stage: Stage, samples: KeptSamples) -> None:
        if self.way_out.because is not None:
            self._stop(driver, self.way_out.because)
        elif (fallen := samples.lost() or stage.fallen()) is not None:
            self.ended_by = fallen
            self._stop(driver, fallen.lines[0])

    def _stop(self, driver: LiveDriver, because: str) -> None:
        self.manifest.interrupted = because
        self.view.update({"notes": [f"{because}: waiting briefly for open requests, then reporting"]})
        driver.stop()

    def _on_event(self, event: protocol.MasterEvent, stage: Stage, samples: KeptSamples) -> None:
        match event:
            case protocol.Started():
                self.manifest.t0_ns = event.t0_ns
                self.folder.write_manifest(self.manifest)
                stage.faults.begin(event.t0_ns)
                self._sample(stage, event.t0_ns, samples)
                self._watch_health(stage, event.t0_ns, samples)
            case protocol.Progress():
                self.view.update(self._shown(event))
            case protocol.WorkerLost():
                self.ended_by = InconclusiveError(f"worker {event.index} was lost: {event.because}")
                self.manifest.interrupted = self.manifest.interrupted or str(self.ended_by)
                self.view.update({"notes": [str(self.ended_by)]})
            case protocol.Failed():
                raise InconclusiveError(event.error)
            case protocol.Done():
                self.manifest.interrupted = self.manifest.interrupted or event.interrupted
                self._user_errors = event.user_errors
                if event.ended_by_users is not None:
                    self.ended_by = self.ended_by or InconclusiveError(event.ended_by_users)
            case protocol.MasterReady():
                if self.options.locust_web:
                    self.console.print(f"Locust's web UI: http://127.0.0.1:{self.options.locust_web}")
                if self.options.expect_workers:
                    self._invite(event.port)

    def _invite(self, port: int) -> None:
        """What to type on the other hosts."""
        host, _ = bind_address(self.options.bind)
        reachable = socket.gethostname() if host in ("*", "0.0.0.0") else host
        self.console.print(
            f"waiting for {self.options.expect_workers} workers: agentload worker {reachable}:{port}",
            soft_wrap=True,
        )

    def _sample(self, stage: Stage, t0_ns: int, samples: KeptSamples) -> None:
        def keep(sample: Sample) -> None:
            samples.keep(sample)
            self._gauges = sample.values

        gauge: Gauge
        if stage.gateway_url:
            gauge, memory = OwnGauge(f"{stage.gateway_url}/debug/queue"), stage.gateway_bytes
        elif self.prepared.target is not None:
            gauge, memory = gauge_of(self.prepared.target), self._foreign_bytes
        else:
            return
        sampler = Sampler(gauge, "gateway", t0_ns, time.monotonic_ns, keep, memory)
        sampler.start()
        self._samplers.append(sampler)

    def _watch_health(self, stage: Stage, t0_ns: int, samples: KeptSamples) -> None:
        """Where a check wants to know, and there is a page to be asked."""
        target = targets.bundled(stage.gateway_url) if stage.gateway_url else self.prepared.target
        wanted = checks.Need.HEALTH_PAGE in checks.needs_of(self.prepared.profile.checks)
        if target is None or target.health is None or not wanted:
            return
        self._health = HealthWatch(target, t0_ns, time.monotonic_ns, samples.keep)
        self._health.start()

    def _stop_samplers(self) -> None:
        if self._health is not None:
            self._health.stop()
        for sampler in self._samplers:
            sampler.stop()
            self.manifest.gauges = sampler.readings if sampler.gauge.where else None
            if sampler.trouble is not None:
                screen.warn(self.console, sampler.trouble)

    def _foreign_bytes(self) -> int:
        return 0 if self._process is None else self._process.resident_bytes()

    def _shown(self, progress: protocol.Progress) -> dict[str, Any]:
        tenants = {t.tenant: msgspec.structs.asdict(t) for t in progress.tenants}
        return {
            "elapsed_s": progress.at_ns / NS,
            "phase": _phase_at(self.prepared.profile, progress.at_ns),
            "scheduled": progress.scheduled,
            "issued": progress.issued,
            "in_flight": progress.in_flight,
            "workers": progress.workers,
            "lateness_ms": {"p50": progress.lateness_p50_ms, "p99": progress.lateness_p99_ms},
            "tenants": tenants,
            "gateway": self._gauges,
        }

    def _write_down(self, stage: Stage, driver: LiveDriver) -> None:
        """The ledger on the run's clock, the generator's health with the provider's stalls, the manifest."""
        stage.read_clock_again()
        self.manifest.provider_clock = stage.clock
        raw = self._write_ledger(stage)
        self._write_tools(stage)
        self._complete_health(driver, raw, stage.clock)
        self.manifest.unattributed = raw.strangers
        self.manifest.finished = True
        self.manifest.lines = self.folder.lines()
        self.folder.write_manifest(self.manifest)

    def _write_ledger(self, stage: Stage) -> ProviderLedger:
        names, t0_ns = [tenant.name for tenant in self.prepared.profile.tenants], self.manifest.t0_ns
        with self.folder.ledger() as ledger:
            if stage.control is None:
                return ProviderLedger()
            try:
                raw = stage.ledger(
                    lambda page: ledger.extend(ledger_from_provider(page, names, t0_ns, stage.clock))
                )
            except ProviderTakenError as taken:
                self._without_ledger(taken, taken.lines[0])
                return ProviderLedger()
        if raw.incomplete is not None:
            incomplete = UnreachableError(raw.incomplete)
            self.ended_by = self.ended_by or incomplete
            self.manifest.interrupted = self.manifest.interrupted or incomplete.lines[0]
            if not stage.has_own_ledger:
                self._without_ledger(incomplete, "the provider was lost, and its ledger with it")
        if dropped := raw.counts.get("entries_dropped", 0):
            full = f"it was full, and {dropped:,} calls are missing: raise provider.max_ledger_entries"
            self._without_ledger(InconclusiveError(f"the provider's ledger: {full}"), full)
        return raw

    def _without_ledger(self, error: AgentloadError, because: str) -> None:
        """What there is of it would be misread."""
        self.ended_by = self.ended_by or error
        self.manifest.ledger_available = False
        self.manifest.no_ledger_because = because

    def _tell_user_errors(self) -> None:
        """What a tenant's own code raised is for whoever wrote it: no check is about it."""
        for line, n in sorted(self._user_errors.items()):
            times = "once" if n == 1 else f"{n:,} times"
            screen.warn(self.console, f"{text.printable(line)} ({times}; traceback: logs/)")

    def _write_tools(self, stage: Stage) -> None:
        """The tools' ledger, where jobs may have called any."""
        if self.prepared.profile.gateway.jobs is None or stage.control is None:
            return
        try:
            entries = tools_from_provider(stage.tools(), self.manifest.t0_ns, stage.clock)
        except UnreachableError as error:
            self.ended_by = self.ended_by or error
            self.manifest.interrupted = self.manifest.interrupted or error.lines[0]
            return
        with self.folder.tools() as tools:
            tools.extend(entries)

    def _complete_health(self, driver: LiveDriver, raw: ProviderLedger, clock: ClockAlignment | None) -> None:
        """Judge the generator by its records, and add the provider's stalls; a dead driver left nothing."""
        try:
            health = driver.result()
        except InconclusiveError:
            return
        records, _ = read_lines(self.folder.records_path, RequestRecord)
        planned = {tenant.name for tenant in self.prepared.profile.tenants if tenant.locust is None}
        health = reassess(
            health,
            [record for record in records if record.tenant in planned],
            self.prepared.profile.duration_ns,
            interrupted=self.manifest.interrupted is not None,
        )
        if self.manifest.interrupted is None:
            health = without_silent_users(health, self.prepared.profile, records)
        t0_ns = self.manifest.t0_ns
        for stall in raw.stalls:
            start, end = (on_the_run(int(stall[at]), t0_ns, clock) for at in ("start_ns", "end_ns"))
            if end > 0 and t0_ns:
                health.stalls.append(Stall(start_ns=start, end_ns=end, where="provider"))
        self.folder.write_health(health)


def _reached(stage: Stage, target: Target) -> bool:
    """Whether our provider has seen a call; of work that is only begun by its request, a little later."""
    until_s = time.monotonic() + (0.0 if target.api.asks_after_s is None else BEGUN_WORK_S)
    while stage.calls_seen() == 0:
        if time.monotonic() >= until_s:
            return False
        time.sleep(0.05)
    return True


def _in_flight_cap() -> int:
    """As many requests at once as one process may have files open here, up to the driver's default."""
    return min(protocol.DEFAULT_IN_FLIGHT_CAP, raise_file_limit() - FILES_BESIDE_CONNECTIONS)


def _phase_at(chosen: Profile, at_ns: int) -> str:
    for phase in chosen.phases:
        start, end = chosen.phase_window_ns(phase.name)
        if at_ns < start:
            return "starting"
        if at_ns < end:
            return phase.name
    return "draining"
