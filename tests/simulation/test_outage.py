"""What the provider sees of the gateway while it is away, and when it is back."""

from __future__ import annotations

import pytest

from agentload import mutants, profile
from agentload.drivers.simulated.parts import Parts
from agentload.model import NS, Run
from agentload.mutants._scenes_provider import SILENT_OUTAGE
from agentload.simulate import simulate

TOLD = SILENT_OUTAGE.replace(
    "{kind: outage, phase: outage}", "{kind: outage, phase: outage, retry_after_s: 4}"
)
HAMMERS = mutants.parts_of("outage-is-hammered")


def calls(run: Run, start_s: float, end_s: float) -> int:
    """That reached the provider so long after the outage's end."""
    end_ns = run.profile.phase_window_ns("outage")[1]
    return sum(start_s * NS <= call.arrived_ns - end_ns < end_s * NS for call in run.ledger)


@pytest.mark.parametrize("scene", [SILENT_OUTAGE, TOLD], ids=["silent", "told"])
def test_the_end_of_an_outage_is_a_ramp(scene: str) -> None:
    run = simulate(profile.parse(scene, "outage.yaml"), 1)
    assert calls(run, -4, 0) <= 30, "a probe now and then"
    first, later = calls(run, 0, 0.25), calls(run, 1.5, 1.75)
    assert first <= 4
    assert later >= 10, "by then as many as ever: sixteen take a quarter of a second"


@pytest.mark.parametrize("scene", [SILENT_OUTAGE, TOLD], ids=["silent", "told"])
def test_without_a_window_it_is_a_stampede(scene: str) -> None:
    run = simulate(profile.parse(scene, "outage.yaml"), 1, parts=HAMMERS)
    assert calls(run, 0, 0.25) >= 12 or calls(run, -4, 0) >= 200


def test_second_calls_are_a_tenth_of_all_however_many_fail() -> None:
    run = simulate(profile.parse(SILENT_OUTAGE, "outage.yaml"), 1, parts=Parts())
    attempts = {(call.seq, call.attempt) for call in run.ledger}
    assert 1 <= len(run.ledger) - len(attempts) <= 0.1 * len(attempts) + 3
