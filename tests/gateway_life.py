"""A whole gateway without sockets to which things happen: what tests of its numbers share."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from agentload.gateway.core import GatewayCore
from agentload.gateway.failures import FailureKind
from agentload.gateway.protocol import (
    Action,
    Arrived,
    ClientLeft,
    Drain,
    Event,
    Record,
    StartUpstream,
    Stop,
    Tick,
    UpstreamData,
    UpstreamEnded,
    UpstreamFailed,
    UpstreamHeaders,
)
from agentload.gateway.settings import GatewaySettings
from agentload.model import NS
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig, UpstreamLimits

CLASSES = ("gold", "standard")
JSON = ((b"content-type", b"application/json"),)
ANSWER = b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}'


def core_of(*, slots: int = 2, lease_s: float = 600.0, **limits: Any) -> GatewayCore:
    """Two classes that share two slots, with room for two waiting in each."""
    one = ClassConfig(nominal_share=0.5, max_queue=2, tenant_max_queue=2, max_wait_s=5)
    pool = PoolConfig(slots=slots, tenant_slots=slots, lease_s=lease_s, classes=dict.fromkeys(CLASSES, one))
    config = GatewayConfig(pools={"shared": pool}, upstream=UpstreamLimits(**limits))
    return GatewayCore(config, GatewaySettings(total_s=60, first_byte_s=20, slow_wait_s=0.5), Random(1))


def arrival(request_id: int, *, tenant: str = "t", stream: bool = False, **headers: str) -> Arrived:
    """A small chat request."""
    messages = [{"role": "user", "content": "hello"}]
    body = {"model": "m", "max_tokens": 8, "stream": stream, "messages": messages}
    fields = {"x-tenant": tenant} | {name.replace("_", "-"): value for name, value in headers.items()}
    wire = tuple((name.encode(), value.encode()) for name, value in fields.items())
    return Arrived(request_id, wire, json.dumps(body).encode())


class Life:
    """A gateway to which things happen."""

    def __init__(self, core: GatewayCore) -> None:
        self.core, self.now_ns, self.last_id = core, 0, 0
        self.calling: list[int] = []
        self.records: list[Record] = []

    def feed(self, event: Event) -> None:
        for action in self.core.handle(self.now_ns, event):
            self.take(action)

    def take(self, action: Action) -> None:
        if isinstance(action, StartUpstream):
            self.calling.append(action.request_id)
        elif isinstance(action, Record):
            self.records.append(action)
            if action.request_id in self.calling:
                self.calling.remove(action.request_id)

    def arrive(self, number: int) -> None:
        self.last_id += 1
        headers = {"x_service_class": CLASSES[number % 2], "x_attempt": str(number // 3)}
        if number == 5:
            headers["x_deadline_ms"] = "300"
        self.feed(arrival(self.last_id, tenant=f"t{number % 3}", stream=number > 5, **headers))

    def garbage(self, _: int) -> None:
        self.last_id += 1
        self.feed(Arrived(self.last_id, (), b"{"))

    def answer(self, number: int) -> None:
        if self.calling:
            request_id = self.calling[number % len(self.calling)]
            self.feed(UpstreamHeaders(request_id, 200, JSON))
            self.feed(UpstreamData(request_id, ANSWER))
            self.feed(UpstreamEnded(request_id))

    def refuse(self, number: int) -> None:
        if self.calling:
            request_id = self.calling[number % len(self.calling)]
            self.feed(UpstreamHeaders(request_id, 429, ((b"retry-after", b"1"),)))
            self.feed(UpstreamEnded(request_id))

    def fail(self, number: int) -> None:
        if self.calling:
            self.feed(UpstreamFailed(self.calling[number % len(self.calling)], FailureKind.BROKEN))

    def leave(self, number: int) -> None:
        self.feed(ClientLeft(max(1, self.last_id - number)))

    def wait(self, number: int) -> None:
        self.now_ns += (number + 1) * NS // 2
        self.feed(Tick())

    def drain(self, number: int) -> None:
        if number == 7:
            self.feed(Drain())

    def stop(self, number: int) -> None:
        if number == 7:
            self.feed(Stop())
