"""How many slow streams the fake provider serves on one core, and how late their events are.

The provider runs on one processor and the reader (`stream_reader.py`) on another. Lateness is told twice: by
the provider itself (due until written) and by the reader (due until read, which counts the reader's own
lateness, too), from the same clock and the instants that the ledger has. Both hold for a whole run, the
opening of the streams included. Where a process waited for its processor for 2 % of the time or more, the
machine was busy with other things, and lateness says nothing about the provider: use `--real-time` there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
from bench_provider import CHAT, post
from stream_reader import NS, run_queue_wait_s

from agentload.drivers.processes import Child
from fake_provider.marker import Marker, message
from fake_provider.server import raise_file_limit

READER = Path(__file__).parent / "stream_reader.py"
FIRST_TOKEN_MS = 500
CALM = 0.02
"""Below this run-queue wait a measurement counts."""
REAL_TIME = 10


@dataclass(frozen=True)
class Case:
    """So many streams at once, each with an event every `every_ms`."""

    streams: int
    every_ms: int
    open_s: float
    events: int

    def config(self) -> dict[str, Any]:
        """What the provider is told to be: nothing is drawn, so that the reader knows what is due when."""
        latency = {"first_token_ms": FIRST_TOKEN_MS, "first_token_cv": 0, "inter_token_ms": self.every_ms}
        return {"latency": latency, "tokens_per_minute": 1e12, "requests_per_minute": 1e12}

    def request(self, seq: int) -> bytes:
        """One call."""
        marker = Marker(run=0, tenant=0, seq=seq, attempt=0, output_tokens=self.events)
        asked = {
            "model": "m",
            "messages": [{"role": "user", "content": message(marker, 200)}],
            "stream": True,
        }
        return post(CHAT, asked, {})


CASES = (
    Case(streams=5_000, every_ms=1_000, open_s=5, events=20),
    Case(streams=5_000, every_ms=500, open_s=10, events=40),
)


def main() -> None:
    """Print some lines for each case."""
    if sys.platform != "linux":
        print("  left out: it needs Linux's epoll, affinity and schedstat")
        return
    parser = argparse.ArgumentParser(description="concurrent slow streams of the fake provider")
    parser.add_argument("--streams", type=int, help="instead of 5,000")
    parser.add_argument("--every-ms", type=int, help="between the events of one stream")
    parser.add_argument("--seconds", type=float, default=15, help="how long each stream lasts")
    parser.add_argument(
        "--real-time", action="store_true", help="ask the system to run both before all others"
    )
    options = parser.parse_args()
    cases: tuple[Case, ...] = CASES
    if options.streams or options.every_ms:
        streams, every_ms = options.streams or 5_000, options.every_ms or 1_000
        cases = (Case(streams, every_ms, streams / 1_000, round(options.seconds * 1_000 / every_ms)),)
    raise_file_limit()
    for case in cases:
        print(f"  {case.streams:,} streams at once, each with an event every {case.every_ms} ms")
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["-m", "fake_provider", "--port", "0"]
            with Child.start("the provider", arguments, Path(folder) / "provider.log") as child:
                for line in measure(child, case, options.real_time):
                    print(f"    {line}", flush=True)


def measure(child: Child, case: Case, real_time: bool) -> list[str]:
    """One case."""
    port = int(child.wait_ready()["port"])
    apart(child.pid, 0, real_time)
    control(port, "reset", {"run": 0, "config": case.config()})
    requests = msgspec.msgpack.encode([case.request(seq) for seq in range(case.streams)])
    process = psutil.Process(child.pid)
    memory, used, waited = process.memory_info().rss, process.cpu_times(), run_queue_wait_s(str(child.pid))
    began_ns = control(port, "health")["now_ns"]
    command = [sys.executable, str(READER), str(port), str(case.streams), str(case.open_s)]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    apart(reader.pid, 1, real_time)
    read = msgspec.msgpack.decode(reader.communicate(requests)[0])
    peak = process.memory_info().rss - memory
    after, waited = process.cpu_times(), run_queue_wait_s(str(child.pid)) - waited
    ledger = control(port, "ledger")
    passed_s = (ledger["now_ns"] - began_ns) / NS
    cpu_s = after.user + after.system - used.user - used.system
    events = case.streams * case.events
    late_ms = lateness_ms(case, ledger["entries"], read["arrivals"])
    own = ledger["lateness_ms"]
    return [
        f"at most {most_at_once(ledger['entries']):,} in service; {cpu_s / passed_s:.0%} of a core, "
        f"{1e6 * cpu_s / events:.0f} µs CPU an event with its share of the opening, "
        f"{peak / case.streams / 1024:.0f} KiB a stream",
        f"late by the provider's own clock: p50 {own['p50']:.1f} p99 {own['p99']:.1f} "
        f"max {own['max']:.1f} ms",
        f"late where they are read:         p50 {at(late_ms, 0.5):.1f} p99 {at(late_ms, 0.99):.1f} "
        f"max {late_ms[-1]:.1f} ms",
        f"waited for a processor: the provider {waited / passed_s:.1%}, the reader {read['waited']:.1%}"
        + ("" if max(waited / passed_s, read["waited"]) < CALM else ": BUSY, lateness is not to be trusted"),
    ]


def lateness_ms(case: Case, entries: list[dict[str, Any]], arrivals: list[list[int]]) -> list[float]:
    """How long after being due each event was read, sorted. Every event must have come."""
    late: list[float] = []
    for entry in entries:
        came = arrivals[entry["seq"]]
        if len(came) != case.events:
            raise SystemExit(f"stream {entry['seq']}: {len(came)} events, expected {case.events}")
        first_ns = entry["started_ns"] + FIRST_TOKEN_MS * 1_000_000
        late.extend((at_ns - first_ns) / 1e6 - i * case.every_ms for i, at_ns in enumerate(came))
    return sorted(late)


def most_at_once(entries: list[dict[str, Any]]) -> int:
    """The largest number of calls in service at any instant."""
    changes = [(entry["started_ns"], 1) for entry in entries]
    changes += [(entry["ended_ns"], -1) for entry in entries]
    now = most = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def at(values: list[float], q: float) -> float:
    """Quantile `q` of sorted values."""
    return values[min(len(values) - 1, int(q * len(values)))]


def apart(pid: int, processor: int, real_time: bool) -> None:
    """Each process on a processor of its own, as far as there are several."""
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(pid, {processors[processor % len(processors)]})
    if real_time:
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(REAL_TIME))


def control(port: int, path: str, data: object = None) -> Any:
    """The JSON answer to a control request."""
    body = None if data is None else json.dumps(data).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/_fake/{path}", body, timeout=60) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
