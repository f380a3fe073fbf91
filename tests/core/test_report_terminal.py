"""The final output: verdicts first, 80 columns, plain where it must be."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

import report_run
from agentload.model import Severity, Status, Verdict
from agentload.report import Result, terminal, text
from agentload.report.html import HtmlReport
from agentload.report.summary import SummaryReport

SLOW = {"p50": 1_830.0, "p95": 2_720.0, "p99": 9_990.0, "p999": 9_990.0, "n": 400, "censored": False}


def printed(result: Result, *, width: int = 80, paths: list[Path] | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    terminal.print_result(result, console, paths or [])
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_verdicts_then_tenants_then_machinery_then_paths() -> None:
    out = "\n".join(printed(report_run.result(False), paths=[Path("reports/x/report.html")]))
    places = [
        out.index(part)
        for part in (
            "✗ victim-latency",
            "FAILED",
            "share of work",
            "generator:",
            "provider:",
            "queue:",
            "reports/x",
        )
    ]
    assert places == sorted(places)


def test_numbers_stand_beside_the_verdict() -> None:
    out = printed(report_run.result(True))
    assert "  ✓ victim-latency  1.08 × (bound 2 ×, n 294)" in out
    assert "  ? retry-after-spread (should)  – (bound 6, n 40)" in out
    assert "  ✗ victim-latency  never (bound 2 ×, n 294)" in printed(report_run.result(False))


@pytest.mark.parametrize("width", [60, 80, 100])
def test_it_keeps_to_the_width(width: int) -> None:
    out = printed(report_run.result(False), width=width)
    assert max(len(line.rstrip()) for line in out) <= width
    if width >= 80:
        row = next(line for line in out if line.startswith(" quiet-1"))
        assert "…" not in row


def test_no_heading_is_cut_off_where_a_narrower_table_fits_and_no_line_ends_in_spaces() -> None:
    result = Result.of(report_run.run(), [], Status.PASSED)
    tenants = result.summary["tenants"]
    tenants["bronze-heavy"] = tenants.pop("quiet-1") | {"latency_ms": SLOW}
    out = printed(result)
    [headings] = [line for line in out if "share of work" in line]
    assert headings.split()[-3:] == ["answered", "refused", "retries"]
    assert any(line.startswith(" bronze-heavy ") and "9.99 s" in line for line in out)
    assert not [line for line in out if line != line.rstrip()]


def test_no_escape_codes_when_it_is_no_terminal() -> None:
    assert "\x1b" not in "\n".join(printed(report_run.result(False)))


def test_no_color_keeps_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), force_terminal=True, width=80, highlight=False)
    terminal.print_result(report_run.result(False), console)
    assert isinstance(console.file, io.StringIO)
    out = console.file.getvalue()
    assert "FAILED" in out
    assert "\x1b[31" not in out
    assert "[1;31" not in out


def test_a_terminal_that_knows_only_ascii() -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii"), width=80, highlight=False)
    terminal.print_result(report_run.result(False), console, [Path("répört")])
    console.file.flush()
    out = raw.getvalue().decode("ascii")
    assert "FAIL victim-latency" in out
    assert "ok bounded-queue" in out
    assert "#" in out


def test_control_characters_do_not_reach_the_terminal() -> None:
    verdict = Verdict(check="c", status=Status.FAILED, because="\x1b[2Jgone\r\x07 [bold]not markup[/bold]")
    run = msgspec.structs.replace(report_run.run(tenants=("\x1b[31mred", "flood")), interrupted="\x1b[0m")
    out = "\n".join(printed(Result.of(run, [verdict], Status.FAILED)))
    assert "\x1b" not in out
    assert "\\x1b[2Jgone" in out
    assert "[bold]not markup[/bold]" in out


def test_many_tenants_are_counted() -> None:
    names = (*(f"shot{k}" for k in range(60)), "flood")
    out = printed(Result.of(report_run.run(tenants=names), [], Status.PASSED))
    assert any("and 49 more tenants" in line for line in out)


def test_many_of_one_kind_are_one_row() -> None:
    names = (*(f"shot-{k}" for k in range(60)), "flood")
    out = printed(Result.of(report_run.run(tenants=names), [], Status.PASSED))
    assert any(line.startswith(" shot (60)") for line in out)
    assert not any("shot-1" in line or "more tenants" in line for line in out)


def test_numbers_too_wide_for_the_line_stand_below_it() -> None:
    unit = "% of the output unexpected"
    verdict = Verdict(
        check="estimate-drift", status=Status.PASSED, because="b", measured=12, bound=25, unit=unit, n=1544
    )
    out = printed(Result.of(report_run.run(), [verdict], Status.PASSED))
    at = out.index("  ✓ estimate-drift  12 % of the output unexpected")
    assert out[at + 1] == "    (bound 25 % of the output unexpected, n 1,544)"


def test_faults_are_said() -> None:
    out = printed(Result.of(report_run.with_fault(), [], Status.PASSED))
    assert "  fault, on purpose: outage from 20 s to 24.5 s" in out
    assert not any("on purpose" in line for line in printed(report_run.result()))


def test_refused_counts_requests_and_attempts_stand_beside_them() -> None:
    result = Result.of(report_run.run(), [], Status.PASSED)
    tenant = result.summary["tenants"]["quiet-1"]
    tenant["rejected"], tenant["refused_attempts"] = 1_328, 5_312
    out = printed(result)
    assert any("(attempts)" in line for line in out)
    assert any(line.split()[-3:] == ["answered", "(attempts)", "retries"] for line in out)
    row = next(line for line in out if line.startswith(" quiet-1"))
    assert "1,328 (5,312)" in row
    assert max(len(line.rstrip()) for line in out) <= 80


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("interrupted by the user", "  interrupted by the user"),
        ("the gateway died", "  interrupted: the gateway died"),
    ],
)
def test_an_interruption_is_said_once(reason: str, said: str) -> None:
    run = msgspec.structs.replace(report_run.run(), interrupted=reason)
    out = printed(Result.of(run, [], Status.INCONCLUSIVE))
    assert said in out
    assert any("as planned until the interruption" in line for line in out)


def test_many_names_before_one_sentence_keep_to_the_width() -> None:
    lost = [Verdict(check=f"check-{k}", status=Status.INCONCLUSIVE, because="no ledger") for k in range(9)]
    lost[3].severity = Severity.SHOULD
    out = printed(Result.of(report_run.run(), lost, Status.INCONCLUSIVE))
    names = out[1 : out.index("    no ledger")]
    assert [line[:11] for line in names] == ["  ? check-0", "    check-7"]
    assert "check-3 (should), check-4" in names[0]


def test_what_was_measured_is_told_alone_even_where_the_sentence_is_the_same() -> None:
    two = [Verdict(check=name, status=Status.PASSED, because="b", measured=1, n=3) for name in "ab"]
    assert printed(Result.of(report_run.run(), two, Status.PASSED))[1:5:2] == [
        "  ✓ a  1 (n 3)",
        "  ✓ b  1 (n 3)",
    ]


def test_after_a_failure_the_next_step_is_said_in_a_line_to_copy() -> None:
    names = {"a": Severity.SHOULD, "b": Severity.MUST}
    verdicts = [Verdict(check=n, status=Status.FAILED, because="x", severity=s) for n, s in names.items()]
    failed = Result.of(report_run.run(), verdicts, Status.FAILED)
    assert printed(failed, paths=[Path("r/report.html")])[-2:] == [
        "  the evidence is in report.html; what b asks, and why:",
        "  agentload explain b",
    ]
    assert printed(failed)[-2] == "  what b asks, and why:"
    assert not any("explain" in line for line in printed(Result.of(report_run.run(), [], Status.PASSED)))


def test_one_sentence_of_several_checks_is_said_once_below_them() -> None:
    names = ("provider-limit", "bounded-queue", "no-ghosts", "own-answer")
    lost = [Verdict(check=name, status=Status.INCONCLUSIVE, because="no ledger") for name in names]
    lost[2].because = "no departures"
    out = printed(Result.of(report_run.run(), lost, Status.INCONCLUSIVE))
    first = out.index("  ? provider-limit, bounded-queue")
    assert out[first : first + 6] == [
        "  ? provider-limit, bounded-queue",
        "    no ledger",
        "  ? no-ghosts",
        "    no departures",
        "  ? own-answer",
        "    no ledger",
    ]


def test_calls_that_were_neither_admitted_nor_throttled_are_accounted_for() -> None:
    provider = Result.of(report_run.run(), [], Status.PASSED).summary["provider"]
    plain = text.provider_line(provider)
    assert "fault" not in plain
    assert "invalid" not in plain
    said = text.provider_line({**provider, "throttled": 392, "faulted": 1_340, "invalid": 3})
    assert ", 392 throttled, 1,340 refused by a fault, 3 invalid" in said


def test_more_than_the_rate_comes_out_of_the_bucket() -> None:
    result = Result.of(report_run.run(), [], Status.PASSED)
    provider = result.summary["provider"]
    provider["utilisation"] = 1.09
    assert "109 % of 384,000 tokens/min used (the bucket's burst included)" in text.provider_line(provider)
    provider["utilisation"] = 0.98
    assert "bucket" not in text.provider_line(provider)


def test_why_a_generator_is_not_trusted_is_said() -> None:
    run = report_run.run()
    health = msgspec.structs.replace(run.health, trustworthy=False, reasons=["late by 90 ms at p99"])
    out = printed(Result.of(msgspec.structs.replace(run, health=health), [], Status.INCONCLUSIVE))
    assert any("NOT TRUSTWORTHY" in line for line in out)
    assert any("late by 90 ms at p99" in line for line in out)


def test_what_the_caps_kept_own_code_from_is_said_everywhere_and_is_no_reason_for_doubt() -> None:
    run = report_run.run()
    health = msgspec.structs.replace(run.health, withheld=["own: 3 × no redirect to a.example followed"])
    result = Result.of(msgspec.structs.replace(run, health=health), [], Status.PASSED)
    pages = [
        "\n".join(printed(result)),
        *(one().render(result).decode() for one in (HtmlReport, SummaryReport)),
    ]
    for page in pages:
        assert "own: 3 × no redirect to a.example followed" in page
        assert "NOT TRUSTWORTHY" not in page


# --------------------------------------------------------------------------- words for numbers


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0 ms"),
        (0.42, "0.4 ms"),
        (12.4, "12 ms"),
        (999, "999 ms"),
        (1234, "1.23 s"),
        (61_000, "61.0 s"),
        (None, "–"),
    ],
)
def test_durations(value: float | None, words: str) -> None:
    assert text.milliseconds(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "–"), (0, "0 %"), (1, "100 %"), (0.005, "0.5 %"), (0.666, "67 %"), (1.13, "113 %")],
)
def test_shares(value: float | None, words: str) -> None:
    assert text.share(value) == words


def test_bars_show_the_entitlement() -> None:
    assert text.bar(0.5, 0.75, width=8) == "████░░┃░"
    assert text.bar(0.5, None, width=8, ascii_only=True) == "####...."
    assert text.bar(None, 1.0, width=4) == "░░░┃"
    assert text.bar(7.0, 0.0, width=4) == "┃███"


def test_quantities() -> None:
    assert text.quantity(1.083, "×") == "1.08 ×"
    assert text.quantity(None, "×", censored=True) == "never"
    assert text.quantity(None) == "–"
    assert text.quantity(1650) == "1,650"
    assert text.figure(float("inf")) == "never"
