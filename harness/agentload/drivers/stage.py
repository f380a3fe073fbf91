"""The scenery of a live run: our provider, and the bundled gateway or somebody's target in front of it."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import httpx

from agentload.clock_alignment import ClockAlignment
from agentload.drivers import probe, tls
from agentload.drivers.faults import Faults, Hand
from agentload.drivers.heartbeat import resident_bytes
from agentload.drivers.processes import Child
from agentload.drivers.provider_control import Entries, ProviderControl, ProviderLedger, StrangeProviderError
from agentload.drivers.provider_watch import HOLD_S, ProviderWatch
from agentload.errors import AgentloadError, InconclusiveError, UnreachableError
from agentload.model import Profile
from agentload.rundir import write_file
from agentload.targets import is_loopback
from agentload.targets._tls import Trust
from agentload.targets._urls import split_url
from fake_provider.control_token import TOKEN_VARIABLE
from fake_provider.named_file import require_regular

READY_TIMEOUT_S = 20.0


class Stage:
    """Starts what the run needs, knows whether it still stands, and takes it down again."""

    def __init__(
        self,
        profile: Profile,
        folder: Path,
        run_id: int,
        token: str | None = None,
        trust: Trust | None = None,
    ) -> None:
        """`token`: for the control of a provider that runs already; `trust`: the target's, whose authorities
        are believed of that provider, too."""
        self.profile, self.folder, self.run_id = profile, folder, run_id
        self.http = probe.client(_authorities(trust))
        self.control: ProviderControl | None = None
        """Our provider's; None before it is there, and where it is somebody else's."""
        self.clock: ClockAlignment | None = None
        """The provider's clock against ours; None where they are one."""
        self.gateway_url = ""
        self.children: dict[str, Child] = {}
        self.away: set[str] = set()
        """Children that a fault has killed and will bring back."""
        self.foreign: Hand | None = None
        """For a target's own process, where its file names one."""
        self.faults = Faults(self)
        self._token = token
        self._watch: ProviderWatch | None = None
        self._hold_s = 0.0
        """How long at a time the run has the provider for itself; 0 where nobody else knows of it."""
        self._gateway_arguments: list[str] = []
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        self._exit.callback(self.http.close)
        return self

    def __exit__(self, *_: object) -> None:
        self.faults.end()
        self._let_go()
        self._exit.close()
        self.faults.release()

    def start_provider(self, port: int) -> None:
        """Our provider as a child, on loopback. Raises UnreachableError (a port in use, say)."""
        config = self._write("provider.json", self.profile.provider.model_dump_json(indent=2))
        arguments = ["-m", "fake_provider", "--port", str(port), "--config", str(config)]
        arguments += ["--ledger", str(self._raw_ledger)]
        try:
            self.control = ProviderControl(self.http, self._start("provider", arguments))
        except UnreachableError as error:
            if "is in use" not in str(error):
                raise
            instead = f"if that is ours already: --provider http://127.0.0.1:{port} (target file: `running:`)"
            raise UnreachableError(*error.lines, instead) from None
        self.begin_run()

    def use_provider(self, url: str) -> None:
        """A provider that runs already: told this run's limits and number, and its clock read.

        Raises UnreachableError, and ProviderTakenError when another run has it.
        """
        self.control = ProviderControl(self.http, url, self._token)
        reading = self.control.read_clock()
        one_clock = reading.maybe_one_clock and is_loopback(split_url(url).host)
        self.clock = None if one_clock else ClockAlignment(before=reading)
        self._hold_s = HOLD_S
        self.begin_run()
        self._watch = ProviderWatch(self.control, self.run_id)
        self._watch.start()

    @property
    def provider_url(self) -> str:
        """Where our provider is; empty without one."""
        return "" if self.control is None else self.control.url

    def read_clock_again(self) -> None:
        """What the provider's clock has gained since it was read first. One that does not answer any more is
        believed to have run evenly."""
        if self.control is not None and self.clock is not None:
            with suppress(UnreachableError, InconclusiveError):
                self.clock = ClockAlignment(before=self.clock.before, after=self.control.read_clock())

    def start_gateway(self, mutant: str | None = None) -> None:
        """The bundled gateway as a child, in front of the provider. Raises UnreachableError.

        `mutant`: the safeguard that is switched off in it.
        """
        config = self._write("gateway.json", self.profile.gateway.model_dump_json(indent=2, by_alias=True))
        arguments = ["-m", "agentload.gateway", "--config", str(config), "--upstream", self.provider_url]
        arguments += [] if mutant is None else ["--mutant", mutant]
        if self.profile.gateway.jobs is not None:
            # In the run's folder: one that was killed and started again finds its jobs there.
            arguments += ["--jobs-db", str(self.folder / "jobs.db")]
        self._gateway_arguments = arguments
        self.gateway_url = self._start("gateway", [*arguments, "--port", "0"])

    def restart_gateway(self, port: int) -> None:
        """A new gateway in the place of one that was killed. Raises UnreachableError.

        To be called from a thread that outlives the gateway.
        """
        self._start("gateway", [*self._gateway_arguments, "--port", str(port)], lasting_thread=True)

    def gateway_bytes(self) -> int:
        """Memory of the bundled gateway's process now; 0 where there is none, or the kernel does not say."""
        child = self.children.get("gateway")
        return 0 if child is None else resident_bytes(child.pid)

    def fallen(self) -> AgentloadError | None:
        """The first child that has died, or the loss of a provider that ran already, in words; None while all
        stand (or are away for a fault's sake)."""
        if self.faults.problem is not None:
            return self.faults.problem
        if self._watch is not None and self._watch.problem is not None:
            return self._watch.problem
        for name, child in self.children.items():
            if not child.alive() and name not in self.away:
                quoted = [f"  | {line}" for line in child.log_tail(3)]
                status = child.process.returncode
                return UnreachableError(
                    f"the {name} died during the run (status {status}); log: {child.log}", *quoted
                )
        return None

    def calls_seen(self) -> int:
        """Calls that the provider has seen since it was reset, of whomever. Raises UnreachableError."""
        return self._our_provider.calls_seen()

    def ledger(self, keep: Callable[[Entries], None]) -> ProviderLedger:
        """Hand on the provider's record of this run, a page at a time; from its own file when it no longer
        answers. Raises ProviderTakenError when it is no longer of this run."""
        kept = _Kept(keep)
        try:
            # A provider that is stuck is known by a short call; the ledger itself may take a while.
            self._our_provider.health()
            return self._our_provider.ledger(self.run_id, kept)
        except UnreachableError as error:
            strange = isinstance(error, StrangeProviderError)
            because = str(error) if strange else "the provider no longer answers: its ledger is incomplete"
            rest = [one for one in _written_down(self._raw_ledger) if int(one.get("call", -1)) > kept.last]
            kept(rest)
            return ProviderLedger(incomplete=because, strangers=kept.strangers)

    def tools(self) -> list[dict[str, Any]]:
        """The fake tools' ledger of this run. Raises UnreachableError."""
        return self._our_provider.tools()

    @property
    def has_own_ledger(self) -> bool:
        """Whether what the provider wrote down by itself is here, which outlives it: not of one elsewhere."""
        return self._raw_ledger.exists()

    @property
    def _raw_ledger(self) -> Path:
        return self.folder / "logs" / "provider-ledger.jsonl"

    @property
    def _our_provider(self) -> ProviderControl:
        if self.control is None:
            raise RuntimeError("there is no provider of ours")
        return self.control

    def begin_run(self) -> None:
        """Have the provider begin this run. Raises UnreachableError, ProviderTakenError."""
        self._our_provider.begin(self.run_id, self.profile.provider.model_dump(mode="json"), self._hold_s)

    def _let_go(self) -> None:
        """The next run may have the provider; one that does not hear it lets go by itself."""
        if self._watch is not None:
            self._watch.stop()
            with suppress(UnreachableError, InconclusiveError):
                self._our_provider.hold(self.run_id, 0)
            self._watch = None

    def _start(self, name: str, arguments: list[str], *, lasting_thread: bool = False) -> str:
        log = self.folder / "logs" / f"{name}.log"
        # The token in our environment is that of a provider elsewhere: none of what we start needs it.
        environment = {key: value for key, value in os.environ.items() if key != TOKEN_VARIABLE}
        child = Child.start(name, arguments, log, environment, lasting_thread=lasting_thread)
        self._exit.callback(child.terminate)
        self.children[name] = child
        ready = child.wait_ready(READY_TIMEOUT_S)
        return f"http://127.0.0.1:{ready['port']}"

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        write_file(path, text.encode())
        return path


def _authorities(trust: Trust | None) -> ssl.SSLContext:
    """The system's (or SSL_CERT_FILE's), and the target's own; no certificate of ours is shown to anybody."""
    believed = tls.context(None)
    if trust is not None and trust.ca is not None:
        require_regular(trust.ca, tls.MAX_BYTES)
        believed.load_verify_locations(trust.ca)
    return believed


class _Kept:
    """Passes entries on, and remembers how far they went."""

    def __init__(self, keep: Callable[[Entries], None]) -> None:
        self._keep = keep
        self.last = -1
        """Number of the last call; they come in order."""
        self.strangers = 0

    def __call__(self, entries: Entries) -> None:
        self._keep(entries)
        self.strangers += sum(entry.get("tenant") is None for entry in entries)
        self.last = max((int(entry["call"]) for entry in entries), default=self.last)


def _written_down(path: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return entries
    for line in lines:
        try:
            entries.append(json.loads(line))
        except ValueError:
            break  # torn by the crash: nothing after it can be whole
    return entries


def healthy(http: httpx.Client, url: str) -> bool:
    """Whether a health endpoint answers 200."""
    try:
        return http.get(url).status_code == 200
    except httpx.HTTPError:
        return False
