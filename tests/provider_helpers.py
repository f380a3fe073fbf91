"""What the provider's tests share: calls made from numbers, runs in virtual time, and real processes."""

from __future__ import annotations

import heapq
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, cast

import httpx

from fake_provider.call import Call, CallRequest, Decision, Refusal, Service
from fake_provider.config import LatencyConfig
from fake_provider.core import Provider
from fake_provider.ledger import Ending, Entry
from fake_provider.marker import Marker, message

ROOT = Path(__file__).parents[1]

NS = 1_000_000_000
MS = 1_000_000
EXACT = LatencyConfig(first_token_ms=100, first_token_cv=0, inter_token_ms=20)


def request(
    *,
    tenant: int = 1,
    seq: int = 0,
    attempt: int = 0,
    run: int = 0,
    output: int = 10,
    marked: bool = True,
    **fields: object,
) -> CallRequest:
    marker = (
        Marker(run=run, tenant=tenant, seq=seq, attempt=attempt, output_tokens=output) if marked else None
    )
    base: dict[str, object] = {
        "api_key": "key",
        "model": "m",
        "text_chars": 120,
        "input_tokens": 30,
        "marker": marker,
    }
    return CallRequest(**{**base, **fields})  # type: ignore[arg-type]


def service(decision: Decision) -> Call:
    assert isinstance(decision, Service)
    return decision.call


def refusal(decision: Decision) -> Refusal:
    assert isinstance(decision, Refusal)
    return decision


def play(core: Provider, arrivals: Iterable[tuple[int, CallRequest]]) -> list[Entry]:
    """A whole run in virtual time, as a simulator would drive it."""
    order = count()
    events: list[tuple[int, int, CallRequest | Call | None]] = []

    def push(at_ns: int, what: CallRequest | Call | None) -> None:
        heapq.heappush(events, (at_ns, next(order), what))

    for at_ns, asked in arrivals:
        push(at_ns, asked)
    while events:
        now_ns, _, what = heapq.heappop(events)
        if isinstance(what, CallRequest):
            decision = core.arrive(now_ns, what)
            started = [decision.call] if isinstance(decision, Service) else []
        elif isinstance(what, Call):
            step = core.next_step(what)
            started = core.deliver(now_ns, what, step) if step.due_ns == now_ns else []
            started += [what] if what.entry.ending is Ending.OPEN else []
        else:
            started = core.tick(now_ns)
        for call in started:
            due_ns = core.next_step(call).due_ns
            assert due_ns is not None
            push(max(due_ns, now_ns), call)
        wakeup_ns = core.wakeup_ns()
        if wakeup_ns is not None and not any(event[2] is None for event in events):
            push(max(wakeup_ns, now_ns), None)
    return core.ledger.entries


# ------------------------------------------------------------------------------------------ real processes


class ProviderProcess:
    """`python -m fake_provider` on a free port; it ends with the block, or when this process dies."""

    def __init__(self, *arguments: str, settings: Mapping[str, object] | None = None) -> None:
        pairs = [f"--set={key}={json.dumps(value)}" for key, value in (settings or {}).items()]
        command = [sys.executable, "-m", "fake_provider", "--port=0", "--parent-pipe", *pairs, *arguments]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def __enter__(self) -> ProviderProcess:
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline() or "null")
        assert ready is not None, self.finish()
        assert (ready["event"], ready["pid"]) == ("ready", self.process.pid)
        self.port: int = ready["port"]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=30)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.finish()

    def finish(self) -> tuple[int, str]:
        """Waits for the end; exit code and what was said on standard error."""
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors

    def control(self, verb: str, path: str, data: object = None) -> Any:
        """The JSON answer to a control request."""
        answer = self.client.request(verb, f"/_fake/{path}", json=data)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ledger(self) -> dict[str, Any]:
        """The ledger as it stands."""
        return cast(dict[str, Any], self.control("GET", "ledger"))

    def wait_for(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The ledger once it satisfies a condition (it must within 20 s)."""
        give_up = time.monotonic() + 20
        while not true(ledger := self.ledger()):
            assert time.monotonic() < give_up, ledger
        return ledger


def chat(text: str = "hello", **fields: object) -> dict[str, object]:
    """The body of a chat call."""
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def marked(
    tenant: int = 1, seq: int = 0, run: int = 0, attempt: int = 0, output: int = 10, **fields: object
) -> dict[str, object]:
    """The body of a chat call that carries a marker."""
    marker = Marker(run=run, tenant=tenant, seq=seq, attempt=attempt, output_tokens=output)
    return chat(message(marker, 30), **fields)
