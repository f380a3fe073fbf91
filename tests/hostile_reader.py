"""Reads hostile answers as one part of agentload does, in a process of its own, and says what that took.

python hostile_reader.py PART        reads `NAME PORT` lines, prints a JSON line for each
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agentload import targets
from agentload.drivers.probe import MIB, Bounds
from agentload.errors import UnreachableError
from agentload.targets import Target
from agentload.targets._metrics import MetricsPage

SECONDS = 1.0
"""Each part's patience here, in place of its own."""


def load_client(target: Target) -> str:
    from agentload.client.wire import ReplyReader
    from agentload.drivers.caller import ENDINGS
    from agentload.drivers.http1 import Endpoint, Http1Client

    client = Http1Client(Endpoint(target.host, target.port))
    reader = ReplyReader(False, 1)
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    exchange = client.exchange(request, time.monotonic_ns() + round(SECONDS * 1e9), reader)
    broke = exchange.failure and exchange.failure.value
    result = reader.result(ENDINGS[exchange.failure], 0, transport_error=broke)
    client.close()
    return f"{result.outcome.value} {result.reason or ''}".strip()


def doctor(target: Target) -> str:
    from agentload import profile
    from agentload.doctor import ask
    from agentload.doctor.observed import Kind

    ask.TIMEOUT_S = SECONDS
    chosen = profile.load(profile.find("steady"), [])
    asked = ask.Asker(target, chosen, 1).ask(Kind.CAREFUL, chosen.tenants[0])
    return f"{asked.outcome.value} {asked.failure or asked.reason or ''}".strip()


def probe(target: Target) -> str:
    from agentload.drivers.plain_call import Line

    try:
        with Line(target.base_url, "the target") as line:
            reply = line.call("GET", "/x", bounds=Bounds(SECONDS, MIB))
    except UnreachableError as error:
        [said] = error.lines
        return said.rpartition("/x: ")[2]
    return f"{reply.status}"


def sampler(target: Target) -> str:
    from agentload.drivers import gauges

    gauges.BOUNDS = Bounds(SECONDS, gauges.BOUNDS.body_bytes)
    gauge = gauges.PageGauge(
        replace(target, metrics=MetricsPage(url=f"{target.base_url}/m", series={"w": "up"}))
    )
    try:
        return f"read {gauge.read().values}"
    except (UnreachableError, ValueError) as error:
        return str(error).rpartition("/m: ")[2]
    finally:
        gauge.close()


def measured(part: Callable[[Target], str], port: str) -> dict[str, object]:
    target = targets.load(f"http://127.0.0.1:{port}", {})
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here (proc(5))
    before, began_s = memory("VmRSS"), time.monotonic()
    said = part(target)
    return {"said": said, "seconds": time.monotonic() - began_s, "grew": memory("VmHWM") - before}


def memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main(part: str) -> None:
    parts = {one.__name__: one for one in (load_client, doctor, probe, sampler)}
    lines = [line.split() for line in sys.stdin]
    measured(parts[part], lines[0][1])  # what it imports is not the answer's doing
    for name, port in lines:
        print(json.dumps({"name": name} | measured(parts[part], port)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
