"""What a check asks, with which parameters, and the smallest run that it fails: `agentload explain CHECK`."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections import Counter
from collections.abc import Collection, Sequence
from enum import EnumType, StrEnum
from typing import Any, cast

from pydantic_core import PydanticUndefined

from agentload.checks import SEAM, Check, Need, TenantRef, references
from agentload.evidence.history import LogicalRequest, latencies_ns, logical_requests
from agentload.evidence.statistics import percentile
from agentload.evidence.verdicts import milliseconds
from agentload.model import Run, Verdict
from agentload.promises import SAID_BY, Truth


def explain(check_name: str, width: int | None = None) -> str:
    """Docstring, parameters with defaults, and the counterexample with its verdict, as plain text.

    `width`: columns that its paragraphs are filled to; None leaves their lines as they were written.
    Raises UsageError for an unknown name.
    """
    kind = SEAM.get(check_name)
    check, run = kind.counterexample()
    verdict = check.judge(run)
    parts = [
        check_name,
        _filled(inspect.cleandoc(kind.__doc__ or ""), width),
        "\n".join(["Needs", *_needs(kind)]),
        "\n".join(["Parameters", *_table(_parameters(kind))]),
        "\n".join(["Counterexample", *_story(kind, check), "", *_table(_picture(run))]),
        "\n".join(["Verdict", *_verdict(verdict)]),
    ]
    return "\n\n".join(parts)


def _filled(text: str, width: int | None) -> str:
    if width is None:
        return text
    paragraphs = text.split("\n\n")
    return "\n\n".join(textwrap.fill(one, width, break_on_hyphens=False) for one in paragraphs)


def _needs(kind: type[Check]) -> list[str]:
    needs: list[str] = []
    if kind.needs_ledger:
        needs.append("  our provider's ledger")
    if kind.needs_attribution:
        needs.append("  provider calls that can be traced to their requests (99 % of them)")
    needs += [f"  of somebody's gateway, {' or '.join(_said(kind.rests_on))}"] if kind.rests_on else []
    needs += [f"  for a part of it, {', '.join(_said(kind.better_with))}"] if kind.better_with else []
    if Need.HEALTH_PAGE in kind.needs:
        needs.append("  of somebody's gateway, health in its target file; without, no run fails for it")
    if kind.zero_tolerance:
        needs.append("  nothing else for a failure: it stands even in a run that is void for measuring")
    return needs or ["  only what clients see"]


def _said(truths: Collection[Truth]) -> list[str]:
    """The keys of a target file by which somebody's gateway makes the check decidable."""
    return [f"declares.{SAID_BY[truth]}" for truth in Truth if truth in truths]


def _parameters(kind: type[Check]) -> list[list[str]]:
    rows = [["name", "default", "type"]]
    names = {name: "tenant" if what is TenantRef else "phase" for name, what in references(kind)}
    for name, field in kind.model_fields.items():
        default = "(required)" if field.default is PydanticUndefined else _plain(field.default)
        rows.append([name, default, _type_name(field.annotation, names.get(name))])
    return rows


def _plain(value: Any) -> str:
    if value == ():
        return "[]"
    return json.dumps(value) if isinstance(value, bool | int | float | None) else str(value)


def _type_name(annotation: object, named: str | None) -> str:
    if named is not None:
        return f"names of {named}s" if "tuple" in str(annotation) else f"name of a {named}"
    if isinstance(annotation, EnumType):
        return " | ".join(str(member) for member in cast("type[StrEnum]", annotation))
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return text.replace("typing.", "")


def _story(kind: type[Check], check: Check) -> list[str]:
    told = inspect.cleandoc(kind.counterexample.__doc__ or "")
    given = check.model_dump(exclude_defaults=True, mode="json")
    shown = f"  with {json.dumps(given)}" if given else "  with the defaults"
    return [f"  {told}", shown]


def _picture(run: Run) -> list[list[str]]:
    """One line per phase and tenant: what was asked and what came of it."""
    rows = [["phase", "tenant", "requests", "answered", "p50", "p95", "other endings", "calls", "tokens"]]
    requests = logical_requests(run.records)
    for phase in run.profile.phases:
        for tenant in run.profile.tenants:
            mine = [r for r in requests if (r.phase, r.tenant) == (phase.name, tenant.name)]
            if mine:
                rows.append([phase.name, tenant.name, *_row(run, mine)])
    return rows


def _row(run: Run, requests: Sequence[LogicalRequest]) -> list[str]:
    keys = {(a.seq, a.attempt) for request in requests for a in request.attempts}
    calls = [call for call in run.ledger if (call.seq, call.attempt) in keys]
    others = Counter(f"{r.last.outcome} {r.last.status or ''}".strip() for r in requests if not r.answered)
    latencies = latencies_ns(requests)
    return [
        str(len(requests)),
        str(sum(request.answered for request in requests)),
        milliseconds(percentile(latencies, 50)),
        milliseconds(percentile(latencies, 95)),
        ", ".join(f"{count} × {what}" for what, count in others.items()) or "-",
        str(len(calls)),
        str(sum(call.input_tokens + call.output_tokens for call in calls)),
    ]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _verdict(verdict: Verdict) -> list[str]:
    measured = "+infinity" if verdict.censored else f"{verdict.measured:.4g}"
    lines = [f"  {verdict.status}: {verdict.because}"]
    if verdict.bound is not None:
        lines.append(f"  measured {measured} {verdict.unit}, bound {verdict.bound:.4g}, n {verdict.n}")
    return [*lines, *(f"  - {evidence.note}" for evidence in verdict.evidence)]
