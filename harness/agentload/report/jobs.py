"""What became of durable jobs, tenant by tenant: such a request ends with its 202, the job does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

import msgspec

from agentload.client.job_pursuit import TERMINAL
from agentload.evidence.history import counted_phases
from agentload.evidence.statistics import distribution
from agentload.model import Distribution, JobRecord, Run
from agentload.report import text

UNENDED = "unended"
"""Accepted, and never seen to end."""
HEADINGS = ["tenant", "jobs", "accepted", *TERMINAL, UNENDED, "to the end p50", "p95", "why not completed"]
MOST_REASONS = 8
"""Kept of a tenant's jobs, the most frequent first."""
MOST_SAID = 3
"""Of these, so many stand in a line or a row."""


def job_facts(run: Run) -> dict[str, Any]:
    """By tenant, of the recorded phases; empty where nobody sends jobs."""
    phases = set(counted_phases(run))
    found: dict[str, list[JobRecord]] = {}
    for job in run.jobs:
        if job.phase in phases:
            found.setdefault(job.tenant, []).append(job)
    return {tenant.name: _facts(found[tenant.name]) for tenant in run.profile.tenants if tenant.name in found}


def _facts(jobs: Sequence[JobRecord]) -> dict[str, Any]:
    accepted = [job for job in jobs if job.accepted_ns is not None]
    states = Counter(job.state or UNENDED for job in accepted)
    return {
        "offered": len(jobs),
        "accepted": len(accepted),
        **{state: states[state] for state in (*TERMINAL, UNENDED)},
        "reasons": dict(_reasons(accepted).most_common(MOST_REASONS)),
        "to_end_ms": _plain(distribution(list(_to_end_ns(accepted)))),
    }


def _reasons(accepted: Iterable[JobRecord]) -> Counter[str]:
    """Why jobs ended otherwise than completed, in the gateway's words where these say more than the end."""
    ended = (job for job in accepted if job.state not in (None, "completed"))
    return Counter(job.reason for job in ended if job.reason and job.reason != job.state)


def _to_end_ns(accepted: Iterable[JobRecord]) -> Iterator[float]:
    """From the due time to when the client saw the end: at most one poll late; never, for the unended."""
    for job in accepted:
        yield inf if job.ended_ns is None else job.ended_ns - job.due_ns


def _plain(found: Distribution) -> dict[str, Any]:
    facts = msgspec.to_builtins(found)
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in facts.items()}


def rows(jobs: Mapping[str, Any]) -> list[list[str]]:
    """Under HEADINGS, one row for each tenant."""
    return [
        [
            text.printable(tenant),
            *(f"{facts[key]:,}" for key in ("offered", "accepted", *TERMINAL, UNENDED)),
            *(text.percentile(facts["to_end_ms"], quantile) for quantile in ("p50", "p95")),
            _why(facts) or text.NOTHING,
        ]
        for tenant, facts in jobs.items()
    ]


def lines(jobs: Mapping[str, Any]) -> Iterator[str]:
    """A line for each tenant, for terminals and Markdown; states in which no job is are left out."""
    for tenant, facts in jobs.items():
        ends = [f"{facts[state]:,} {state}" for state in (*TERMINAL, UNENDED) if facts[state]]
        why = f" ({_why(facts)})" if facts["reasons"] else ""
        to_end = " and ".join(
            f"{quantile} {text.percentile(facts['to_end_ms'], quantile)}" for quantile in ("p50", "p95")
        )
        counts = f"{facts['accepted']:,} of {facts['offered']:,} jobs accepted"
        yield f"{text.printable(tenant)}: {', '.join([counts, *ends])}{why}; to the end {to_end}"


def _why(facts: Mapping[str, Any]) -> str:
    """`provider_error 5, interrupted 3`; empty where the gateway said nothing."""
    reasons: Mapping[str, int] = facts["reasons"]
    said = [f"{text.printable(reason)} {count:,}" for reason, count in list(reasons.items())[:MOST_SAID]]
    return ", ".join([*said, *(["…"] if len(reasons) > MOST_SAID else [])])


NOTE = "of tenants with jobs the table shows their 202s"
