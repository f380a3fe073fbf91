"""junit.xml: one testcase per check, in the dialect that GitHub, GitLab and Jenkins read.

A failed `must` is a failure; an inconclusive one is what `Result.when_inconclusive` says (an error by
default, as CI systems know no third answer). A `should` never fails a build: where it did not pass it shows
as skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from agentload.model import Severity, Status
from agentload.report import Report, Result, WhenInconclusive, text

_INCONCLUSIVE = {
    WhenInconclusive.ERROR: "error",
    WhenInconclusive.FAIL: "failure",
    WhenInconclusive.PASS: "skipped",
}


class JUnitReport(Report):
    """junit.xml."""

    filename: ClassVar[str] = "junit.xml"

    def render(self, result: Result) -> bytes:
        """One testsuite named after the profile."""
        summary = result.summary
        children = [child_name(check, result.when_inconclusive) for check in summary["checks"]]
        counts = Counter(children)
        totals = {
            "tests": str(len(children)),
            "failures": str(counts["failure"]),
            "errors": str(counts["error"]),
            "skipped": str(counts["skipped"]),
        }
        name = text.printable(summary["profile"])
        seconds = f"{summary['duration_s']:.3f}"
        root = Element("testsuites", {"name": "agentload", "time": seconds} | totals)
        suite = SubElement(root, "testsuite", {"name": name, "time": seconds} | totals)
        if summary["started"]:
            suite.set("timestamp", text.printable(summary["started"]))
        properties = SubElement(suite, "properties")
        for key, value in _properties(summary):
            SubElement(properties, "property", name=key, value=text.printable(value))
        seen: Counter[str] = Counter()
        said: dict[tuple[str, str], str] = {}
        for check, child in zip(summary["checks"], children, strict=True):
            seen[check["check"]] += 1
            first = said.setdefault((check["status"], check["because"]), check["check"])
            _testcase(suite, name, check, child, seen[check["check"]], first)
        ElementTree.indent(root)
        document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
        return document + b"\n"


def child_name(check: Mapping[str, Any], when: WhenInconclusive) -> str | None:
    """The element that tells a CI how the check went; None for one that passed."""
    if check["status"] == Status.PASSED:
        return None
    if check["severity"] == Severity.SHOULD:
        return "skipped"
    return "failure" if check["status"] == Status.FAILED else _INCONCLUSIVE[when]


def _properties(summary: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield "seed", summary["seed"]
    yield "fingerprint", summary["plan"]["fingerprint"]
    yield "driver", summary["driver"]
    if summary["interrupted"]:
        yield "interrupted", summary["interrupted"]
    for package, version in summary["versions"].items():
        yield f"version.{text.printable(package)}", version


def _testcase(
    suite: Element, profile: str, check: Mapping[str, Any], child: str | None, nth: int, first: str
) -> None:
    """A check that a profile makes twice gets a number: CI systems take equal names for one test.

    What another check has `first` said word for word is not its headline once more; its body has it.
    """
    name = text.printable(check["check"]) + (f" #{nth}" if nth > 1 else "")
    case = SubElement(suite, "testcase", classname=f"agentload.{profile}", name=name, time="0")
    because = text.printable(check["because"])
    if child is not None:
        kind = f"{check['severity']}-{check['status']}"
        said = because if first == check["check"] else f"as {text.printable(first)}, for the same reason"
        element = SubElement(case, child, message=f"{check['status']}: {said}", type=kind)
        if child != "skipped":
            element.text = "\n".join(_lines(check))
            return
    SubElement(case, "system-out").text = "\n".join(_lines(check))


def _lines(check: Mapping[str, Any]) -> Iterator[str]:
    yield text.printable(check["because"])
    yield f"measured: {text.quantity(check['measured'], check['unit'], check['censored'])}"
    yield f"bound: {text.quantity(check['bound'], check['unit'])}"
    yield f"n: {check['n']}"
    yield from (f"evidence: {text.evidence(item)}" for item in check["evidence"])
