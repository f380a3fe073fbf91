"""The health page under flood and under faults of the gateway, in virtual time."""

from __future__ import annotations

from agentload import judge, mutants, profile
from agentload.checks.health_probe import HealthProbe
from agentload.drivers.simulated.parts import Parts
from agentload.evidence.health_samples import PATIENCE_NS, STATUS, TOOK_S, samples_of
from agentload.model import NS, Run, Status
from agentload.simulate import simulate

TEXT = """\
name: probed
about: A gateway that is held up or killed.
phases: [{name: load, seconds: 20}]
tenants:
  - name: app
    arrivals: {kind: constant, rate: 5}
    workload: {kind: fixed, input_tokens: 24, output_tokens: 10, max_tokens: 24}
checks: [CHECK]
faults: [FAULT]
"""


def played(fault: str, check: str = "health-probe") -> Run:
    return simulate(profile.parse(TEXT.replace("FAULT", fault).replace("CHECK", check), "probed.yaml"), 1)


def seen(run: Run) -> dict[float, tuple[float, float]]:
    """Second → status and seconds until it came."""
    return {one.at_ns / NS: (one.values[STATUS], one.values[TOOK_S]) for one in samples_of(run.samples)}


def overload(parts: Parts | None = None, seed: int = 1) -> dict[str, Status]:
    chosen = profile.quick(profile.load(profile.find("overload")))
    run = simulate(chosen, seed, parts=parts)
    return {verdict.check: verdict.status for verdict in judge.judge(run)}


def test_a_flood_is_not_felt_by_the_reference() -> None:
    assert overload()["health-probe"] is Status.PASSED


def test_a_page_that_counts_against_the_limit_is_found_out_and_by_nobody_else() -> None:
    for seed in (1, 2, 3):
        failed = [
            name
            for name, status in overload(mutants.parts_of("health-page-is-limited"), seed).items()
            if status is Status.FAILED
        ]
        assert failed == ["health-probe"]


def test_it_is_asked_once_a_second_where_a_check_wants_to_know() -> None:
    probes = seen(played(""))
    assert list(probes) == list(range(1, 21))
    assert set(probes.values()) == {(200.0, 0.0002)}
    assert not seen(played("", check="status-codes"))


def test_one_that_was_killed_refuses_and_is_excused_by_the_fault() -> None:
    run = played("{kind: gateway-kill, at_s: 4.5, restart_after_s: 2}")
    probes = seen(run)
    assert [second for second, (status, _) in probes.items() if status == 0] == [5, 6]
    assert HealthProbe().judge(run).status is Status.PASSED


def test_one_that_stands_still_answers_late_or_not_in_time() -> None:
    probes = seen(played("{kind: gateway-pause, at_s: 4.5, seconds: 2}"))
    assert probes[5] == (200.0, 1.5001)
    assert 6 not in probes
    assert probes[7] == (200.0, 0.0002)
    run = played("{kind: gateway-pause, at_s: 4.5, seconds: 8}")
    assert seen(run)[5] == (0.0, PATIENCE_NS / NS)
    assert seen(run)[10] == (200.0, 2.5001)
    verdict = HealthProbe().judge(run)
    assert (verdict.status, verdict.n) == (Status.INCONCLUSIVE, 8), "too few are left that nothing explains"
