"""What our live driver costs beside Locust's own clients, and how late it sends. About three minutes.

Everything is measured in one go, interleaved, against the same server; trust the ratios, not the numbers. Of
several rounds the cheapest counts: whatever else runs on the machine can only make a request dearer.
`client` is our HTTP client with its histograms, which does what Locust's users do: the same bytes every
time, the answer not read. `worker` is all that a run does on top: a prompt of its own for every request, the
answer parsed and checked, a record, histograms by tenant and outcome, reports, Locust's request event.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from agentload.drivers.live import LiveDriver
from agentload.drivers.processes import Child
from agentload.drivers.protocol import MasterConfig, WorkerState
from agentload.model import Phase, Profile, Spec, Tenant
from agentload.scheduler.config import GatewayConfig
from agentload.targets import bundled
from fake_provider.config import ProviderConfig

HERE = Path(__file__).parent
CONNECTIONS = 50
ROUNDS = 5
OPEN_ROUNDS = 3
SECONDS = 2.5
RATES = (200, 1000)
Row = dict[str, Any]


def main() -> None:
    """Both comparisons."""
    with tempfile.TemporaryDirectory() as folder:
        closed_loop(Path(folder))
        open_loop(Path(folder))


def closed_loop(folder: Path) -> None:
    """CPU per request."""
    print(f"closed loop, {CONNECTIONS} connections, instant answers, cheapest of {ROUNDS} interleaved rounds")
    rows: dict[str, list[Row]] = {"client": [], "worker": [], "FastHttpUser": [], "HttpUser": []}
    with server(folder) as port:
        for number in range(ROUNDS):
            tenant = closed_tenant(CONNECTIONS)
            rows["client"].append(one_client("thin", port, SECONDS, CONNECTIONS))
            rows["worker"].append(ours(folder / f"closed-{number}", port, tenant, SECONDS))
            rows["FastHttpUser"].append(one_client("fast", port, SECONDS, CONNECTIONS))
            rows["HttpUser"].append(one_client("http", port, SECONDS, CONNECTIONS))
    base = cheapest(rows["FastHttpUser"])["cpu_us"]
    for name, measured in rows.items():
        row = cheapest(measured)
        print(
            f"  {name:13} {row['cpu_us']:7.0f} µs CPU a request  {row['cpu_us'] / base:5.2f} x FastHttpUser  "
            f"{row['per_s']:6.0f} a second  {row['rss_mb']:4.0f} MB"
        )


def open_loop(folder: Path) -> None:
    """CPU per request, and lateness of the sends, with half a second of answers in flight."""
    for rate in RATES:
        print(f"open loop, {rate} requests a second, 500 ms answers, cheapest of {OPEN_ROUNDS} rounds")
        mine: list[Row] = []
        theirs: list[Row] = []
        with server(folder, "--delay-ms", "500") as port:
            for number in range(OPEN_ROUNDS):
                mine.append(ours(folder / f"open-{rate}-{number}", port, open_tenant(rate), SECONDS))
                theirs.append(one_client("open", port, SECONDS, rate))
        for name, row in (("worker", cheapest(mine)), ("FastHttpSession", cheapest(theirs))):
            print(
                f"  {name:15} {row['cpu_us']:5.0f} µs CPU a request  late p50 {row['late_p50_ms']:.2f} ms, "
                f"p99 {row['late_p99_ms']:.1f} ms  waited for a processor {row['waited']:.1%}  "
                f"{row['rss_mb']:.0f} MB" + (f"  {row['failures']} FAILED" if row["failures"] else "")
            )


def server(folder: Path, *options: str) -> Server:
    """The tiny server, in a process of its own."""
    return Server(Child.start("the server", [str(HERE / "tiny_server.py"), *options], folder / "server.log"))


class Server:
    """A child whose port is what matters."""

    def __init__(self, child: Child) -> None:
        self.child = child

    def __enter__(self) -> int:
        return int(self.child.wait_ready()["port"])

    def __exit__(self, *_: object) -> None:
        self.child.terminate()


def one_client(kind: str, port: int, seconds: float, amount: float) -> Row:
    """One round of a client in a process of its own."""
    command = [sys.executable, str(HERE / "clients.py"), kind, str(port), str(seconds), str(amount)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def ours(folder: Path, port: int, tenant: Tenant, seconds: float) -> Row:
    """One run of the real driver: a master and one worker."""
    folder.mkdir()
    chosen = Profile(
        name="bench",
        about="",
        phases=(Phase(name="steady", seconds=seconds),),
        tenants=(tenant,),
        provider=ProviderConfig(),
        gateway=GatewayConfig(),
        checks=(Spec(kind="bounded-queue"),),
    )
    config = MasterConfig(
        profile=chosen.model_dump(mode="json"),
        seed=7,
        target=bundled(f"http://127.0.0.1:{port}").to_dict(),
        run_id=1,
        run_dir=str(folder),
    )
    with LiveDriver(config, folder) as driver:
        driver.start()
        last = [event for event in driver.events() if event][-1]
        health = driver.result()
    worker = msgspec.json.decode((folder / "workers.json").read_bytes(), type=dict[str, WorkerState])["0"]
    failed = (folder / "records.jsonl").read_bytes().count(b"\n") - health.issued
    assert failed == 0, last
    return {
        "cpu_us": worker.cpu_s / health.issued * 1e6,
        "per_s": health.issued / seconds,
        "rss_mb": worker.resident_bytes / 1e6,
        "waited": health.run_queue_wait,
        "late_p50_ms": health.lateness_ms.p50 or 0.0,
        "late_p99_ms": health.lateness_ms.p99 or 0.0,
        "failures": health.scheduled - health.issued,
    }


def open_tenant(rate: float) -> Tenant:
    """Poisson arrivals."""
    return tenant_with(arrivals=Spec(kind="poisson", params={"rate": rate}))


def closed_tenant(users: int) -> Tenant:
    """Users who do not think."""
    return tenant_with(users=users)


def tenant_with(**more: Any) -> Tenant:
    """One tenant of small jobs."""
    workload = Spec(kind="fixed", params={"input_tokens": 24, "output_tokens": 2})
    return Tenant(name="a", group="a", workload=workload, client=Spec(kind="no-retry"), **more)


def cheapest(rows: list[Row]) -> Row:
    """The round that was disturbed least."""
    return min(rows, key=lambda row: float(row["cpu_us"]))


if __name__ == "__main__":
    main()
