"""What is held against a gateway of the probes of its health page, and what is not."""

from __future__ import annotations

import msgspec
import pytest

from agentload import judge
from agentload.checks import Need, needs_of
from agentload.checks.health_probe import HealthProbe
from agentload.evidence.health_samples import EVERY_NS, next_due_ns, sample, samples_of
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.explain import explain
from agentload.model import NS, Fault, Run, Severity, Spec, Stall, Status

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE
WELL = (200, 2)


def probed(*at: tuple[int, int, int], faults: tuple[Fault, ...] = (), stalls: tuple[Stall, ...] = ()) -> Run:
    """A probe a second for thirty seconds, well but for those of (second, status, took in ms)."""
    told = {second: (status, took_ms) for second, status, took_ms in at}
    phases = {"warm-up": 5.0, "calm": 10.0, "flood": 15.0}
    of = profile(phases=phases, checks=[Spec(kind="health-probe")]).model_copy(update={"faults": faults})
    build = RunBuilder(of)
    for second in range(30):
        build.answered("a", 1_000 * second)
        status, took_ms = told.get(second, WELL)
        build.samples.append(sample(second * NS, second * NS + took_ms * MS, status))
    run = build.run()
    run.health.stalls.extend(stalls)
    return run


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        ((20, 503, 2), "1 of 25 (4.0 %) probes of the health page failed: 1 × answered 503"),
        ((20, 429, 2), "1 × answered 429"),
        ((20, 302, 2), "1 × answered 302"),
        ((20, 0, 2), "1 × connection refused or broken"),
        ((20, 0, 5_000), "1 × no answer within 1 s"),
        ((20, 200, 1_001), "1 × no answer within 1 s"),
    ],
)
def test_one_probe_that_fails_is_one_too_many(probe: tuple[int, int, int], said: str) -> None:
    verdict = HealthProbe().judge(probed(probe))
    assert (verdict.status, verdict.measured, verdict.bound) == (FAILED, 1, 0)
    assert said in verdict.because
    assert [one.at_ns for one in verdict.evidence] == [20 * NS]


def test_a_page_that_hangs_is_asked_less_often_and_fails_all_the_same() -> None:
    run = probed()
    hangs = [sample(second * NS, (second + 5) * NS, 0) for second in range(5, 30, 5)]
    verdict = HealthProbe().judge(msgspec.structs.replace(run, samples=hangs))
    assert (verdict.status, verdict.measured, verdict.n) == (FAILED, 5, 5)
    assert HealthProbe().judge(msgspec.structs.replace(run, samples=hangs[:1])).status is INCONCLUSIVE


def test_an_answer_in_time_is_no_failure_and_the_slowest_is_told() -> None:
    verdict = HealthProbe().judge(probed((20, 200, 1_000), (21, 204, 3)))
    assert (verdict.status, verdict.details["slowest_ms"], verdict.details["median_ms"]) == (PASSED, 1_000, 2)
    assert verdict.because == "the health page answered each of 25 times, within 1.00 s"
    assert HealthProbe(within_s=0.5).judge(probed((20, 200, 1_000))).status is FAILED


def test_only_the_phases_that_count_are_judged() -> None:
    assert HealthProbe().judge(probed((3, 503, 2))).status is PASSED, "a warm-up"
    calm = probed((8, 503, 2))
    assert HealthProbe().judge(calm).status is FAILED
    assert HealthProbe(phases=("flood",)).judge(calm).status is PASSED


@pytest.mark.parametrize("kind", ["gateway-kill", "gateway-pause"])
def test_what_a_fault_of_the_profile_does_to_the_gateway_is_not_its_own(kind: str) -> None:
    fault = Fault(kind=kind, at_s=10.5, seconds=2)
    touched = [(10, 0, 700), (12, 0, 1), (15, 0, 1)]  # it was asked just before; then within 3 s after
    assert HealthProbe().judge(probed(*touched, faults=(fault,))).status is PASSED
    assert HealthProbe(grace_s=1).judge(probed(*touched, faults=(fault,))).status is FAILED
    assert HealthProbe().judge(probed((16, 0, 1), faults=(fault,))).status is FAILED
    theirs = Fault(kind="outage", at_s=10, seconds=5)
    assert HealthProbe().judge(probed((12, 0, 1), faults=(theirs,))).status is FAILED, "of the provider"


def test_a_machine_that_stood_still_says_nothing_of_the_gateway() -> None:
    stall = Stall(start_ns=20 * NS + 500 * MS, end_ns=22 * NS, where="worker")
    assert HealthProbe().judge(probed((20, 200, 1_600), stalls=(stall,))).status is PASSED
    assert HealthProbe().judge(probed((18, 200, 1_600), stalls=(stall,))).status is FAILED


def test_where_all_is_excused_nothing_is_known() -> None:
    verdict = HealthProbe().judge(probed(faults=(Fault(kind="gateway-pause", at_s=8, seconds=20),)))
    assert (verdict.status, verdict.n) == (INCONCLUSIVE, 3)
    assert "at least 10 are needed" in verdict.because


def test_a_target_that_names_no_health_page_is_not_judged_and_fails_no_run() -> None:
    check = msgspec.structs.replace(probed(), samples=[], health_page=False)
    [verdict] = judge.judge(check)
    assert (verdict.status, verdict.severity) == (INCONCLUSIVE, Severity.SHOULD)
    assert verdict.because.endswith("so none was asked: say `health: /healthz` in its file")
    [own] = judge.judge(msgspec.structs.replace(check, health_page=True))
    assert (own.status, own.severity) == (INCONCLUSIVE, Severity.MUST), "of the bundled one it is known"


def test_a_probe_is_due_every_second_and_never_two_at_once() -> None:
    assert next_due_ns(5, 5) == next_due_ns(5, 5 + EVERY_NS) == 5 + EVERY_NS
    assert next_due_ns(5, 6 + EVERY_NS) == 5 + 2 * EVERY_NS


def test_other_samples_are_none_of_its_business() -> None:
    run = probed()
    run.samples.append(msgspec.structs.replace(run.samples[0], source="gateway", values={"waiting": 3.0}))
    assert len(samples_of(run.samples)) == 30
    assert HealthProbe().judge(run).status is PASSED


def test_a_run_asks_where_a_check_wants_to_know() -> None:
    assert needs_of([Spec(kind="status-codes")]) == frozenset()
    assert Need.HEALTH_PAGE in needs_of([Spec(kind="status-codes"), Spec(kind="health-probe")])
    assert "of somebody's gateway, health in its target file" in explain("health-probe")
