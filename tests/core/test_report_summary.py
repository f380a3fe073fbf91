"""summary.md: tables that stay tables whatever a tenant is called."""

from __future__ import annotations

import io
import re

import msgspec
from rich.console import Console

import report_run
from agentload.model import Status, Verdict
from agentload.report import Result, terminal, text
from agentload.report.html import HtmlReport
from agentload.report.summary import SummaryReport, escaped


def lines(result: Result) -> list[str]:
    return SummaryReport().render(result).decode().splitlines()


def tables(text: list[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for line in text:
        if line.startswith("|"):
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def columns(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row)) - 1


def test_the_verdict_is_the_heading() -> None:
    assert lines(report_run.result(False))[0] == "## ✗ noisy-neighbor: failed"
    assert lines(report_run.result(True))[0] == "## ✓ noisy-neighbor: passed"


def test_two_tables_with_a_row_for_every_check_and_tenant() -> None:
    checks, tenants = tables(lines(report_run.result()))
    assert len(checks) == 2 + len(report_run.verdicts())
    assert len(tenants) == 2 + 4
    for table in (checks, tenants):
        assert len({columns(row) for row in table}) == 1


def test_hostile_words_stay_in_their_cell() -> None:
    hostile = "a|b`c`<img src=x>[x](y) @everyone #1 \n| new row |"
    verdict = Verdict(check="c", status=Status.FAILED, because=hostile)
    run = report_run.run(tenants=("x|y", "<b>", "flood"))
    checks, tenants = tables(lines(Result.of(run, [verdict], Status.FAILED)))
    assert len(checks) == 3
    assert len(tenants) == 2 + 3
    for table in (checks, tenants):
        assert len({columns(row) for row in table}) == 1
    assert "\\<img" in checks[2]


def test_escaping() -> None:
    assert escaped("quiet-1") == "quiet-1"
    assert escaped("a_b*c|d") == "a\\_b\\*c\\|d"
    assert escaped("x & y\t") == "x &amp; y\\\\t"


def test_faults_and_an_interruption_are_said_once() -> None:
    run = msgspec.structs.replace(report_run.with_fault(), interrupted="interrupted by the user")
    said = lines(Result.of(run, [], Status.INCONCLUSIVE))
    assert "**Interrupted by the user**" in said
    assert "- fault, on purpose: outage from 20 s to 24.5 s" in said


def test_many_of_one_kind_are_one_row() -> None:
    names = (*(f"shot-{k}" for k in range(60)), "flood")
    rows = tables(lines(Result.of(report_run.run(tenants=names), [], Status.PASSED)))[1]
    assert [row.split(" |")[0] for row in rows[2:]] == ["| shot (60)", "| flood"]


def test_refused_counts_requests_and_attempts_stand_beside_them() -> None:
    result = Result.of(report_run.run(), [], Status.PASSED)
    tenant = result.summary["tenants"]["quiet-1"]
    tenant["rejected"], tenant["refused_attempts"] = 0, 5
    assert "| 0 (5 attempts) |" in next(line for line in lines(result) if line.startswith("| quiet-1"))


def test_many_tenants_are_counted_not_listed() -> None:
    names = (*(f"shot{k}" for k in range(60)), "flood")
    text = lines(Result.of(report_run.run(tenants=names), [], Status.PASSED))
    assert len(tables(text)[1]) == 2 + 25
    assert "… and 36 more tenants in report.json." in text


def test_a_scaled_run_says_so_in_every_report() -> None:
    run = report_run.run()
    run.meta["scale"] = {"factor": 0.25, "phases_longer": 4.0, "because": "it carries 60/s"}
    result = Result.of(run, [], Status.PASSED)
    said = "scaled by 0.25: rates, users, slots, queues and limits; phases 4 × as long (it carries 60/s)"
    assert text.scale_line(run.meta["scale"]) == said
    assert text.scale_line({"factor": 1, "because": "so"}) == "not scaled (so)"
    assert any("scaled by 0.25" in line for line in lines(result))
    assert "scaled by 0.25" in HtmlReport().render(result).decode()
    console = Console(record=True, width=200, file=io.StringIO())
    terminal.print_result(result, console, [])
    assert said in console.export_text()
    assert result.summary["scale"] == run.meta["scale"]
