"""What our live driver costs beside Locust's own clients, and how late it sends. About three minutes.

Every contender runs beside a Locust client of the kind it is compared with, at the same time, each against a
server of its own: what else the machine has to do disturbs both alike. Trust the ratios, not the numbers.
`client` is our HTTP client with its histograms, which does what Locust's users do: the same bytes every
time, the answer not read. `worker` is all that a run does on top: a prompt of its own for every request, the
answer parsed and checked, a record, histograms by tenant and outcome, reports, Locust's request event.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
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
SECONDS = 4.0
RATES = (200, 1000)
Row = dict[str, Any]
Measure = Callable[[int], Row]
"""One round against the server at a port."""
Pairs = list[tuple[Row, Row]]
"""A contender's rounds, each with that of the client beside it."""


def main() -> None:
    """Both comparisons."""
    with tempfile.TemporaryDirectory() as folder:
        closed_loop(Path(folder))
        open_loop(Path(folder))


def closed_loop(folder: Path) -> None:
    """CPU per request."""
    print(f"closed loop, {CONNECTIONS} connections, instant answers, median of {ROUNDS} rounds")
    contenders: dict[str, Measure] = {
        "client": lambda port: one_client("thin", port, CONNECTIONS),
        "worker": lambda port: ours(folder, port, closed_tenant(CONNECTIONS)),
        "HttpUser": lambda port: one_client("http", port, CONNECTIONS),
    }
    pairs: dict[str, Pairs] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, measure in contenders.items():
            pairs[name].append(beside(measure, lambda port: one_client("fast", port, CONNECTIONS), folder))
    for name, measured in pairs.items():
        print_closed(name, [mine for mine, _ in measured], ratio(measured))
    print_closed("FastHttpUser", [theirs for measured in pairs.values() for _, theirs in measured], 1.0)


def print_closed(name: str, rows: list[Row], ratio: float) -> None:
    """A line of the first table."""
    print(
        f"  {name:13} {middle(rows, 'cpu_us'):7.0f} µs CPU a request  {ratio:5.2f} x FastHttpUser  "
        f"{middle(rows, 'per_s'):6.0f} a second  {middle(rows, 'rss_mb'):4.0f} MB"
    )


def open_loop(folder: Path) -> None:
    """CPU per request, and lateness of the sends, with half a second of answers in flight."""
    for rate in RATES:
        print(f"open loop, {rate} requests a second, 500 ms answers, median of {OPEN_ROUNDS} rounds")
        pairs = [open_pair(folder, rate) for _ in range(OPEN_ROUNDS)]
        print_open("worker", [mine for mine, _ in pairs], ratio(pairs))
        print_open("FastHttpSession", [theirs for _, theirs in pairs], 1.0)


def open_pair(folder: Path, rate: float) -> tuple[Row, Row]:
    """One round at a rate."""
    return beside(
        lambda port: ours(folder, port, open_tenant(rate)),
        lambda port: one_client("open", port, rate),
        folder,
        "--delay-ms",
        "500",
    )


def print_open(name: str, rows: list[Row], ratio: float) -> None:
    """A line of the other tables."""
    failures = sum(row["failures"] for row in rows)
    print(
        f"  {name:15} {middle(rows, 'cpu_us'):5.0f} µs CPU a request  {ratio:5.2f} x FastHttpSession  "
        f"late p50 {middle(rows, 'late_p50_ms'):.2f} ms, p99 {middle(rows, 'late_p99_ms'):.1f} ms  "
        f"waited for a processor {middle(rows, 'waited'):.1%}  {middle(rows, 'rss_mb'):.0f} MB"
        + (f"  {failures} FAILED" if failures else "")
    )


def beside(measure: Measure, baseline: Measure, folder: Path, *options: str) -> tuple[Row, Row]:
    """Both at once."""
    with (
        server(folder, *options) as port,
        server(folder, *options) as other_port,
        ThreadPoolExecutor() as pool,
    ):
        theirs = pool.submit(baseline, other_port)
        return measure(port), theirs.result()


def ratio(pairs: Pairs) -> float:
    """What a contender costs, as a multiple of the client beside it."""
    return float(median(mine["cpu_us"] / theirs["cpu_us"] for mine, theirs in pairs))


def middle(rows: list[Row], field: str) -> float:
    """The median of one number."""
    return median(float(row[field]) for row in rows)


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


def one_client(kind: str, port: int, amount: float) -> Row:
    """One round of a client in a process of its own; `amount`: connections, or requests a second."""
    command = [sys.executable, str(HERE / "clients.py"), kind, str(port), str(SECONDS), str(amount)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def ours(runs: Path, port: int, tenant: Tenant) -> Row:
    """One run of the real driver: a master and one worker."""
    folder = Path(tempfile.mkdtemp(dir=runs))
    chosen = Profile(
        name="bench",
        about="",
        phases=(Phase(name="steady", seconds=SECONDS),),
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
        "per_s": health.issued / SECONDS,
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


if __name__ == "__main__":
    main()
