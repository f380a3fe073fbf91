"""What a plain call costs the fake provider: requests per second of its own processor time.

The client is a handful of raw sockets in this process; only the provider's CPU counts, so what the client
costs and a busy machine change nothing but the time it takes.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import msgspec
import psutil

from agentload.drivers.processes import Child
from fake_provider.marker import Marker, message

CONNECTIONS = 32
REQUESTS = 12_000
INSTANT = ("--set", "latency.first_token_ms=0", "--set", "latency.inter_token_ms=0")


def request(seq: int) -> bytes:
    """One chat call with 200 prompt tokens (about 1 KB) and 16 of output."""
    marker = Marker(run=0, tenant=0, seq=seq, attempt=0, output_tokens=16)
    content = [{"role": "user", "content": message(marker, 200)}]
    body = msgspec.json.encode({"model": "fake-model", "messages": content, "max_tokens": 16})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def play(port: int, seqs: range) -> None:
    """One connection's calls, one after another."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for seq in seqs:
        writer.write(request(seq))
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
    writer.close()


async def play_all(port: int) -> None:
    """All connections at once."""
    each = REQUESTS // CONNECTIONS
    await asyncio.gather(*(play(port, range(n * each, (n + 1) * each)) for n in range(CONNECTIONS)))


def main() -> None:
    """Print one line."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["-m", "fake_provider", "--port", "0", *INSTANT]
        with Child.start("the provider", arguments, Path(folder) / "provider.log") as child:
            port = int(child.wait_ready()["port"])
            process = psutil.Process(child.pid)
            before = process.cpu_times()
            asyncio.run(play_all(port))
            after = process.cpu_times()
            used_s = after.user + after.system - before.user - before.system
            memory = process.memory_info().rss / 2**20
    rate = REQUESTS / used_s
    cost = f"{1e6 / rate:.0f} µs CPU a request   {rate:.0f} plain requests/s a core"
    print(f"  provider   {cost}   {memory:.0f} MB")


if __name__ == "__main__":
    main()
