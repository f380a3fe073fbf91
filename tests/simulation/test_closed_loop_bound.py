"""A closed loop that is refused at once asks again and again: that ends with a line, not with the memory."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from agentload import plan, profile, progress
from agentload.drivers.simulated.recording import Recording
from agentload.errors import UsageError

PROFILE = """
name: closed
about: many users, a queue of one
phases: [{name: steady, seconds: 20}]
provider: {slots: 1}
gateway: {pools: {shared: {slots: 1, classes: {standard: {max_queue: 1}}}}}
tenants:
  - {name: c, users: 50, workload: {kind: fixed}, client: {kind: no-retry}}
checks: [status-codes]
"""


def test_closed_loops_are_bounded(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("closed") / "closed.yaml"
    file.write_text(PROFILE)
    chosen = profile.load(file)
    recording = Recording(chosen, plan.draw(chosen, 1))
    clients = recording.world.clients
    clients.demand = replace(clients.demand, max_closed_jobs=300)
    with pytest.raises(UsageError, match=r"50 users of closed loops have sent 300 requests by 0\.\d s"):
        recording.record()
    assert clients.scheduled == 300


def test_progress_is_told_until_it_is_over() -> None:
    told: list[int] = []
    enough = threading.Event()

    def say() -> None:
        told.append(1)
        if len(told) == 3:
            enough.set()

    with progress.told(say, every_s=0.001):
        assert enough.wait(5)
    before = len(told)
    assert before >= 3
    assert not [one for one in threading.enumerate() if one.name == "progress"]
