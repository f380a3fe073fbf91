"""Which constraint binds, and that it is the one that keeps the next in line waiting."""

from __future__ import annotations

from typing import Any

import pytest

from agentload.scheduler.binding import Binding
from agentload.scheduler.config import UpstreamLimits
from scheduler_kit import NS, Scene, gateway

NARROW, WIDE = {"capacity_units": 2.5}, {"tokens": 2_000}


def binds(scene: Scene) -> Binding | None:
    return scene.snapshot.classes["standard"].binding


def test_nothing_binds_while_nothing_waits() -> None:
    scene = Scene(gateway(slots=2))
    scene.submit("a")
    assert binds(scene) is None


@pytest.mark.parametrize(
    ("config", "submissions", "expected"),
    [
        ({"slots": 1}, [{}, {}], Binding.SLOTS),
        ({"slots": 4, "tenant_slots": 1}, [{}, {}], Binding.TENANT_CAP),
        ({"capacity_units": 2.5}, [{"tokens": 2_000}, {}], Binding.TOKENS),
        ({"capacity_units": 2.5}, [{"tokens": 2_000}, {"tokens": 100, "tool_calls": 4}], Binding.TOOL_CALLS),
        (
            {"capacity_units": 2.5},
            [{"tokens": 2_000}, {"tokens": 100, "tool_seconds": 9.0}],
            Binding.TOOL_SECONDS,
        ),
        (
            {"upstream": UpstreamLimits(tokens_per_minute=60_000, bucket_s=2, margin=0)},
            [{"tokens": 2_000}, {}],
            Binding.PROVIDER_TOKENS,
        ),
        (
            {"upstream": UpstreamLimits(requests_per_minute=60, bucket_s=1, margin=0)},
            [{}, {}],
            Binding.PROVIDER_REQUESTS,
        ),
    ],
)
def test_what_is_short_is_what_binds(
    config: dict[str, Any], submissions: list[dict[str, Any]], expected: Binding
) -> None:
    scene = Scene(gateway(**config))
    requests = [scene.submit("a", **fields) for fields in submissions]
    assert scene.fate(requests[-1]) == "waiting"
    assert binds(scene) is expected
    scene.end(requests[0])
    scene.pass_time(10 * NS)
    assert scene.fate(requests[-1]) == "dispatched"
    assert binds(scene) is None


def test_a_pause_of_the_provider_binds_before_its_limits() -> None:
    scene = Scene(gateway())
    first = scene.submit("a")
    scene.admission.provider_refused(scene.now_ns, first.id, 5 * NS)
    scene.submit("b")
    assert binds(scene) is Binding.PROVIDER_PAUSE
