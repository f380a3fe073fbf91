"""The provider's cycle collector waits until no call is in flight."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref

import pytest

from fake_provider.collector import IDLE_OBJECTS, collected_when_idle, look
from provider_helpers import ROOT


class Node:
    """Refers to itself: only the collector gets rid of it."""

    def __init__(self) -> None:
        self.me = self


async def left_over(in_flight: int) -> tuple[bool, list[list[None]]]:
    """Whether an unreachable cycle outlives a look, after many new objects."""
    async with collected_when_idle(lambda: in_flight):
        gone = weakref.ref(Node())
        many: list[list[None]] = [[] for _ in range(IDLE_OBJECTS)]
        look(in_flight)
        return gone() is not None, many


def test_cycles_are_collected_when_nobody_waits() -> None:
    assert asyncio.run(left_over(in_flight=0))[0] is False


def test_nobody_waits_for_the_collector() -> None:
    assert asyncio.run(left_over(in_flight=1))[0] is True


def test_python_gets_its_collector_back() -> None:
    asyncio.run(left_over(in_flight=0))
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


SERVE = """
import asyncio, gc, os, signal
from fake_provider.config import ProviderConfig
from fake_provider.core import Provider
from fake_provider.host import Host
from fake_provider.server import listen, serve

def ready():
    print(gc.isenabled(), gc.get_freeze_count() > 10_000)
    os.kill(os.getpid(), signal.SIGTERM)

async def main():
    await serve(Host(Provider(ProviderConfig())), listen("127.0.0.1", 0), ready=ready)

asyncio.run(main())
"""


@pytest.mark.live
def test_the_server_has_it_in_its_own_hands() -> None:
    done = subprocess.run([sys.executable, "-c", SERVE], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["False", "True"], done.stderr
