"""What a report says of durable jobs: how many were accepted, how they ended, and after how long."""

from __future__ import annotations

import re

import msgspec

import report_run
from agentload.model import NS, JobOrder, JobRecord, JobStep, Run, Status
from agentload.report import Result, facts, html, jobs
from agentload.report.html import HtmlReport
from agentload.report.summary import SummaryReport


def job(
    seq: int,
    state: str | None,
    end_s: float | None,
    accepted: bool = True,
    phase: str = "",
    reason: str | None = None,
) -> JobRecord:
    due_ns = 4 * NS
    return JobRecord(
        seq=seq,
        tenant="flood",
        service_class="standard",
        phase=phase or recorded_phase(),
        due_ns=due_ns,
        deadline_ns=due_ns + 20 * NS,
        key=str(seq),
        steps=1,
        accepted_ns=due_ns if accepted else None,
        state=state,
        reason=reason,
        ended_ns=None if end_s is None else due_ns + round(end_s * NS),
    )


def recorded_phase() -> str:
    return next(phase.name for phase in report_run.profile().phases if phase.record)


def run_with(found: list[JobRecord]) -> Run:
    return msgspec.structs.replace(report_run.run(), jobs=found)


def test_jobs_are_counted_by_how_they_ended_and_timed_to_the_end() -> None:
    warm_up = next(phase.name for phase in report_run.profile().phases if not phase.record)
    ended = [job(seq, "completed", 2.0) for seq in range(30)]
    others = [job(30, "failed", 1.0), job(31, None, None), job(32, None, None, accepted=False)]
    found = jobs.job_facts(run_with([*ended, *others, job(33, "completed", 1.0, phase=warm_up)]))["flood"]
    assert (found["offered"], found["accepted"], found["completed"]) == (33, 32, 30)
    assert (found["failed"], found["unended"], found["cancelled"]) == (1, 1, 0)
    assert found["to_end_ms"]["p50"] == 2_000
    assert list(jobs.lines({"flood": found})) == [
        "flood: 32 of 33 jobs accepted, 30 completed, 1 failed, 1 unended; to the end p50 2.00 s and p95 –"
    ]


def test_jobs_that_nobody_saw_end_count_as_never() -> None:
    found = jobs.job_facts(run_with([job(seq, None, None) for seq in range(20)]))["flood"]
    assert found["to_end_ms"] | {"n": 20} == found["to_end_ms"]
    assert found["to_end_ms"]["censored"]
    assert jobs.rows({"flood": found})[0][-2] == "never"


def test_the_formats_show_them_and_are_silent_where_there_are_none() -> None:
    with_jobs = Result.of(run_with([job(seq, "completed", 2.0) for seq in range(20)]), [], Status.PASSED)
    without = Result.of(run_with([]), [], Status.PASSED)
    for report in (HtmlReport(), SummaryReport()):
        assert b"20 jobs accepted" in report.render(with_jobs) or b"Durable jobs" in report.render(with_jobs)
        assert b"obs accepted" not in report.render(without)
        assert b"Durable jobs" not in report.render(without)
    assert facts.summarise(run_with([]), [], Status.PASSED)["jobs"] == {}


def test_why_jobs_did_not_complete_is_said_in_every_format_and_made_visible() -> None:
    ended = [job(seq, "completed", 2.0, reason="stop") for seq in range(20)]
    whys = ["no luck"] * 3 + ["b", "b", "c", "failed", "\x1b[2J"]
    failed = [job(20 + k, "failed", 1.0, reason=why) for k, why in enumerate(whys)]
    result = Result.of(run_with([*ended, *failed]), [], Status.PASSED)
    assert result.summary["jobs"]["flood"]["reasons"] == {"no luck": 3, "b": 2, "c": 1, "\x1b[2J": 1}
    [line] = jobs.lines(result.summary["jobs"])
    assert "20 completed, 8 failed (no luck 3, b 2, c 1, …); to the end" in line
    assert jobs.rows(result.summary["jobs"])[0][-1] == "no luck 3, b 2, c 1, …"
    page = HtmlReport().render(result).decode()
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)]
    assert ["job not completed: no luck", "3", "flood 3"] in rows
    assert "\x1b" not in page + SummaryReport().render(result).decode()


def test_an_accepted_job_has_no_tokens_and_not_zero() -> None:
    run = run_with([job(seq, "completed", 2.0) for seq in range(20)])
    tenants = tuple(
        tenant.model_copy(update={"job": JobOrder(steps=(JobStep(chat=True),))})
        for tenant in run.profile.tenants
    )
    run.profile = run.profile.model_copy(update={"tenants": tenants})
    result = Result.of(run, [], Status.PASSED)
    assert result.summary["tenants"]["flood"]["input_tokens"] is None
    assert "tokens in / out" not in html.tenants(result.summary)["headings"]
    one = Result.of(run_with([]), [], Status.PASSED).summary
    one["tenants"]["flood"]["input_tokens"] = None
    shown = html.tenants(one)
    cells = [row["cells"][shown["headings"].index("tokens in / out")] for row in shown["rows"]]
    assert cells[-1] == "–"
    assert all("/" in cell for cell in cells[:-1])
