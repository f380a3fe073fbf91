"""What the judge makes of runs that may not be believed."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentload.checks import SEAM, WithoutLedger
from agentload.evidence.history import without_windows
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.judge import judge, overall
from agentload.model import (
    NS,
    CallEnding,
    LedgerEntry,
    Outcome,
    Run,
    Sample,
    Severity,
    Spec,
    Stall,
    Status,
    Verdict,
)

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE


def with_checks(run: Run, *checks: Spec | str) -> Run:
    specs = tuple(Spec(kind=c) if isinstance(c, str) else c for c in checks)
    return msgspec.structs.replace(run, profile=run.profile.model_copy(update={"checks": specs}))


def one(run: Run, check: Spec | str) -> Verdict:
    (verdict,) = judge(with_checks(run, check))
    return verdict


def wired(run: Run) -> Run:
    """With one call of another request at the provider: it is behind the gateway, whatever was refused."""
    if not run.ledger:
        run.ledger = [LedgerEntry(call=0, arrived_ns=0, ending=CallEnding.FAULTED, tenant="a", seq=10**6)]
    return run


def example(name: str) -> Run:
    return wired(SEAM.get(name).example()[1])


def counterexample(name: str) -> tuple[Run, Spec]:
    check, run = SEAM.get(name).counterexample()
    run = wired(run)
    return run, Spec(kind=name, params=check.model_dump(mode="json", exclude_defaults=True))


def untrustworthy(run: Run, reason: str = "requests were sent late") -> Run:
    health = msgspec.structs.replace(run.health, trustworthy=False, reasons=[reason])
    return msgspec.structs.replace(run, health=health)


# ---------------------------------------------------------------------------------- the plain case


def test_every_check_of_the_profile_is_judged_in_order_under_its_own_name_and_severity() -> None:
    build = RunBuilder(profile())
    build.refused("a", 0)
    specs = [
        Spec(kind="retry-after-syntax", params={"severity": "should"}),
        Spec(kind="retry-after-present"),
        Spec(kind="own-answer"),
    ]
    verdicts = judge(with_checks(wired(build.run()), *specs))
    assert [(v.check, v.severity, v.status) for v in verdicts] == [
        ("retry-after-syntax", Severity.SHOULD, PASSED),
        ("retry-after-present", Severity.MUST, PASSED),
        ("own-answer", Severity.MUST, INCONCLUSIVE),
    ]


@pytest.mark.parametrize("name", SEAM.names())
def test_the_judge_agrees_with_every_check_where_there_is_nothing_to_doubt(name: str) -> None:
    run, spec = counterexample(name)
    verdict = one(run, spec)
    assert verdict.status is FAILED, verdict.because
    assert one(example(name), spec).status is PASSED


def verdict_of(status: Status, severity: Severity = Severity.MUST) -> Verdict:
    return Verdict(check="x", status=status, because="", severity=severity)


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([], INCONCLUSIVE),
        ([verdict_of(PASSED)], PASSED),
        ([verdict_of(PASSED), verdict_of(FAILED, Severity.SHOULD)], PASSED),
        ([verdict_of(PASSED), verdict_of(INCONCLUSIVE)], INCONCLUSIVE),
        ([verdict_of(INCONCLUSIVE), verdict_of(FAILED), verdict_of(PASSED)], FAILED),
        ([verdict_of(PASSED, Severity.SHOULD)], INCONCLUSIVE),
    ],
)
def test_the_worst_of_what_must_hold_decides(verdicts: list[Verdict], status: Status) -> None:
    assert overall(verdicts) is status


# ------------------------------------------------------------------- checks that cannot be judged


def test_a_check_that_crashes_is_inconclusive_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "always_crashes.py").write_text(
        "from agentload.checks import Check\n"
        "from agentload.checks.own_answer import OwnAnswer as _OwnAnswer\n"
        "class AlwaysCrashes(_OwnAnswer):\n"
        "    def judge(self, run):\n"
        "        raise ZeroDivisionError('by\\nzero')\n"
    )
    monkeypatch.setenv("AGENTLOAD_PLUGINS", str(tmp_path))
    crashed, other = judge(with_checks(example("own-answer"), "always-crashes", "own-answer"))
    assert (crashed.check, crashed.status) == ("always-crashes", INCONCLUSIVE)
    assert "ZeroDivisionError: by" in crashed.because
    assert "\n" not in crashed.because
    assert other.status is PASSED


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (Spec(kind="victim-latenzy"), "did you mean 'victim-latency'"),
        (Spec(kind="victim-latency", params={"max_ratio": 0.5}), "max_ratio"),
        (Spec(kind="victim-latency", params={"max_ration": 3}), "max_ration"),
    ],
)
def test_a_check_that_cannot_be_made_is_inconclusive(spec: Spec, says: str) -> None:
    verdict = one(example("victim-latency"), spec)
    assert verdict.status is INCONCLUSIVE
    assert says in verdict.because


def test_without_our_ledger_the_checks_that_rest_on_it_are_inconclusive() -> None:
    run, spec = counterexample("bounded-queue")
    run.ledger_available, run.ledger = False, []
    verdict = one(run, spec)
    assert verdict.status is INCONCLUSIVE
    assert "provider's ledger" in verdict.because
    assert one(run, "retry-after-present").check == "retry-after-present"


def test_a_provider_that_saw_nothing_is_a_wiring_error_not_a_perfect_gateway() -> None:
    run = example("provider-limit")
    run.ledger = []
    verdict = one(run, "provider-limit")
    assert verdict.status is INCONCLUSIVE
    assert "upstream" in verdict.because


def never_reached(status: int) -> Run:
    """A gateway whose upstream is somebody else's answers everything itself."""
    build = RunBuilder(profile(checks=[Spec(kind=name) for name in SEAM.names()]))
    for k in range(100):
        build.refused("a" if k % 2 else "b", 50 * k, status=status, retry_after="2")
    return build.run()


@pytest.mark.parametrize("status", [502, 503])
def test_a_run_in_which_nothing_reached_the_provider_passes_nothing(status: int) -> None:
    found = judge(never_reached(status))
    unserved = "none of the 100 requests was answered and our provider saw none of them"
    for verdict in found:
        assert verdict.status is not PASSED
        if verdict.status is INCONCLUSIVE:
            assert verdict.because.startswith(unserved), verdict.check
        else:
            assert SEAM.get(verdict.check).zero_tolerance
    assert {v.check: v.status for v in found}["no-starvation"] is INCONCLUSIVE, "not the gateway's doing"


def test_where_the_provider_saw_something_or_is_not_ours_the_checks_decide() -> None:
    run = never_reached(503)
    run.ledger_available = False
    assert one(run, "retry-after-present").status is PASSED
    assert one(wired(never_reached(503)), "retry-after-present").status is PASSED
    assert one(wired(never_reached(503)), "no-starvation").status is FAILED


@pytest.mark.parametrize(("strays", "status"), [(1, PASSED), (3, INCONCLUSIVE)])
def test_more_than_one_percent_of_calls_without_an_owner_decide_nothing(strays: int, status: Status) -> None:
    run = example("bounded-queue")  # about 120 calls
    run.unattributed = strays
    verdict = one(run, Spec(kind="bounded-queue", params={"max_depth": 50}))
    assert verdict.status is status
    assert one(run, "provider-limit").because.startswith("the profile's provider"), "it needs no owners"


# -------------------------------------------------------------------------------- a bad generator


@pytest.mark.parametrize("name", ["victim-latency", "weighted-share", "refusal-latency", "no-starvation"])
def test_a_bad_generator_voids_failures_of_time_and_share(name: str) -> None:
    run, spec = counterexample(name)
    verdict = one(untrustworthy(run), spec)
    assert verdict.status is INCONCLUSIVE
    assert verdict.because.startswith(
        "void, because the load was not generated as planned (requests were sent late)"
    )
    assert "otherwise it would have failed" in verdict.because
    assert verdict.details["would_have"] == "failed"
    assert verdict.measured is not None, "the numbers stay"


@pytest.mark.parametrize("name", SEAM.names())
def test_a_bad_generator_lets_nothing_pass(name: str) -> None:
    _, spec = counterexample(name)
    assert one(untrustworthy(example(name)), spec).status is INCONCLUSIVE


@pytest.mark.parametrize("name", [n for n in SEAM.names() if SEAM.get(n).zero_tolerance])
def test_nothing_erases_a_failure_of_zero_tolerance(name: str) -> None:
    run, spec = counterexample(name)
    run = untrustworthy(run)
    run.health.stalls = [Stall(start_ns=0, end_ns=60 * NS, where="worker")]
    run.interrupted = "Ctrl-C"
    assert one(run, spec).status is FAILED


def test_the_checks_of_zero_tolerance_are_the_ones_the_catalogue_names() -> None:
    found = {name for name in SEAM.names() if SEAM.get(name).zero_tolerance}
    assert found >= {"retry-after-syntax", "status-codes", "own-answer", "stream-integrity"}
    assert not found & {"victim-latency", "weighted-share", "service-gap", "refusal-latency", "no-starvation"}


def test_a_queue_beyond_its_bound_stands_whatever_the_load_was() -> None:
    run, spec = counterexample("bounded-queue")
    assert one(untrustworthy(run), spec).status is FAILED


def test_a_generator_stopped_by_a_gateway_that_holds_everything_is_evidence() -> None:
    run, _ = counterexample("bounded-queue")
    run.health.capped, run.health.in_flight_cap = 500, 120
    verdict = one(
        untrustworthy(run, "500 requests were not sent"),
        Spec(kind="bounded-queue", params={"max_depth": 9_000}),
    )
    assert verdict.status is FAILED
    assert "cap of 120" in verdict.because


# -------------------------------------------------------------------------------------- lateness


def slow_sends(run: Run, tenants: Iterable[str], phase: str, late_ms: float) -> Run:
    """The generator sent later than it should have; the gateway answered as quickly as ever."""
    for record in run.records:
        if record.tenant in tenants and record.phase == phase:
            record.due_ns -= round(late_ms * MS)
            record.first_due_ns -= round(late_ms * MS)
    return run


def test_a_failure_made_by_the_generators_lateness_decides_nothing() -> None:
    run = slow_sends(example("victim-latency"), ("quiet-1", "quiet-2"), "noise", 100)
    verdict = one(run, "victim-latency")
    assert verdict.status is INCONCLUSIVE
    assert "lateness decides" in verdict.because
    assert "would have failed" in verdict.because


def test_a_pass_made_by_the_generators_lateness_decides_nothing() -> None:
    run, spec = counterexample("victim-latency")
    run = slow_sends(run, ("quiet-1", "quiet-2"), "baseline", 200)  # baseline 250 ms, noise 400 ms: 1.6 ×
    verdict = one(run, spec)
    assert verdict.status is INCONCLUSIVE
    assert "would have passed" in verdict.because


def test_lateness_that_changes_nothing_is_no_matter() -> None:
    run = slow_sends(example("victim-latency"), ("quiet-1", "quiet-2", "flood"), "noise", 2)
    assert one(run, "victim-latency").status is PASSED
    run, spec = counterexample("victim-latency")
    assert one(slow_sends(run, ("quiet-1",), "noise", 2), spec).status is FAILED


# ------------------------------------------------------------------------------------- the machine


def stalled(slow: int) -> Run:
    """The victims' requests are slow in one stretch of the noise, in which the machine stood still."""
    build = RunBuilder(
        profile(
            phases={"baseline": 10.0, "noise": 10.0},
            tenants={"quiet": 1.0, "flood": 1.0},
            only={"flood": ("noise",)},
        )
    )
    for k in range(100):
        build.answered("quiet", 90 * k)
        build.answered("quiet", 10_000 + 90 * k, service_ms=900 if 40 <= k < 40 + slow else 50)
        build.answered("flood", 10_000 + 90 * k, wait_ms=300)
    run = build.run()
    run.health.stalls = [Stall(start_ns=13_600 * MS, end_ns=14_600 * MS, where="gateway")]
    return run


def test_a_failure_that_only_a_stall_explains_decides_nothing() -> None:
    run = stalled(slow=8)  # 8 of 100 slow, all of them in the stall
    verdict = one(run, "victim-latency")
    assert verdict.status is INCONCLUSIVE
    assert "stood still once, for 1.00 s" in verdict.because
    run.health.stalls = []
    assert one(run, "victim-latency").status is FAILED


def test_a_failure_that_stands_without_the_stall_stands() -> None:
    assert one(stalled(slow=40), "victim-latency").status is FAILED


def test_a_pass_that_a_stall_does_not_touch_passes() -> None:
    run = stalled(slow=0)
    run.health.stalls = [Stall(start_ns=19_500 * MS, end_ns=19_600 * MS, where="worker")]
    assert one(run, "victim-latency").status is PASSED


def test_a_pass_that_a_stall_can_only_have_made_harder_stands() -> None:
    check, run = SEAM.get("bounded-queue").example()
    whole = (0, run.profile.duration_ns)
    run.health.stalls = [Stall(start_ns=whole[0], end_ns=whole[1], where="worker")]
    assert check.judge(without_windows(run, [whole])).status is INCONCLUSIVE
    assert one(run, Spec(kind="bounded-queue", params=check.model_dump(mode="json"))).status is PASSED


def test_a_run_that_was_one_long_stall_decides_nothing() -> None:
    run = stalled(slow=40)
    run.health.stalls = [Stall(start_ns=0, end_ns=30 * NS, where="worker")]
    assert one(run, "victim-latency").status is INCONCLUSIVE


def test_nothing_that_waited_before_the_stall_is_blamed_for_it() -> None:
    """A request sent before the stall and answered after it goes too, however quick the rest was."""
    run = stalled(slow=0)
    for record in run.records:
        if record.tenant == "quiet" and 13_400 * MS < record.sent_ns < 14_600 * MS:
            record.ended_ns = 14_640 * MS
    assert one(run, "victim-latency").status is INCONCLUSIVE


# ----------------------------------------------------------------------------------- interruptions


def interrupted(run: Run, at_ms: float) -> Run:
    run.records = [r for r in run.records if r.ended_ns <= at_ms * MS]
    run.ledger = [c for c in run.ledger if c.arrived_ns <= at_ms * MS]
    run.interrupted = "Ctrl-C"
    return run


def test_a_pass_needs_the_phases_it_speaks_of() -> None:
    verdict = one(interrupted(example("victim-latency"), 19_000), "victim-latency")
    assert verdict.status is INCONCLUSIVE
    assert "before 'noise' did" in verdict.because
    assert "Ctrl-C" not in verdict.because, "said once, of the run"


def test_a_failure_stands_on_what_there_was() -> None:
    run, spec = counterexample("victim-latency")
    assert one(interrupted(run, 18_500), spec).status is FAILED


def test_phases_that_were_completed_may_pass() -> None:
    build = RunBuilder(profile(phases={"load": 5.0, "rest": 60.0}))
    for k in range(60):
        build.answered("a", 100 * k, wait_ms=20)
    run = build.run()
    run.interrupted = "Ctrl-C"
    assert one(run, Spec(kind="no-starvation", params={"phases": ["load"]})).status is PASSED
    assert one(run, "no-starvation").status is INCONCLUSIVE


def stopped_early(run: Run, at_ms: float) -> Run:
    """As the driver leaves it: what was due later is there as never sent, and the generator says so."""
    for record in run.records:
        if record.due_ns > at_ms * MS:
            record.outcome, record.reason = Outcome.UNSENT, "stopped-early"
            record.sent_ns = record.ended_ns = record.due_ns
    run.ledger = [c for c in run.ledger if c.arrived_ns <= at_ms * MS]
    run.interrupted = "interrupted by the user"
    return run


def test_the_run_ends_with_what_was_sent_not_with_what_was_not() -> None:
    run = stopped_early(example("victim-latency"), 17_000)
    verdict = one(run, "victim-latency")
    assert verdict.status is INCONCLUSIVE
    assert verdict.because.startswith("the run ended at 17."), verdict.because
    assert ", before 'noise' did: run it again; otherwise it would have passed" in verdict.because
    assert "workers" not in verdict.because


def test_a_phase_that_was_cut_is_cut_though_its_last_answers_came_after_its_end() -> None:
    run = stopped_early(example("victim-latency"), 18_500)
    run.samples.append(Sample(at_ns=21 * NS, source="gateway", values={}))
    assert "before 'noise' did" in one(run, "victim-latency").because


def test_who_interrupted_the_run_is_not_told_to_use_more_workers() -> None:
    run, spec = counterexample("victim-latency")
    verdict = one(untrustworthy(stopped_early(run, 18_500), "900 requests were not sent"), spec)
    assert verdict.status is INCONCLUSIVE
    assert verdict.because.startswith("the run ended at 18.")
    assert "cannot be trusted (900 requests were not sent): run it again; otherwise" in verdict.because
    assert "workers" not in verdict.because


def test_requests_that_the_interruption_cut_off_are_not_held_against_the_gateway() -> None:
    run = example("victim-latency")
    for record in run.records:
        if record.tenant.startswith("quiet") and record.sent_ns >= 18_000 * MS:
            record.outcome, record.ended_ns = Outcome.UNFINISHED, 20_000 * MS
    assert one(run, "victim-latency").status is FAILED
    run.interrupted = "Ctrl-C"
    assert one(run, "victim-latency").status is PASSED, (
        "all phases had ended, and 2 s old requests are undecided"
    )


# ------------------------------------------------------------------------------------------- size


def big_run(requests: int = 4_000) -> Run:
    build = RunBuilder(
        profile(
            phases={"baseline": 15.0, "noise": 15.0},
            tenants={"quiet-1": 1.0, "quiet-2": 1.0, "flood": 1.0},
            only={"flood": ("noise",)},
            checks=[Spec(kind=name) for name in SEAM.names()],
        )
    )
    for k in range(requests):
        at_ms = 30_000 * k / requests
        tenant = "flood" if at_ms > 15_000 and k % 3 == 2 else f"quiet-{1 + k % 2}"
        build.answered(tenant, at_ms, wait_ms=5 + k % 7, service_ms=40 + k % 11)
    return build.run()


def calls_made(run: Run) -> int:
    """Function calls the judge makes: a measure of work that no busy machine disturbs."""
    profiler = cProfile.Profile()
    profiler.runcall(judge, run)
    found: Any = pstats.Stats(profiler)
    return int(found.total_calls)


def test_work_grows_with_the_run_and_not_with_its_square() -> None:
    small, large = calls_made(big_run(2_000)), calls_made(big_run(8_000))
    assert large < 6 * small


# -------------------------------------------------------------------------------- a clock known roughly


def leaving(closed_after_ms: float) -> Run:
    """Thirty clients leave after 50 ms; their calls end so long after."""
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(30):
        record = build.ended("a", 200.0 * k, Outcome.ABANDONED, after_ms=50)
        build.call(record, 200.0 * k + 1, 200.0 * k + 50 + closed_after_ms, CallEnding.CANCELLED)
    return build.run()


@pytest.mark.parametrize(
    ("closed_after_ms", "uncertainty_ms", "status"),
    [
        (100, 0, PASSED),
        (100, 0.5, PASSED),
        (100, 80, INCONCLUSIVE),
        (20, 30, PASSED),
        (160, 0.5, FAILED),
        (160, 80, INCONCLUSIVE),
    ],
)
def test_a_verdict_stands_where_the_clock_may_be_wrong_without_changing_it(
    closed_after_ms: float, uncertainty_ms: float, status: Status
) -> None:
    """cancel-upstream allows 120 ms."""
    run = leaving(closed_after_ms)
    run.clock_uncertainty_ns = round(uncertainty_ms * MS)
    verdict = one(run, "cancel-upstream")
    assert verdict.status is status
    if status is INCONCLUSIVE:
        assert verdict.because.startswith(
            f"the clocks here and at the provider agree only within ± {uncertainty_ms:.1f} ms, and with the "
            f"provider's times {'40.0 ms later' if closed_after_ms == 100 else '80.0 ms earlier'} the verdict"
        )
        assert verdict.details["would_have"] in ("passed", "failed")


def test_what_the_provider_alone_can_tell_needs_no_common_clock() -> None:
    run, spec = counterexample("concurrency-cap")
    run.clock_uncertainty_ns = NS
    assert one(run, spec).status is FAILED
    run = example("refusal-latency")
    run.clock_uncertainty_ns = 10 * NS
    assert one(run, "refusal-latency").status is PASSED


def test_why_there_is_no_ledger_is_said() -> None:
    run = example("bounded-queue")
    run.ledger, run.ledger_available = [], False
    run.no_ledger_because, run.interrupted = "another run has begun", "another run has begun"
    said = one(run, "bounded-queue").because
    assert said.endswith("and the run has none: another run has begun")


# -------------------------------------------------------------------------------- somebody else's provider


def foreign(run: Run) -> Run:
    """The same, had somebody else's provider been behind the gateway."""
    return msgspec.structs.replace(run, ledger=[], tools=[], ledger_available=False, unattributed=0)


@pytest.mark.parametrize("name", SEAM.names())
def test_without_a_ledger_no_sound_gateway_fails_and_no_check_passes_blindly(name: str) -> None:
    cls = SEAM.get(name)
    check, run = cls.example()
    spec = Spec(kind=name, params=check.model_dump(mode="json", exclude_defaults=True))
    verdict = one(foreign(run), spec)
    if cls.needs_ledger or cls.needs_attribution:
        told = cls.without_ledger is WithoutLedger.PART
        assert verdict.status in ((PASSED, INCONCLUSIVE) if told else (INCONCLUSIVE,))
        assert told or "rests on our provider's ledger" in verdict.because
    else:
        assert verdict.status is not FAILED


@pytest.mark.parametrize("name", ["deadline", "nested-timeouts"])
def test_what_clients_saw_fail_fails_without_a_ledger_too(name: str) -> None:
    run, spec = counterexample(name)
    if name == "deadline":
        for record in run.records:
            record.ended_ns += 2 * NS
    assert one(foreign(run), spec).status is FAILED


def test_a_promise_is_judged_by_its_return_alone_where_nothing_else_is_known() -> None:
    run, spec = counterexample("retry-after-honest")
    verdict = one(foreign(run), spec)
    assert verdict.status is FAILED
    assert verdict.because.endswith("whether promises were longer than needed was not judged")
    assert "not judged" in verdict.details["lengths"]
