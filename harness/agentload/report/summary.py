"""summary.md: verdicts and tenants as Markdown tables, to append to $GITHUB_STEP_SUMMARY."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from agentload.report import Report, Result, jobs, shares, text

MOST_TENANTS = 25
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#+!|~$@])")

Facts = Mapping[str, Any]


class SummaryReport(Report):
    """summary.md."""

    filename: ClassVar[str] = "summary.md"

    def render(self, result: Result) -> bytes:
        """GitHub-flavoured Markdown."""
        return "\n".join(_lines(result.summary)).encode() + b"\n"


def escaped(value: object) -> str:
    """Text that Markdown leaves as it is: a tenant's name or a gateway's words must not become markup."""
    return _SPECIAL.sub(r"\\\1", text.printable(value)).replace("&", "&amp;")


def _lines(summary: Facts) -> Iterator[str]:
    verdict = summary["verdict"]
    yield f"## {text.SYMBOLS[verdict]} {escaped(summary['profile'])}: {verdict}"
    yield ""
    yield escaped(summary["about"])
    mutant = text.mutant_line(summary["target"])
    if mutant:
        yield f"\n**{escaped(mutant[0].upper() + mutant[1:])}**"
    if summary["scale"]:
        yield f"\n{escaped(text.scale_line(summary['scale']))}"
    if summary["interrupted"]:
        reason = text.interruption(summary["interrupted"])
        yield f"\n**{escaped(reason[0].upper() + reason[1:])}**"
    yield ""
    yield from _checks(summary["checks"])
    yield ""
    yield from _tenants(text.folded(summary))
    yield ""
    yield f"- {escaped(shares.note(summary))}"
    yield from _machinery(summary)


def _checks(checks: Iterable[Facts]) -> Iterator[str]:
    yield from _table_head(["", "check", "measured", "bound", "n", "because"], right=(2, 3, 4))
    for check in checks:
        name = escaped(check["check"]) + ("" if check["severity"] == "must" else f" ({check['severity']})")
        cells = [
            f"{text.SYMBOLS[check['status']]} {check['status']}",
            name,
            escaped(text.quantity(check["measured"], check["unit"], check["censored"])),
            escaped(text.quantity(check["bound"], check["unit"])),
            f"{check['n']:,}",
            escaped(check["because"]),
        ]
        yield _row(cells)


def _tenants(tenants: Facts) -> Iterator[str]:
    headings = ["tenant", "share of work", "entitled", "p50", "p95", "p99", "answered", "refused", "retries"]
    yield from _table_head(headings, right=range(1, len(headings)))
    for name, tenant in text.busiest(tenants, MOST_TENANTS):
        cells = [
            escaped(name),
            text.share(tenant["work_share"]),
            text.share(tenant["entitled_share"]),
            *(text.percentile(tenant["latency_ms"], p) for p in ("p50", "p95", "p99")),
            f"{tenant['answered']:,} ({text.share(tenant['acceptance'])})",
            text.refused(tenant),
            f"{tenant['retries']:,}",
        ]
        yield _row(cells)
    if len(tenants) > MOST_TENANTS:
        yield f"\n… and {len(tenants) - MOST_TENANTS:,} more tenants in report.json."


def _machinery(summary: Facts) -> Iterator[str]:
    yield from (f"- {escaped(line)}" for line in jobs.lines(summary["jobs"]))
    yield f"- {text.generator_line(summary['generator'], bool(summary['interrupted']))}"
    yield from (f"  - {escaped(reason)}" for reason in summary["generator"]["reasons"])
    yield from (f"  - {escaped(line)}" for line in summary["generator"]["withheld"])
    yield f"- {text.provider_line(summary['provider'])}"
    yield from (f"- {escaped(text.fault_line(fault))}" for fault in summary["faults"])
    queue = text.queue_line(summary["hidden_queue"])
    if queue:
        yield f"- {queue}"
    plan = summary["plan"]["fingerprint"][:12]
    yield f"- {summary['driver']} run, seed {summary['seed']}, plan `{plan}`"


def _table_head(headings: Iterable[str], right: Iterable[int]) -> Iterator[str]:
    named, aligned = list(headings), set(right)
    yield _row(named)
    yield _row("---:" if index in aligned else "---" for index in range(len(named)))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
