"""What the live driver's tests share: a server whose times are known, a profile for it, a run."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from agentload.drivers.live import LiveDriver
from agentload.drivers.processes import Child
from agentload.drivers.protocol import MasterConfig, MasterEvent
from agentload.model import Phase, Profile, RequestRecord, Spec, Tenant
from agentload.scheduler.config import GatewayConfig
from agentload.targets import bundled
from fake_provider.config import ProviderConfig

TINY_SERVER = Path(__file__).parents[1] / "bench" / "tiny_server.py"


@contextmanager
def tiny_server(folder: Path, *options: str) -> Generator[int]:
    """The server's port."""
    with Child.start("the tiny server", [str(TINY_SERVER), *options], folder / "server.log") as child:
        yield int(child.wait_ready()["port"])


def requests_seen(port: int) -> int:
    """How many requests the server has counted."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/count", timeout=5) as answer:
        return int(json.load(answer)["requests"])


def open_tenant(name: str, rate: float, kind: str = "uniform", **more: Any) -> Tenant:
    """A tenant that does not wait for answers."""
    workload = more.pop("workload", {"input_tokens": 24, "output_tokens": 2})
    return Tenant(
        name=name,
        group=name,
        arrivals=Spec(kind=kind, params={"rate": rate}),
        workload=Spec(kind="fixed", params=workload),
        client=more.pop("client", Spec(kind="no-retry", params={"timeout_s": 20})),
        **more,
    )


def closed_tenant(name: str, users: int, think_s: float = 0.0) -> Tenant:
    """A tenant whose users wait for their answers."""
    return Tenant(
        name=name,
        group=name,
        users=users,
        think_s=think_s,
        workload=Spec(kind="fixed", params={"input_tokens": 24, "output_tokens": 2}),
        client=Spec(kind="no-retry", params={"timeout_s": 20}),
    )


def profile(seconds: float, *tenants: Tenant, drain_s: float = 5.0) -> Profile:
    """One recorded phase."""
    return Profile(
        name="scene",
        about="a test",
        phases=(Phase(name="steady", seconds=seconds),),
        tenants=tenants,
        provider=ProviderConfig(),
        gateway=GatewayConfig(),
        checks=(Spec(kind="bounded-queue"),),
        drain_s=drain_s,
    )


def config(chosen: Profile, port: int, folder: Path, **more: Any) -> MasterConfig:
    """A run of the profile against the server at `port`."""
    return MasterConfig(
        profile=chosen.model_dump(mode="json", by_alias=True),
        seed=7,
        target=bundled(f"http://127.0.0.1:{port}").to_dict(),
        run_id=99,
        run_dir=str(folder),
        **more,
    )


def driver_for(chosen: MasterConfig) -> LiveDriver:
    """Not started yet."""
    return LiveDriver(chosen, Path(chosen.run_dir), os.environ)


def events_of(driver: LiveDriver) -> list[MasterEvent]:
    """All of them, without the ticks."""
    return [event for event in driver.events() if event is not None]


def records(folder: Path) -> list[RequestRecord]:
    """What was written."""
    lines: Iterable[bytes] = (folder / "records.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=RequestRecord) for line in lines]
