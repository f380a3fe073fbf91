"""Clients to compare, each in a process of its own.

    python bench/clients.py fast|http|thin PORT SECONDS CONNECTIONS    closed loop
    python bench/clients.py open PORT SECONDS RATE                     open loop over FastHttpSession

fast and http are Locust's FastHttpUser and HttpUser with the statistics they keep of themselves; thin is our
HTTP client with the three histograms that the driver keeps. All send the same bytes over and over. Prints one
JSON line.
"""
# ruff: noqa: E402

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse
import gc
import json
import sys
import time
from random import Random
from typing import Any

import gevent
from locust import FastHttpUser, HttpUser, constant, task
from locust.contrib.fasthttp import FastHttpSession
from locust.env import Environment
from locust.stats import RequestStats

from agentload.client.wire import RequestWriter, marker_of
from agentload.drivers.heartbeat import ProcessorUse, resident_bytes
from agentload.drivers.http1 import Endpoint, Http1Client
from agentload.measure import Recorder
from agentload.model import Arrival, Job
from agentload.targets import bundled

REQUEST_ID = 5


def same_request(port: int) -> tuple[str, dict[str, str], bytes]:
    """What our driver sends: path, headers and body of one call."""
    job = Job(input_tokens=24, output_tokens=2, declared_output_tokens=None)
    arrival = Arrival(seq=0, tenant="a", service_class="standard", phase="steady", due_ns=0, job=job)
    target = bundled(f"http://127.0.0.1:{port}")
    raw = RequestWriter(target).write(arrival, marker_of(REQUEST_ID, 0, arrival, 0), 0)
    head, _, body = raw.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    return target.path, {k: v for k, v in fields.items() if k not in ("Host", "Content-Length")}, body


def closed(kind: str, port: int, seconds: float, users: int) -> dict[str, Any]:
    """Locust's own loop."""
    path, headers, body = same_request(port)

    def ask(user: Any) -> None:
        user.client.post(path, data=body, headers=headers, name="chat")

    base = FastHttpUser if kind == "fast" else HttpUser
    members = {"wait_time": constant(0), "host": f"http://127.0.0.1:{port}", "ask": task(ask)}
    user_class: Any = type("Asker", (base,), members)
    environment = Environment(user_classes=[user_class])
    runner = environment.create_local_runner()
    gc.collect()
    gc.freeze()
    runner.start(users, spawn_rate=users)
    gevent.sleep(0.5)
    use, before, began_s = ProcessorUse(), environment.stats.total.num_requests, time.monotonic()
    gevent.sleep(seconds)
    elapsed_s, requests = time.monotonic() - began_s, environment.stats.total.num_requests - before
    cpu_us, (_, waited) = use.cpu_s() / requests * 1e6, use.shares()
    failures = environment.stats.total.num_failures
    runner.quit()
    return {
        "cpu_us": cpu_us,
        "per_s": requests / elapsed_s,
        "waited": waited,
        "rss_mb": resident_bytes() / 1e6,
        "failures": failures,
    }


class Deaf:
    """Hears an answer and keeps nothing."""

    def head(self, status: int, headers: list[tuple[bytes, bytes]], now_epoch_s: float) -> None:
        """Not needed."""

    def feed(self, data: bytes, now_ns: int) -> bool:  # noqa: ARG002
        """Not needed."""
        return False


def thin(port: int, seconds: float, users: int) -> dict[str, Any]:
    """Our client alone, without plan, parsing, records or reports."""
    path, headers, body = same_request(port)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body
    client, deaf = Http1Client(Endpoint("127.0.0.1", port)), Deaf()
    lateness, latency, service = Recorder(), Recorder(), Recorder()
    failures = 0

    def ask() -> None:
        nonlocal failures
        while True:
            due_ns = time.monotonic_ns()
            done = client.exchange(request, due_ns + 60_000_000_000, deaf)
            lateness.record((done.sent_ns - due_ns) // 1000)
            latency.record((done.ended_ns - due_ns) // 1000)
            service.record((done.ended_ns - done.sent_ns) // 1000)
            failures += done.status != 200

    gc.collect()
    gc.freeze()
    asking = [gevent.spawn(ask) for _ in range(users)]
    gevent.sleep(0.5)
    use, before, began_s = ProcessorUse(), latency.count, time.monotonic()
    gevent.sleep(seconds)
    elapsed_s, requests = time.monotonic() - began_s, latency.count - before
    cpu_us, (_, waited) = use.cpu_s() / requests * 1e6, use.shares()
    gevent.killall(asking)
    rss_mb = resident_bytes() / 1e6
    return {
        "cpu_us": cpu_us,
        "per_s": requests / elapsed_s,
        "waited": waited,
        "rss_mb": rss_mb,
        "failures": failures,
    }


def open_loop(port: int, seconds: float, rate: float) -> dict[str, Any]:
    """A greenlet per arrival over FastHttpSession, paced with gevent.sleep."""
    path, headers, body = same_request(port)
    stats, lateness = RequestStats(), Recorder()
    environment = Environment()

    def on_request(
        request_type: str, name: str, response_time: int, response_length: int, **_: object
    ) -> None:
        stats.log_request(request_type, name, response_time, response_length)

    environment.events.request.add_listener(on_request)
    base = f"http://127.0.0.1:{port}"
    session: Any = FastHttpSession(base, environment.events.request, None, concurrency=5000, max_retries=0)

    def ask(due_s: float) -> None:
        lateness.record(round((time.monotonic() - due_s) * 1e6))
        session.post(path, data=body, headers=headers, name="chat")

    random, due_s, dues = Random(7), 0.0, list[float]()
    while due_s < seconds:
        due_s += random.expovariate(rate)
        dues.append(due_s)
    gc.collect()
    gc.freeze()
    asked, use, began_s = [], ProcessorUse(), time.monotonic() + 0.05
    for due_s in dues:
        left_s = began_s + due_s - time.monotonic()
        if left_s > 0:
            gevent.sleep(left_s)
        asked.append(gevent.spawn(ask, began_s + due_s))
    gevent.joinall(asked, timeout=10)
    cpu_us, (_, waited) = use.cpu_s() / len(dues) * 1e6, use.shares()
    p50, p99 = lateness.percentiles_us((50, 99))
    return {
        "cpu_us": cpu_us,
        "late_p50_ms": (p50 or 0) / 1000,
        "late_p99_ms": (p99 or 0) / 1000,
        "waited": waited,
        "rss_mb": resident_bytes() / 1e6,
        "failures": len(dues) - stats.total.num_requests,
    }


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["fast", "http", "thin", "open"])
    parser.add_argument("port", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("amount", type=float)
    options = parser.parse_args()
    if options.kind == "open":
        result = open_loop(options.port, options.seconds, options.amount)
    elif options.kind == "thin":
        result = thin(options.port, options.seconds, int(options.amount))
    else:
        result = closed(options.kind, options.port, options.seconds, int(options.amount))
    print(json.dumps(result))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
