"""What a call costs our fake provider, and what it costs other fakes of the same APIs, in one run.

The others come from PyPI, each into a virtual environment of its own under `~/.cache/agentload/bench` (the
first run installs them: they are nobody's dependency). One that cannot be had is left out, with the reason.
All take turns on one processor, with the client on another: a busy machine slows all alike, so trust the
ratios. Those of them that have limits count with limits that never bind, as ours does. Their answers have
about ten words whatever is asked; ours then have ten, too.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from bench_provider import CHAT, LOOSE, post

from fake_provider.marker import Marker, message

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentload" / "bench"
INSTALL_S = 300
START_S = 60
ROUNDS = 3
CONNECTIONS = 32
CALLS = {False: 2_000, True: 500}
"""Calls a round, plain and streamed."""
TOKENS = 10
EVENT = b"\n\ndata: {"


@dataclass(frozen=True)
class Fake:
    """A program that answers chat completions."""

    name: str
    command: tuple[str, ...]
    """Its arguments; {port} is filled in."""
    package: str | None = None
    """What pip installs; None: it is ours."""
    prepare: tuple[str, ...] = ()
    """Arguments of a run that writes what the next one reads."""

    def program(self) -> list[str]:
        """How to start it. Raises Missing."""
        return (
            [sys.executable, "-m", self.name]
            if self.package is None
            else [installed(self.package, self.name)]
        )


OURS = (
    f"--set=tokens_per_minute={LOOSE:.0f}",
    f"--set=requests_per_minute={LOOSE:.0f}",
    "--set=latency.first_token_ms=0",
    "--set=latency.inter_token_ms=0",
)
LIMITS = ("--rpm", "1000000000", "--tpm", "1000000000000")
FAKES = (
    Fake("fake_provider", ("--port", "{port}", *OURS)),
    Fake("llmock", ("serve", "--port", "{port}", "--log-level", "warning", *LIMITS), "llmock==0.2.2"),
    Fake("fakellm", ("serve", "--port", "{port}"), "fakellm==0.3.5", ("init",)),
)


class Missing(Exception):
    """Why a fake cannot be measured."""


def installed(package: str, program: str) -> str:
    """The path of a program in a virtual environment of its own, made now if need be. Raises Missing."""
    place = CACHE / package
    path = place / "bin" / program
    if not path.exists():
        run([sys.executable, "-m", "venv", "--clear", str(place)])
        run([str(place / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", package])
    if not path.exists():
        raise Missing(f"{package} has no program {program}")
    return str(path)


def run(command: list[str], folder: Path | None = None) -> None:
    """One command to its end. Raises Missing."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(str(error)) from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Missing(said[-1] if said else f"{command[0]} ended with {done.returncode}")


@contextmanager
def running(fake: Fake, folder: Path) -> Generator[tuple[psutil.Process, int]]:
    """A fake on a free port, on the first processor. Raises Missing."""
    program, port = fake.program(), free_port()
    if fake.prepare:
        run([*program, *fake.prepare], folder)
    command = [*program, *(part.format(port=port) for part in fake.command)]
    with (folder / f"{fake.name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        await_port(process, port)
        pin(process.pid, min)
        yield psutil.Process(process.pid), port
    finally:
        process.terminate()
        process.wait()


def pin(pid: int, choose: Callable[[set[int]], int]) -> None:
    """A process on one of our processors, where the system can do that."""
    if sys.platform == "linux":
        os.sched_setaffinity(pid, {choose(os.sched_getaffinity(0))})


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def await_port(process: subprocess.Popen[bytes], port: int) -> None:
    """Until somebody listens. Raises Missing."""
    give_up = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < give_up:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise Missing(f"it did not start (exit code {process.poll()})")


def request(seq: int, stream: bool) -> bytes:
    """One call of about 1 KB."""
    marker = Marker(run=0, tenant=0, seq=seq, attempt=0, output_tokens=TOKENS)
    content = [{"role": "user", "content": message(marker, 200)}]
    asked = {"model": "gpt-4o-mini", "messages": content, "max_tokens": TOKENS, "stream": stream}
    return post(CHAT, asked, {"Authorization": "Bearer any", "Content-Type": "application/json"})


async def play(port: int, stream: bool, calls: range) -> int:
    """One connection's calls, one after another; how many events came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    events = 0
    for seq in calls:
        writer.write(request(seq, stream))
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(head.decode("latin-1"))
        _, known, rest = head.lower().partition(b"content-length: ")
        if known:
            await reader.readexactly(int(rest.split(b"\r\n")[0]))
        else:
            events += (await reader.readuntil(b"\r\n0\r\n\r\n")).count(b"data: {")
    writer.close()
    return events


async def play_all(port: int, stream: bool) -> int:
    """All connections at once; how many events came."""
    calls = CALLS[stream]
    lines = (play(port, stream, range(n, calls, CONNECTIONS)) for n in range(CONNECTIONS))
    return sum(await asyncio.gather(*lines))


def cost_us(process: psutil.Process, port: int, stream: bool) -> float:
    """Processor time a request, or an event with its share of the request."""
    before = process.cpu_times()
    events = asyncio.run(play_all(port, stream))
    after = process.cpu_times()
    used_us = 1e6 * (after.user + after.system - before.user - before.system)
    return used_us / (events if stream else CALLS[stream])


def main() -> None:
    """Print a line for each fake."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        started: dict[str, tuple[psutil.Process, int]] = {}
        for fake in FAKES:
            try:
                started[fake.name] = stack.enter_context(running(fake, Path(folder)))
            except Missing as why:
                print(f"  {fake.name:14} left out: {why}", flush=True)
        pin(0, max)
        costs: dict[str, list[tuple[float, float]]] = {name: [] for name in started}
        for _ in range(ROUNDS):
            for name, (process, port) in started.items():
                costs[name].append((cost_us(process, port, False), cost_us(process, port, True)))
        for name, measured in costs.items():
            print(line(name, measured, costs[FAKES[0].name]), flush=True)


def line(name: str, measured: list[tuple[float, float]], ours: list[tuple[float, float]]) -> str:
    """The medians, and what they are as multiples of ours."""
    plain, event = (median(row[i] for row in measured) for i in (0, 1))
    plain_x, event_x = (
        median(theirs[i] / mine[i] for theirs, mine in zip(measured, ours, strict=True)) for i in (0, 1)
    )
    return (
        f"  {name:14} {plain:6.0f} µs CPU a request {1e6 / plain:6,.0f}/s a core ({plain_x:4.1f} x ours)"
        f"   {event:5.0f} µs an event with its share of the call ({event_x:4.1f} x)"
    )


if __name__ == "__main__":
    main()
