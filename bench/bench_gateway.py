"""What the reference gateway adds to a plain call: its own processor time, and latency beside going straight.

The same raw sockets call the provider directly and through the gateway, in turns, so that a busy machine
slows both. Nothing limits here: no bucket, more slots than calls.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import psutil
from bench_provider import CASES

from agentload.drivers.processes import Child

PLAIN = CASES[0]
CONNECTIONS = PLAIN.connections
INSTANT = ("--set", "latency.first_token_ms=0", "--set", "latency.inter_token_ms=0")
REQUESTS = 6_400
RATE = 200
"""Calls a second, evenly spaced, whose latency is taken."""
SECONDS = 5
ROUNDS = 2
WIDE = "pools: {shared: {capacity_units: 10000, slots: 1000, tenant_slots: 1000, classes: {standard: {}}}}\n"


class Line:
    """One kept-alive connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, seq: int) -> None:
        """One whole call."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(PLAIN.request(seq))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise SystemExit(f"refused: {head[:80]!r}")
        if b"content-length: " in head:
            await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        else:
            await reader.readuntil(b"0\r\n\r\n")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def saturate(port: int) -> None:
    """As fast as `CONNECTIONS` callers can."""

    async def one(number: int) -> None:
        line = Line(port)
        for seq in range(number, REQUESTS, CONNECTIONS):
            await line.call(seq)
        line.close()

    await asyncio.gather(*(one(number) for number in range(CONNECTIONS)))


async def evenly(port: int) -> list[float]:
    """Latencies in ms at RATE, each from the instant at which it was due."""
    free = [Line(port) for _ in range(CONNECTIONS)]
    loop, latencies = asyncio.get_running_loop(), list[float]()
    began = loop.time() + 0.1

    async def one(seq: int) -> None:
        line = free.pop()
        await line.call(seq)
        latencies.append((loop.time() - began - seq / RATE) * 1e3)
        free.append(line)

    async with asyncio.TaskGroup() as group:
        for seq in range(RATE * SECONDS):
            await asyncio.sleep(began + seq / RATE - loop.time())
            group.create_task(one(seq))
    for line in free:
        line.close()
    return latencies


def cpu_s(child: Child) -> float:
    """Processor time that a child has used."""
    times = psutil.Process(child.pid).cpu_times()
    return times.user + times.system


def main() -> None:
    """Print two lines."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as children:
        folder = Path(name)
        (folder / "gateway.yaml").write_text(WIDE)
        provider = Child.start(
            "the provider", ["-m", "fake_provider", "--port", "0", *INSTANT], folder / "provider.log"
        )
        children.enter_context(provider)
        direct = int(provider.wait_ready()["port"])
        arguments = ["-m", "agentload.gateway", "--port", "0", "--config", str(folder / "gateway.yaml")]
        arguments += ["--upstream", f"http://127.0.0.1:{direct}", "--parent-pipe"]
        gateway = children.enter_context(Child.start("the gateway", arguments, folder / "gateway.log"))
        through = int(gateway.wait_ready()["port"])
        asyncio.run(saturate(through))  # warm
        before, began = cpu_s(gateway), time.perf_counter()
        asyncio.run(saturate(through))
        used_s, wall_s = cpu_s(gateway) - before, time.perf_counter() - began
        rounds = [(asyncio.run(evenly(direct)), asyncio.run(evenly(through))) for _ in range(ROUNDS)]
        memory = psutil.Process(gateway.pid).memory_info().rss / 2**20
    cost = f"{used_s / REQUESTS * 1e6:.0f} µs CPU a request   {REQUESTS / used_s:.0f} plain requests/s a core"
    print(f"  gateway    {cost} ({REQUESTS / wall_s:.0f}/s here, with all three)   {memory:.0f} MB")
    straight, around = (sorted(one for pair in rounds for one in pair[which]) for which in (0, 1))
    added_ms = median(around) - median(straight)
    print(
        f"  at {RATE}/s   direct {_shown(straight)}   through {_shown(around)}   added p50 {added_ms:.2f} ms"
    )


def _shown(latencies: list[float]) -> str:
    return f"p50 {median(latencies):.2f} p95 {latencies[len(latencies) * 95 // 100]:.2f} ms"


if __name__ == "__main__":
    main()
