"""A run in nine numbers, by which policies can be compared.

Latency never stands alone: beside it are goodput and what was refused, or a gateway that serves one in ten
would look quick. Shares mean something only where more is asked for than there is, and a service gap only
where tenants always have work waiting; where a run has no such stretch, these are None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from agentload.evidence import history
from agentload.evidence.contest import Contest, contest_from
from agentload.evidence.fairness import backlog, gap_bound, jain, services
from agentload.evidence.hidden_queue import calls_by_attempt, in_gateway, waits
from agentload.evidence.history import LogicalRequest
from agentload.evidence.statistics import enough, percentile
from agentload.model import NS, Run, Status
from agentload.report import facts, text

IMPOSSIBLE = frozenset({400, 413, 422})
"""Statuses of a request that no gateway could serve."""
_MS = 1_000_000


class Yardsticks(msgspec.Struct, frozen=True, kw_only=True):
    """Of the recorded phases. Requests are logical: with all their retries."""

    goodput_per_s: float
    """Requests answered, per second."""
    tokens_per_s: float
    """Tokens in and out of the answered ones, per second."""
    p50_ms: float | None
    """Error-adjusted: +infinity where half of them were never answered. None: too few to say."""
    p99_ms: float | None
    jain: float | None
    """Jain's index of what tenants got of their entitlements while there was contention: 1 is equal, 1/n is
    one takes all. None without contention."""
    min_share: float | None
    """What the worst-off tenant got, as a part of its entitlement (1: all of it)."""
    worst_off: str | None
    """That tenant, or its group where the group is large."""
    service_gap: float | None
    """The largest difference in tokens per weight between tenants that always had work waiting, in the
    phase with the widest. None: there never were two of them."""
    gap_bound: float | None
    """What start-time fair queueing keeps that difference below."""
    queue_age_s: float
    """The longest that an attempt waited for service, in the gateway or at the provider."""
    refused: float
    """Part of the requests that ended refused (413, 429, 503, 504 …), 0..1."""
    requests: int
    """Sent in all."""


def measure(run: Run) -> Yardsticks:
    """The numbers of one run, which needs the provider's ledger."""
    phases = set(history.counted_phases(run))
    seconds = sum(phase.seconds for phase in run.profile.phases if phase.record)
    found = [r for r in history.logical_requests(run.records) if r.phase in phases and not r.unsent]
    latencies = history.latencies_ns(found)
    answered = [r for r in found if r.answered]
    got = _parts_of_entitlement(run)
    worst_off = min(got, key=lambda name: got[name], default=None)
    gap = max(map(_gap, _contests(run)), default=(None, None))
    return Yardsticks(
        goodput_per_s=len(answered) / seconds if seconds else 0.0,
        tokens_per_s=_tokens(answered) / seconds if seconds else 0.0,
        p50_ms=_percentile_ms(latencies, 50),
        p99_ms=_percentile_ms(latencies, 99),
        jain=jain(got.values()) if got else None,
        min_share=None if worst_off is None else got[worst_off],
        worst_off=worst_off,
        service_gap=gap[0],
        gap_bound=gap[1],
        queue_age_s=_longest_wait_ns(run, phases) / NS,
        refused=sum(r.last.outcome in history.REFUSALS for r in found) / len(found) if found else 0.0,
        requests=len(found),
    )


def _tokens(answered: Sequence[LogicalRequest]) -> int:
    return sum(r.last.input_tokens + r.last.output_tokens for r in answered)


def _percentile_ms(latencies_ns: Sequence[float], percent: float) -> float | None:
    if not enough(len(latencies_ns), percent):
        return None
    return percentile(latencies_ns, percent) / _MS


def _parts_of_entitlement(run: Run) -> dict[str, float]:
    """What each tenant (or large group) got of its entitlement; empty where there was no contention.

    A tenant that only asked for what can never be had (413, 400) was entitled to nothing.
    """
    summary = facts.summarise(run, [], Status.PASSED)
    if not summary["shares"]["contended"] or len(run.profile.tenants) < 2:
        return {}
    possible = {record.tenant for record in run.records if record.status not in IMPOSSIBLE}
    return {
        name: tenant["work_share"] / tenant["entitled_share"]
        for name, tenant in text.folded(summary).items()
        if tenant["entitled_share"] and (name in possible or name not in summary["tenants"])
    }


def _contests(run: Run) -> list[Contest]:
    waiting, served = backlog(waits(run.records, run.ledger)), services(run.ledger)
    found = [
        contest_from(run, phase, run.profile.phase_window_ns(phase), waiting, served, "tokens")
        for phase in history.counted_phases(run)
    ]
    return [contest for contest in found if contest is not None]


def _gap(contest: Contest) -> tuple[float, float]:
    """(largest difference in work per weight since the stretch began, its bound for the dearest pair)."""
    got = dict.fromkeys(contest.weights, 0.0)
    widest = 0.0
    for service in contest.services:
        got[service.tenant] += service.work / contest.weights[service.tenant]
        widest = max(widest, max(got.values()) - min(got.values()))
    i, j = sorted(got, key=lambda t: contest.costs[t] / contest.weights[t])[-2:]
    costs, weights = contest.costs, contest.weights
    return widest, gap_bound(contest.in_service, costs[i], weights[i], costs[j], weights[j])


def _longest_wait_ns(run: Run, phases: set[str]) -> int:
    """From sending to the start of service; of one that was never served, to its end."""
    calls = calls_by_attempt(run.ledger)
    longest = 0
    for record in run.records:
        if record.phase in phases and in_gateway(record):
            started = (call.started_ns for call in calls.get((record.seq, record.attempt), ()))
            until = next((at for at in started if at is not None), record.ended_ns)
            longest = max(longest, until - record.sent_ns)
    return longest


def plain(found: Yardsticks) -> dict[str, Any]:
    """For JSON: what is infinite is None, and named in `never`."""
    values = msgspec.structs.asdict(found)
    never = [name for name, value in values.items() if isinstance(value, float) and math.isinf(value)]
    return {name: None if name in never else value for name, value in values.items()} | {"never": never}
