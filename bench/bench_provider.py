"""What the fake provider's work costs in its own processor time: a plain call, a streamed event.

The client is a handful of raw sockets in this process; only the provider's CPU counts, so what the client
costs and a busy machine change nothing but the time it takes. Each of the two APIs is measured under its own
policy, with limits that never bind. Events are due 10 ms apart, so every one costs a timer and a write.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil

from agentload.drivers.processes import Child
from fake_provider.marker import Marker, message

PROMPT_TOKENS = 200
TOKENS = 16
STREAM_TOKENS = 100
CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
LOOSE = 1e12


@dataclass(frozen=True)
class Case:
    """Calls of one kind; each is about 1 KB."""

    name: str
    path: str
    stream: bool
    connections: int
    calls: int
    """Over all connections."""
    policy: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    def config(self) -> dict[str, Any]:
        """What the provider is told to be."""
        latency = {"first_token_ms": 0, "inter_token_ms": 10 if self.stream else 0}
        return {"latency": latency, "requests_per_minute": LOOSE, **self.policy}

    def request(self, seq: int) -> bytes:
        """One call."""
        tokens = STREAM_TOKENS if self.stream else TOKENS
        marker = Marker(run=0, tenant=0, seq=seq, attempt=0, output_tokens=tokens)
        content = [{"role": "user", "content": message(marker, PROMPT_TOKENS)}]
        asked = {"model": "fake-model", "messages": content, "max_tokens": tokens, "stream": self.stream}
        return post(self.path, asked, self.headers)


OPENAI = {"policy": "openai", "tokens_per_minute": LOOSE}
ANTHROPIC = {
    "policy": "anthropic",
    "input_tokens_per_minute": LOOSE,
    "output_tokens_per_minute": LOOSE,
}
VERSION = {"anthropic-version": "2023-06-01", "x-api-key": "any"}
CASES = (
    Case("plain chat", CHAT, False, 32, 12_000, OPENAI),
    Case("plain messages", MESSAGES, False, 32, 12_000, ANTHROPIC, VERSION),
    Case("streamed chat", CHAT, True, 100, 200, OPENAI),
    Case("streamed messages", MESSAGES, True, 100, 200, ANTHROPIC, VERSION),
)


def post(path: str, data: object, headers: dict[str, str]) -> bytes:
    """One HTTP request."""
    body = msgspec.json.encode(data)
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def answer(reader: asyncio.StreamReader, head: bytes) -> None:
    """Reads one answer to its end, whose header is `head`."""
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(head.decode("latin-1"))
    _, known, rest = head.lower().partition(b"content-length: ")
    if known:
        await reader.readexactly(int(rest.split(b"\r\n")[0]))
    else:
        await reader.readuntil(b"\r\n0\r\n\r\n")


async def play(port: int, requests: list[bytes]) -> None:
    """One connection's calls, one after another."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    for request in requests:
        writer.write(request)
        await answer(reader, await reader.readuntil(b"\r\n\r\n"))
    writer.close()


async def play_all(port: int, case: Case) -> None:
    """All connections at once."""
    requests = [case.request(seq) for seq in range(case.calls)]
    await asyncio.gather(*(play(port, requests[n :: case.connections]) for n in range(case.connections)))


def measure(port: int, process: psutil.Process, case: Case) -> str:
    """One line."""
    asyncio.run(play(port, [post("/_fake/reset", {"run": 0, "config": case.config()}, {})]))
    before = process.cpu_times()
    asyncio.run(play_all(port, case))
    after = process.cpu_times()
    used_us = 1e6 * (after.user + after.system - before.user - before.system)
    units = case.calls * (STREAM_TOKENS if case.stream else 1)
    cost = used_us / units
    unit, rate = ("an event", "events") if case.stream else ("a request", "requests")
    return f"  {case.name:18} {cost:4.0f} µs CPU {unit:9} {1e6 / cost:7,.0f} {rate}/s a core"


def main() -> None:
    """Print a line for each case, and the memory at the end."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["-m", "fake_provider", "--port", "0"]
        with Child.start("the provider", arguments, Path(folder) / "provider.log") as child:
            port = int(child.wait_ready()["port"])
            process = psutil.Process(child.pid)
            for case in CASES:
                print(measure(port, process, case), flush=True)
            print(f"  memory with {CASES[-1].calls} calls listed: {process.memory_info().rss / 2**20:.0f} MB")


if __name__ == "__main__":
    main()
