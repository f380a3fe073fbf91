"""All that a provider does to its callers: the reference is back after each, broken gateways are not."""

from __future__ import annotations

import pytest

from agentload import judge, mutants, profile
from agentload.drivers.simulated.parts import Parts
from agentload.model import CallEnding, Run, Status
from agentload.simulate import simulate

PHASES = ("throttled", "away", "errors", "silent", "tokens-cut")
QUICK = profile.quick(profile.load(profile.find("provider-outage")))


def played(parts: Parts | None = None) -> Run:
    return simulate(QUICK, 1, parts=parts)


def failed(run: Run) -> set[str]:
    """Checks that fail; of `recovery` with the phase that they speak of."""
    verdicts = zip(run.profile.checks, judge.judge(run), strict=True)
    return {
        f"{spec.kind} {spec.params.get('after', '')}".strip()
        for spec, verdict in verdicts
        if verdict.status is Status.FAILED
    }


def test_the_reference_is_back_after_each_of_them_and_each_has_happened() -> None:
    run = played()
    assert {verdict.status for verdict in judge.judge(run)} == {Status.PASSED}
    assert {call.reason for call in run.ledger} >= {"slow-down", "truncate", "error-in-stream", "reset"}
    hit = {name: [call for call in run.ledger if within(run, name, call.arrived_ns)] for name in PHASES}
    assert {call.status for call in hit["throttled"]} >= {429}
    assert {call.status for call in hit["away"]} >= {503}
    assert {call.status for call in hit["errors"]} >= {200, 500}
    assert any(call.ending is CallEnding.THROTTLED for call in hit["tokens-cut"])
    _, end_ns = run.profile.phase_window_ns("silent")
    assert min(call.ended_ns or 0 for call in hit["silent"]) >= end_ns, "no token moved"


def within(run: Run, phase: str, at_ns: int) -> bool:
    start_ns, end_ns = run.profile.phase_window_ns(phase)
    return start_ns <= at_ns < end_ns


@pytest.mark.parametrize(
    ("mutant", "noticed"),
    [
        ("broken-stream-ends-well", "stream-integrity"),
        ("provider-retry-after-ignored", "upstream-retry-after"),
        ("failed-calls-keep-their-slot", "recovery after-errors"),
        ("nested-retries", "retry-amplification"),
    ],
)
def test_a_gateway_without_a_safeguard_is_found_out(mutant: str, noticed: str) -> None:
    assert noticed in failed(played(mutants.parts_of(mutant)))
