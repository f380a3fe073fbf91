"""What the gateway's live tests share: a real gateway, a real provider, and raw HTTP/1.1 clients."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from agentload.drivers.processes import Child
from process_facts import wait_until

CHAT = "/v1/chat/completions"
STEADY = {"first_token_ms": 20, "first_token_cv": 0, "inter_token_ms": 1}
NEVER = {"first_token_ms": 60_000, "first_token_cv": 0, "inter_token_ms": 1}


class Provider:
    """The fake provider as a process."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.url = f"http://127.0.0.1:{child.wait_ready()['port']}"
        self.http = httpx.Client(base_url=self.url, timeout=10)

    def reset(self, *, latency: Mapping[str, float] = STEADY, **config: Any) -> None:
        """A new run with this configuration, without faults."""
        self.http.delete("/_fake/faults").raise_for_status()
        body = {"run": 0, "config": {"policy": "openai", "latency": dict(latency), **config}}
        self.http.post("/_fake/reset", json=body).raise_for_status()

    def fault(self, kind: str, **params: Any) -> None:
        """A fault that lasts."""
        self.http.post("/_fake/faults", json={"kind": kind, "params": params}).raise_for_status()

    def entries(self) -> list[dict[str, Any]]:
        """The ledger."""
        return list(self.http.get("/_fake/ledger").json()["entries"])

    def endings(self) -> list[str]:
        """How its calls ended, in order of arrival."""
        return [entry.get("ending", "open") for entry in self.entries()]


class Gateway:
    """The reference gateway as a process."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.port = int(child.wait_ready()["port"])
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20)

    def queue(self) -> dict[str, Any]:
        """What waits and what runs."""
        return dict(self.http.get("/debug/queue").json())

    def wait_for(self, *, waiting: int, in_flight: int) -> None:
        """Until exactly so many wait and run."""
        wait_until(lambda: (lambda q: (q["waiting"], q["in_flight"]))(self.queue()) == (waiting, in_flight))

    def client(self, *, stream: bool = False, **headers: str) -> RawClient:
        """Sends one request on a connection of its own, and leaves reading or leaving to the test."""
        return RawClient(self.port, chat(stream=stream), headers)


def chat(*, stream: bool = False, max_tokens: int = 8, text: str = "hello there") -> dict[str, Any]:
    """The body of a request without a marker: the provider produces `max_tokens`."""
    messages = [{"role": "user", "content": text}]
    return {"model": "fake-model", "messages": messages, "max_tokens": max_tokens, "stream": stream}


class RawClient:
    """One request over a plain socket: it can leave at any moment, and reads bytes as they come."""

    def __init__(self, port: int, body: dict[str, Any], headers: dict[str, str]) -> None:
        payload = json.dumps(body).encode()
        fields = {"Host": "gateway", "Content-Type": "application/json", **headers}
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        request = f"POST {CHAT} HTTP/1.1\r\n{head}Content-Length: {len(payload)}\r\n\r\n".encode()
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.sendall(request + payload)
        self.received = b""

    def read_until(self, mark: bytes) -> bytes:
        """Everything received so far, which ends with or holds the mark; fails when the stream ends first."""
        while mark not in self.received:
            piece = self.socket.recv(65_536)
            assert piece, f"the connection ended before {mark!r}: {self.received!r}"
            self.received += piece
        return self.received

    def read_answer(self) -> bytes:
        """A chunked answer up to its last chunk."""
        return self.read_until(b"\r\n0\r\n\r\n")

    def leave(self) -> None:
        """Close the connection."""
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


@contextmanager
def provider(folder: Path) -> Generator[Provider]:
    """A provider that is stopped in the end."""
    with Child.start("provider", ["-m", "fake_provider", "--port", "0"], folder / "provider.log") as child:
        running = Provider(child)
        with running.http:
            yield running


@contextmanager
def gateway(
    folder: Path, upstream: str, config: dict[str, Any] | None = None, *options: str, **pool: Any
) -> Generator[Gateway]:
    """A gateway with one pool and one class `standard`; `pool` and `config` change its configuration."""
    classes = {"standard": pool.pop("queue", {})}
    document = {"pools": {"shared": {"classes": classes, **pool}}, **(config or {})}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "gateway.json"
    path.write_text(json.dumps(document))
    arguments = [
        "-m",
        "agentload.gateway",
        "--port",
        "0",
        "--config",
        str(path),
        "--upstream",
        upstream,
        *options,
    ]
    with ExitStack() as stack:
        child = stack.enter_context(Child.start("gateway", arguments, folder / "gateway.log"))
        running = Gateway(child)
        stack.enter_context(running.http)
        yield running
