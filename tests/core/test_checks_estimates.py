"""The check `estimate-drift`: real work beyond a share, and estimates that stay wrong."""

from __future__ import annotations

import pytest

from agentload.checks.estimate_drift import MISSED, PRODUCED, EstimateDrift
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.model import NS, Outcome, Run, Sample, Status


def served(*, turns: str, calls: int = 400, liars: int = 140, late_turns: str | None = None) -> Run:
    """Both always have work waiting; `a` produces `liars` tokens a call. `late_turns`: in the second half."""
    build = RunBuilder(profile(phases={"load": calls / 50}))
    for k in range(calls):
        order = late_turns if late_turns and k >= calls // 2 else turns
        tenant = order[k % len(order)]
        tokens = liars if tenant == "a" else 20
        build.answered(tenant, 20.0 * k, wait_ms=15, service_ms=5, output_tokens=tokens)
    for tenant in "ab":
        build.ended(tenant, 0, Outcome.UNFINISHED, after_ms=20 * calls)
    return build.run()


def with_gauges(run: Run, missed: float, until_s: float = 8.0) -> Run:
    """Samples in which so large a part of the output was unexpected, all the time."""
    seconds = range(int(until_s) + 1)
    run.samples = [
        Sample(at_ns=s * NS, source="gateway", values={PRODUCED: 4_000.0 * s, MISSED: 4_000.0 * s * missed})
        for s in seconds
    ]
    return run


def test_what_counts_is_work_as_the_provider_saw_it() -> None:
    verdict = EstimateDrift().judge(served(turns="abbbb"))
    assert (verdict.status, verdict.unit) == (Status.PASSED, "points")
    verdict = EstimateDrift().judge(served(turns="ab"))
    assert (verdict.status, round(verdict.measured or 0)) == (Status.FAILED, 30)
    assert "a got 80.0 %" in verdict.because


def test_until_half_time_the_gateway_may_learn() -> None:
    found_out = served(turns="ab", late_turns="abbbb")
    assert EstimateDrift().judge(found_out).status is Status.PASSED
    assert EstimateDrift(last_part=1).judge(found_out).status is Status.FAILED


def test_less_than_a_share_is_not_what_it_is_about() -> None:
    """`b` gets most of the work here, and `b` is it that has too much: `a` alone is no reason."""
    verdict = EstimateDrift().judge(served(turns="abbbbbbbbbbbb"))
    assert verdict.status is Status.FAILED
    assert "b got" in verdict.because


@pytest.mark.parametrize(("missed", "status"), [(0.1, Status.PASSED), (0.4, Status.FAILED)])
def test_estimates_that_stay_wrong_fail_where_the_gateway_tells(missed: float, status: Status) -> None:
    verdict = EstimateDrift().judge(with_gauges(served(turns="abbbb"), missed))
    assert verdict.status is status
    assert verdict.measured == pytest.approx(100 * missed)
    assert "more than the gateway had expected" in verdict.because


def test_a_gateway_without_such_gauges_is_judged_by_the_shares_alone() -> None:
    verdict = EstimateDrift().judge(served(turns="abbbb"))
    assert verdict.details["phases"]["load"]["underestimated"] is None


def test_a_profile_that_knows_its_noise_may_be_strict() -> None:
    run = served(turns="abbb", calls=400)
    assert EstimateDrift(within_points=20).judge(run).status is Status.PASSED
    assert EstimateDrift(within_points=2).judge(run).status is Status.FAILED


def test_tenants_that_never_wait_together_show_nothing() -> None:
    build = RunBuilder(profile())
    for k in range(100):
        build.answered("a" if k < 50 else "b", 50.0 * k)
    assert EstimateDrift().judge(build.run()).status is Status.INCONCLUSIVE
