"""The same seed is the same run: in every process, whatever the hash seed, down to the last event."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from agentload import plan, profile
from agentload.model import Profile
from agentload.simulate import simulate

SHORT = ["phases.baseline.seconds=2", "phases.noise.seconds=2", "phases.recovery.seconds=2"]
PROGRAM = """
import sys
from agentload import profile
from agentload.simulate import simulate
run = simulate(profile.load(profile.find("noisy-neighbor"), sys.argv[2:]), int(sys.argv[1]))
print(run.meta["digest"], run.plan.fingerprint)
"""


def short() -> Profile:
    return profile.load(profile.find("noisy-neighbor"), SHORT)


def digest_elsewhere(seed: int, hash_seed: str) -> str:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PROGRAM, str(seed), *SHORT]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.split()[0]


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_the_digest_is_the_same_in_every_process(hash_seed: str) -> None:
    assert digest_elsewhere(3, hash_seed) == simulate(short(), 3).meta["digest"]


def test_everything_recorded_is_the_same_again() -> None:
    first, second = simulate(short(), 1), simulate(short(), 1)
    assert first.meta == second.meta
    assert (first.records, first.ledger, first.samples) == (second.records, second.ledger, second.samples)


def test_another_seed_is_another_run() -> None:
    assert simulate(short(), 1).meta["digest"] != simulate(short(), 2).meta["digest"]


def test_another_policy_is_another_run_of_the_same_demand() -> None:
    sfq, fifo = simulate(short(), 1), simulate(short(), 1, policy="fifo")
    assert sfq.plan.fingerprint == fifo.plan.fingerprint
    assert sfq.meta["digest"] != fifo.meta["digest"]
    assert fifo.profile.gateway.policy == "fifo"


def test_another_tenant_leaves_the_arrivals_of_the_others_as_they_were() -> None:
    before = short()
    newcomer = before.tenants[0].model_copy(update={"name": "newcomer", "group": "newcomer"})
    after = before.model_copy(update={"tenants": (newcomer, *before.tenants)})

    def arrivals(of: Profile, tenant: str) -> list[tuple[int, object]]:
        return [(one.due_ns, one.job) for one in plan.draw(of, 1).arrivals if one.tenant == tenant]

    for tenant in before.tenants:
        assert arrivals(before, tenant.name) == arrivals(after, tenant.name)
    assert arrivals(after, "newcomer")
