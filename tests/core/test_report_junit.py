"""junit.xml: what a CI shows for each of the three answers."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import msgspec
import pytest

import report_run
from agentload.model import Severity, Status, Verdict
from agentload.report import Result, WhenInconclusive
from agentload.report.junit import JUnitReport


def suite(result: Result) -> Element:
    found = ElementTree.fromstring(JUnitReport().render(result)).find("testsuite")
    assert found is not None
    return found


def one(status: Status, severity: Severity, when: WhenInconclusive) -> Element:
    verdict = Verdict(
        check="a-check", status=status, because="it is so", severity=severity, measured=2, bound=1
    )
    result = Result.of(report_run.run(), [verdict], status, when)
    case = suite(result).find("testcase")
    assert case is not None
    return case


@pytest.mark.parametrize(
    ("status", "severity", "when", "element"),
    [
        ("passed", "must", "error", None),
        ("failed", "must", "error", "failure"),
        ("failed", "must", "pass", "failure"),
        ("inconclusive", "must", "error", "error"),
        ("inconclusive", "must", "fail", "failure"),
        ("inconclusive", "must", "pass", "skipped"),
        ("failed", "should", "fail", "skipped"),
        ("inconclusive", "should", "error", "skipped"),
    ],
)
def test_what_each_answer_becomes(status: str, severity: str, when: str, element: str | None) -> None:
    case = one(Status(status), Severity(severity), WhenInconclusive(when))
    children = [child.tag for child in case if child.tag != "system-out"]
    assert children == ([] if element is None else [element])
    if element is not None:
        child = case.find(element)
        assert child is not None
        assert child.get("message") == f"{status}: it is so"


def test_one_testcase_per_check_and_totals_that_add_up() -> None:
    found = suite(report_run.result(False))
    cases = found.findall("testcase")
    assert [case.get("name") for case in cases] == [v.check for v in report_run.verdicts()]
    for total, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(found.get(total) or -1) == len(found.findall(f"testcase/{tag}"))
    assert int(found.get("tests") or -1) == len(cases)


def test_nothing_is_said_twice() -> None:
    failed = one(Status.FAILED, Severity.MUST, WhenInconclusive.ERROR)
    assert failed.find("system-out") is None
    for status, severity in ((Status.PASSED, Severity.MUST), (Status.FAILED, Severity.SHOULD)):
        assert "it is so" in (one(status, severity, WhenInconclusive.ERROR).findtext("system-out") or "")


def test_numbers_and_reason_are_in_it() -> None:
    said = suite(report_run.result(False)).findtext("testcase/failure") or ""
    assert "half of the quiet tenants' requests" in said
    assert "measured: never" in said
    assert "bound: 2 ×" in said
    assert "n: 294" in said


def test_characters_that_xml_has_no_place_for() -> None:
    """NUL and ESC may not stand in XML 1.0 even escaped; a gateway's words can hold them."""
    verdict = Verdict(check="a", status=Status.FAILED, because="\x00\x1b[31m<&>\ud800")
    result = Result.of(report_run.run(), [verdict], Status.FAILED)
    failure = suite(result).find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "failed: \\x00\\x1b[31m<&>\\ud800"


def test_the_properties_say_how_to_reproduce_it() -> None:
    result = report_run.result()
    found = {p.get("name"): p.get("value") for p in suite(result).findall("properties/property")}
    assert found["seed"] == "7"
    assert found["fingerprint"] == result.run.plan.fingerprint
    assert found["version.agentload"] == "0.1.0"


def test_a_run_without_a_start_time() -> None:
    run = msgspec.structs.replace(report_run.run(), meta={})
    assert suite(Result.of(run, [], Status.INCONCLUSIVE)).get("timestamp") is None


def test_a_check_made_twice_is_two_tests() -> None:
    verdict = Verdict(check="weighted-share", status=Status.PASSED, because="fair")
    found = suite(Result.of(report_run.run(), [verdict, verdict, verdict], Status.PASSED))
    names = [case.get("name") for case in found.findall("testcase")]
    assert names == ["weighted-share", "weighted-share #2", "weighted-share #3"]


def test_a_reason_that_several_checks_share_is_a_headline_once_and_in_every_body() -> None:
    shared = [
        Verdict(check=name, status=Status.INCONCLUSIVE, because="no ledger")
        for name in ("no-starvation", "bounded-queue")
    ]
    cases = suite(Result.of(report_run.run(), shared, Status.INCONCLUSIVE)).findall("testcase")
    errors = [error for case in cases for error in case.findall("error")]
    assert [error.get("message") for error in errors] == [
        "inconclusive: no ledger",
        "inconclusive: as no-starvation, for the same reason",
    ]
    assert all("no ledger" in (error.text or "") for error in errors)
