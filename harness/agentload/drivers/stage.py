"""The scenery of a live run: our provider, and the bundled gateway or somebody's target in front of it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec

from agentload.drivers import probe
from agentload.drivers.faults import Faults
from agentload.drivers.heartbeat import resident_bytes
from agentload.drivers.processes import Child
from agentload.errors import UnreachableError
from agentload.model import Profile
from agentload.rundir import write_file

READY_TIMEOUT_S = 20.0


class ProviderLedger(msgspec.Struct, kw_only=True):
    """What the provider says at the end, as it says it (tenant numbers, its own clock)."""

    entries: list[dict[str, Any]]
    unattributed: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """Calls without a valid marker of this run, counted by endpoint and model."""
    stalls: list[dict[str, Any]] = msgspec.field(default_factory=list)
    lateness_ms: dict[str, Any] = msgspec.field(default_factory=dict)
    complete: bool = True
    """False when the provider died: then these are the calls that it had written down before."""

    @property
    def strangers(self) -> int:
        """Calls that nobody of this run is known to have made."""
        if self.complete:
            return sum(int(row["calls"]) for row in self.unattributed)
        return sum(1 for entry in self.entries if entry.get("tenant") is None)


class Stage:
    """Starts what the run needs, knows whether it still stands, and takes it down again."""

    def __init__(self, profile: Profile, folder: Path, run_id: int) -> None:
        self.profile, self.folder, self.run_id = profile, folder, run_id
        self.http = probe.client()
        self.provider_url = ""
        self.gateway_url = ""
        self.children: dict[str, Child] = {}
        self.away: set[str] = set()
        """Children that a fault has killed and will bring back."""
        self.faults = Faults(self)
        self._gateway_arguments: list[str] = []
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        self._exit.callback(self.http.close)
        return self

    def __exit__(self, *_: object) -> None:
        self.faults.end()
        self._exit.close()
        self.faults.release()

    def start_provider(self, port: int) -> None:
        """Our provider as a child, on loopback. Raises UnreachableError (a port in use, say)."""
        config = self._write("provider.json", self.profile.provider.model_dump_json(indent=2))
        arguments = ["-m", "fake_provider", "--port", str(port), "--config", str(config)]
        arguments += ["--ledger", str(self._raw_ledger)]
        try:
            self.provider_url = self._start("provider", arguments)
        except UnreachableError as error:
            if "is in use" not in str(error):
                raise
            instead = f"if that is ours already: --provider http://127.0.0.1:{port} (target file: `running:`)"
            raise UnreachableError(*error.lines, instead) from None
        self.begin_run()

    def use_provider(self, url: str) -> None:
        """A provider that runs already: told this run's limits and number. Raises UnreachableError."""
        self.provider_url = url.rstrip("/")
        probe.json_call(self.http, "GET", f"{self.provider_url}/_fake/health", what="the provider")
        self.begin_run()

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

    def fallen(self) -> UnreachableError | None:
        """The first child that has died, in words; None while all stand (or are away for a fault's sake)."""
        if self.faults.problem is not None:
            return self.faults.problem
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
        url = f"{self.provider_url}/_fake/stats"
        stats = probe.json_call(self.http, "GET", url, what="the provider's control")
        try:
            return int(stats["counts"]["offered"])
        except (KeyError, TypeError, ValueError):
            raise UnreachableError(f"the provider's control at {url}: is not agentload's") from None

    def ledger(self) -> ProviderLedger:
        """The provider's record of this run; from its file when it no longer answers."""
        control = f"{self.provider_url}/_fake"
        try:
            # A provider that is stuck is known by a short call; the ledger itself may take a while.
            probe.json_call(self.http, "GET", f"{control}/health", what="the provider")
            url = f"{control}/ledger"
            answer = probe.json_call(self.http, "GET", url, what="the provider's ledger", bounds=probe.LEDGER)
            return msgspec.convert(answer, ProviderLedger)
        except (UnreachableError, msgspec.ValidationError):
            return ProviderLedger(entries=_written_down(self._raw_ledger), complete=False)

    def tools(self) -> list[dict[str, Any]]:
        """The fake tools' ledger of this run. Raises UnreachableError."""
        url = f"{self.provider_url}/_fake/tools"
        answer = probe.json_call(self.http, "GET", url, what="the tools' ledger", bounds=probe.LEDGER)
        return list(answer["entries"])

    @property
    def _raw_ledger(self) -> Path:
        return self.folder / "logs" / "provider-ledger.jsonl"

    def begin_run(self) -> None:
        body = {"run": self.run_id, "config": self.profile.provider.model_dump(mode="json")}
        probe.json_call(
            self.http, "POST", f"{self.provider_url}/_fake/reset", body=body, what="the provider's control"
        )

    def _start(self, name: str, arguments: list[str], *, lasting_thread: bool = False) -> str:
        log = self.folder / "logs" / f"{name}.log"
        child = Child.start(name, arguments, log, lasting_thread=lasting_thread)
        self._exit.callback(child.terminate)
        self.children[name] = child
        ready = child.wait_ready(READY_TIMEOUT_S)
        return f"http://127.0.0.1:{ready['port']}"

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        write_file(path, text.encode())
        return path


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
