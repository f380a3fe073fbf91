"""Shuffle-sharded queues: state for queues and not for tenants, and a mouse beside an elephant."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError

from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig, ShuffleConfig, TenantConfig
from agentload.scheduler.shards import ShuffleShards
from agentload.scheduler.tenants import TenantLane
from scheduler_kit import AMPLE, MS, Scene

ROOMY: dict[str, Any] = {"max_queue": AMPLE, "tenant_max_queue": AMPLE, "max_wait_s": 1e6}


def sharded(*, queues: int = 32, hand: int = 4, slots: int = 16, **tenants: TenantConfig) -> Scene:
    """One class over shared queues."""
    config = PoolConfig(
        capacity_units=1e6,
        slots=slots,
        tenant_slots=slots,
        shuffle_shards=ShuffleConfig(queues=queues, hand=hand),
        classes={"standard": ClassConfig(**ROOMY)},
    )
    return Scene(GatewayConfig(pools={"pool": config}, tenants=tenants))


def lanes(scene: Scene) -> dict[str, TenantLane]:
    """What the class keeps."""
    return scene.admission._classes["standard"].queue.lanes


def test_a_hand_holds_different_queues_and_all_queues_are_dealt_alike() -> None:
    shards = ShuffleShards(ShuffleConfig(queues=16, hand=4))
    seen: Counter[int] = Counter()
    for number in range(4_000):
        hand = shards.hand(f"tenant-{number}")
        assert len(set(hand)) == 4
        seen.update(hand)
    assert sorted(seen) == list(range(16))
    assert max(seen.values()) < 1.15 * min(seen.values())


def test_a_hand_depends_on_the_name_and_the_seed_and_on_nothing_else() -> None:
    code = (
        "from agentload.scheduler.config import ShuffleConfig as C\n"
        "from agentload.scheduler.shards import ShuffleShards as S\n"
        "print(S(C()).hand('acme'), S(C(seed=1)).hand('acme'), S(C()).hand('acme.'))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    first, other_seed, other_name = said.pop().replace("] [", "]|[").strip().split("|")
    assert len({first, other_seed, other_name}) == 3


def test_state_is_bounded_by_the_queues_however_many_tenants_come() -> None:
    scene = sharded(queues=32)
    for number in range(3_000):
        scene.submit(f"once-{number}", 100)
        if len(scene.running) == 16:
            scene.now_ns += MS
            scene.end(next(iter(scene.running.values())))
        assert len(lanes(scene)) <= 32
    assert len(scene.snapshot.tenants) <= 32


def starts_before_the_mouse(queues: int, hand: int) -> int:
    """Calls of an elephant with 400 waiting that start before that of a mouse which comes last."""
    scene = sharded(queues=queues, hand=hand, slots=4)
    for _ in range(404):
        scene.submit("elephant", 1000)
    mouse = scene.submit("mouse", 1000)
    ended = 0
    while scene.fate(mouse) == "waiting":
        scene.now_ns += MS
        scene.end(next(iter(scene.running.values())))
        ended += 1
    return ended


def test_a_mouse_passes_an_elephant_that_shares_only_a_part_of_its_hand() -> None:
    assert starts_before_the_mouse(queues=32, hand=4) <= 4
    assert starts_before_the_mouse(queues=1, hand=1) == 401, "in one queue it waits behind all of them"


def test_a_tenant_with_a_contract_has_a_queue_of_its_own() -> None:
    scene = sharded(gold=TenantConfig(weight=5), held=TenantConfig(slots=1), plain=TenantConfig())
    for tenant in ("gold", "held", "plain", "stranger"):
        for _ in range(8):
            scene.submit(tenant, 1000)
    kept = lanes(scene)
    assert {"gold", "held"} <= set(kept)
    assert kept["gold"].weight == 5
    assert not {"plain", "stranger"} & set(kept)
    assert sum(r.tenant == "held" for r in scene.running.values()) == 1


def test_by_default_one_tenants_queues_together_hold_half_of_what_there_is() -> None:
    pool = PoolConfig(
        slots=24,
        shuffle_shards=ShuffleConfig(queues=64, hand=4),
        classes={"standard": ClassConfig(max_queue=80)},
    )
    scene = Scene(GatewayConfig(pools={"pool": pool}))
    for _ in range(100):
        scene.submit("elephant", 1000)
    assert len(scene.running) == 12
    assert scene.snapshot.waiting == 40
    assert scene.fate(scene.submit("mouse", 1000)) == "dispatched"


def test_a_hand_larger_than_the_deck_is_a_mistake() -> None:
    with pytest.raises(ValidationError, match="cannot be dealt from 4 queues"):
        ShuffleConfig(queues=4, hand=5)
