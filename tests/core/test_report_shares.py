"""Shares of the work are of moments in which tenants competed, and the report says of which."""

from __future__ import annotations

import msgspec
import pytest

import report_run
from agentload.evidence.attribution import answered_without_call
from agentload.model import NS, Outcome, Run, Status
from agentload.report import Result, facts, shares
from agentload.report.contention import Amounts, Contention
from agentload.report.html import HtmlReport
from agentload.report.summary import SummaryReport

WIDTH_NS = NS // 2


def story(contended: int, *, served: Amounts, calm: Amounts) -> tuple[Contention, list[int]]:
    """86 half seconds of the report's run; the first so many of its recorded ones (from 3 s on) contended."""
    hot = [6 <= k < 6 + contended for k in range(86)]
    each = [served if is_hot else calm for is_hot in hot]
    return Contention(each, each, hot, "ledger"), [k * WIDTH_NS for k in range(87)]


def found(contended: int) -> shares.Shares:
    told, edges = story(contended, served={"flood": 40.0}, calm={"flood": 10.0, "quiet-1": 10.0})
    return shares.shares(report_run.run(), told, edges)


def test_a_moment_of_contention_is_not_sold_as_the_share_of_a_run() -> None:
    """Half a second in which one of two competed: both are shown as served over the whole run."""
    short = found(1)
    assert not short.basis["contended"]
    assert (short.basis["seconds"], short.basis["contended_seconds"]) == (40, 0.5)
    assert short.of(["quiet-1"])["work_share"] == pytest.approx(0.48, abs=0.01)


def test_who_wanted_nothing_while_others_competed_has_no_share_and_not_zero() -> None:
    long = found(4)
    assert long.basis["contended"]
    assert long.basis["phases"] == {"baseline": 2}
    assert long.of(["flood"]) == {"work_share": 1, "entitled_share": 1}
    assert long.of(["quiet-1"]) == {"work_share": None, "entitled_share": None}
    assert long.of(["quiet-1", "flood"]) == {"work_share": 1, "entitled_share": 1}


def test_a_short_run_needs_but_a_tenth_of_its_time() -> None:
    told, _ = story(5, served={"a": 1.0}, calm={"a": 1.0})
    tenth = [k * WIDTH_NS // 10 for k in range(87)]
    run = report_run.run()
    shape = run.profile.model_copy(
        update={"phases": tuple(p.model_copy(update={"seconds": p.seconds / 10}) for p in run.profile.phases)}
    )
    short = msgspec.structs.replace(run, profile=shape)
    assert not shares.shares(short, told, tenth).basis["contended"]
    told, _ = story(9, served={"a": 1.0}, calm={"a": 1.0})
    assert shares.shares(short, told, tenth).basis["contended"]


def test_the_seconds_and_the_phase_are_said_in_every_format() -> None:
    result = report_run.result(False)
    said = shares.note(result.summary)
    assert said == (
        "shares are of the work served by the provider in 15 s of noise and 4 s of recovery, when more was "
        "asked for than served; the mark is the entitlement"
    )
    assert f"- {said}" in SummaryReport().render(result).decode()
    assert f"S{said[1:]}." in HtmlReport().render(result).decode()


def _summary_of(basis: dict[str, object]) -> dict[str, object]:
    summary = dict(report_run.result(False).summary)
    return summary | {"shares": summary["shares"] | basis}


def test_what_shares_rest_on_without_contention_is_said() -> None:
    calm = {"contended": False, "seconds": 40.0, "phases": {"a": 15.0, "b": 25.0}, "contended_seconds": 0}
    assert "in 15 s of a and 25 s of b, when there was enough for everybody" in shares.note(_summary_of(calm))
    said = shares.note(_summary_of(calm | {"contended_seconds": 0.5}))
    assert "in 15 s of a and 25 s of b (more was asked for than served in 0.5 s only)" in said
    many = calm | {"phases": {str(k): 1.0 for k in range(12)}}
    assert "of 12 phases" in shares.note(_summary_of(many))


def untraceable(run: Run, tenant: str) -> Run:
    """The same run, had this tenant's messages no marker."""
    ledger = [
        msgspec.structs.replace(call, tenant=None, seq=None) if call.tenant == tenant else call
        for call in run.ledger
    ]
    return msgspec.structs.replace(run, ledger=ledger, unattributed=sum(c.tenant is None for c in ledger))


def test_calls_that_nobody_can_trace_are_no_share_of_zero() -> None:
    run = untraceable(report_run.run(), "quiet-1")
    summary = facts.summarise(run, [], Status.INCONCLUSIVE)
    assert {(t["work_share"], t["entitled_share"]) for t in summary["tenants"].values()} == {(None, None)}
    assert summary["tenants"]["quiet-1"]["answered"] > 200
    result = Result.of(run, [], Status.INCONCLUSIVE)
    assert "nobody's share of the work is known: " in shares.note(result.summary)
    assert "provider calls cannot be traced to a request" in shares.note(result.summary)
    assert b"Nobody&#39;s share of the work is known" in HtmlReport().render(result)


def test_whose_calls_are_missing_is_known_by_their_answers() -> None:
    run = report_run.run()
    assert answered_without_call(run) == set()
    assert answered_without_call(untraceable(run, "quiet-1")) == {"quiet-1"}
    answered = sum(r.outcome is Outcome.ANSWERED for r in run.records)
    assert answered == len(run.ledger)
