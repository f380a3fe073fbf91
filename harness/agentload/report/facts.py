"""The content of report.json: computed once, from one run and its verdicts; every format shows these numbers.

Counts are of logical requests (what users wanted) in the recorded phases, unless they say attempts; latencies
are error-adjusted (a request never answered counts as +infinity: None with `censored`). Beside them stand the
latencies of the answered ones only, which mean nothing without the acceptance rate next to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from agentload.evidence import history
from agentload.evidence.fairness import peak_in_service
from agentload.evidence.hidden_queue import compare_with_gauge
from agentload.evidence.history import LogicalRequest
from agentload.evidence.statistics import distribution
from agentload.faults import fault_windows
from agentload.model import (
    NS,
    CallEnding,
    Distribution,
    LedgerEntry,
    Outcome,
    Phase,
    Run,
    Status,
    Tenant,
    Verdict,
)
from agentload.report import series as over_time
from agentload.report.contention import contention
from agentload.report.jobs import job_facts
from agentload.report.lanes import Lanes, lanes_of
from agentload.report.shares import Shares, shares

SCHEMA = 1
MOST_REASONS = 8
MOST_ALIKE = 6
"""Tenants of a group that are still shown one by one."""


def summarise(run: Run, verdicts: Sequence[Verdict], status: Status) -> dict[str, Any]:
    """report.json as a dict of plain values."""
    requests = history.logical_requests(run.records)
    counted = [r for r in requests if r.phase in set(history.counted_phases(run))]
    lanes = lanes_of(run.profile, run.records)
    edges = over_time.edges_ns(run)
    story = contention(run, edges)
    shared = shares(run, story, edges)
    queue = over_time.hidden_queue(run)
    return {
        "schema": SCHEMA,
        "profile": run.profile.name,
        "about": run.profile.about,
        "driver": run.driver,
        "seed": run.plan.seed,
        "digest": run.meta.get("digest"),
        "started": run.meta.get("started"),
        "duration_s": run.profile.duration_ns / NS,
        "plan": {
            "fingerprint": run.plan.fingerprint,
            "arrivals": len(run.plan.arrivals),
            "closed_users": run.plan.closed_users,
        },
        "verdict": str(status),
        "interrupted": run.interrupted,
        "checks": [check(verdict) for verdict in verdicts],
        "tenants": _tenants(run, counted, shared),
        "groups": _groups(run, counted, shared),
        "jobs": job_facts(run),
        "shares": shared.basis,
        "phases": [_phase(run, phase, requests, lanes) for phase in run.profile.phases],
        "faults": _faults(run),
        "generator": _generator(run),
        "provider": _provider(run),
        "hidden_queue": _hidden_queue(run, queue),
        "spectrum": over_time.spectrum(counted, lanes, history.counted_phases(run)),
        "series": over_time.series(run, requests, lanes, story, queue, edges),
        "versions": dict(run.meta.get("versions", {})),
        "command": list(run.meta.get("command", [])),
        "scale": run.meta.get("scale"),
        "target": _target(run),
        "machine": run.meta.get("machine") or {},
    }


def _faults(run: Run) -> list[dict[str, Any]]:
    """What went wrong on purpose, and when."""
    return [
        {"name": fault.kind, "start_s": fault.start_ns / NS, "end_s": fault.end_ns / NS}
        for fault in fault_windows(run.profile)
    ]


def _target(run: Run) -> dict[str, Any]:
    """What was measured; of the bundled gateway also the policy by which it shares."""
    target = dict(run.meta.get("target") or {})
    return target | ({"policy": run.profile.gateway.policy} if target.get("kind") == "bundled" else {})


def check(verdict: Verdict) -> dict[str, Any]:
    """One verdict; `measured` is None with `censored` where it is infinite."""
    return {
        "check": verdict.check,
        "severity": str(verdict.severity),
        "status": str(verdict.status),
        "measured": verdict.measured,
        "bound": verdict.bound,
        "unit": verdict.unit,
        "n": verdict.n,
        "because": verdict.because,
        "censored": verdict.censored,
        "evidence": [msgspec.to_builtins(item) for item in verdict.evidence],
        "details": msgspec.to_builtins(verdict.details),
    }


# --------------------------------------------------------------------------- tenants


def _tenants(run: Run, counted: Iterable[LogicalRequest], shared: Shares) -> dict[str, Any]:
    requests: dict[str, list[LogicalRequest]] = {tenant.name: [] for tenant in run.profile.tenants}
    for request in counted:
        requests.setdefault(request.tenant, []).append(request)
    return {
        tenant.name: _tenant(tenant, requests[tenant.name]) | shared.of([tenant.name])
        for tenant in run.profile.tenants
    }


def _groups(run: Run, counted: Sequence[LogicalRequest], shared: Shares) -> dict[str, Any]:
    """Tenants of one kind, too many to be read one by one: the same facts, of all of them together."""
    members: dict[str, list[Tenant]] = {}
    for tenant in run.profile.tenants:
        members.setdefault(tenant.group, []).append(tenant)
    found: dict[str, Any] = {}
    for group, tenants in members.items():
        if len(tenants) > MOST_ALIKE:
            names = {tenant.name for tenant in tenants}
            facts = _tenant(tenants[0], [r for r in counted if r.tenant in names])
            found[group] = facts | shared.of(sorted(names))
            found[group]["tenants"] = len(tenants)
    return found


def _tenant(tenant: Tenant, requests: Sequence[LogicalRequest]) -> dict[str, Any]:
    return {
        "class": tenant.service_class,
        "group": tenant.group,
        "weight": tenant.weight,
        **endings(requests),
        "attempts": sum(len(r.attempts) for r in requests),
        "retries": sum(len(r.attempts) - 1 for r in requests),
        "refused_attempts": sum(a.outcome in history.REFUSALS for r in requests for a in r.attempts),
        **_tokens(tenant, requests),
        **latencies(requests),
        "service_ms": plain(distribution([r.last.ended_ns - r.last.sent_ns for r in requests if r.answered])),
        "first_token_ms": plain(distribution(_first_token_ns(requests))),
        "inter_token_ms": plain(distribution(_inter_token_ns(requests))),
        "reasons": dict(_reasons(requests).most_common(MOST_REASONS)),
        "wait_causes": dict(_wait_causes(requests).most_common(MOST_REASONS)),
    }


def _tokens(tenant: Tenant, requests: Iterable[LogicalRequest]) -> dict[str, int | None]:
    """Of answers; None where the answer is that a job was accepted, which has cost nothing yet."""
    if tenant.job is not None:
        return {"input_tokens": None, "output_tokens": None}
    answers = [r.last for r in requests if r.answered]
    return {
        "input_tokens": sum(a.input_tokens for a in answers),
        "output_tokens": sum(a.output_tokens for a in answers),
    }


def _reasons(requests: Iterable[LogicalRequest]) -> Counter[str]:
    """Why attempts were not answered, as the gateway (or the connection) put it."""
    attempts = (attempt for request in requests for attempt in request.attempts)
    return Counter(a.reason for a in attempts if a.outcome is not Outcome.ANSWERED and a.reason is not None)


def _wait_causes(requests: Iterable[LogicalRequest]) -> Counter[str]:
    """Why attempts waited long or were refused, where the gateway says so (`desc` of Server-Timing)."""
    causes = (attempt.wait_cause for request in requests for attempt in request.attempts)
    return Counter(cause for cause in causes if cause)


def endings(requests: Sequence[LogicalRequest]) -> dict[str, Any]:
    """`offered`, one count per final outcome, and `acceptance`: answered ÷ offered without the unsent."""
    by_outcome = Counter(request.last.outcome for request in requests)
    sent = len(requests) - by_outcome[Outcome.UNSENT]
    return {
        "offered": len(requests),
        **{str(outcome): by_outcome[outcome] for outcome in Outcome},
        "acceptance": round(by_outcome[Outcome.ANSWERED] / sent, 6) if sent else None,
    }


def latencies(requests: Sequence[LogicalRequest]) -> dict[str, Any]:
    """Error-adjusted latency of all requests that were sent, and that of the answered ones only."""
    sent = [r for r in requests if not r.unsent]
    return {
        "latency_ms": plain(distribution(history.latencies_ns(sent))),
        "answered_latency_ms": plain(distribution([r.latency_ns for r in sent if r.answered])),
    }


def _first_token_ns(requests: Iterable[LogicalRequest]) -> list[float]:
    """From the intended start of the attempt that was answered, streamed ones only."""
    return [
        r.last.first_token_ns - r.last.due_ns
        for r in requests
        if r.answered and r.last.stream and r.last.first_token_ns is not None
    ]


def _inter_token_ns(requests: Iterable[LogicalRequest]) -> list[float]:
    """Mean time between tokens of each streamed answer of two tokens or more."""
    return [
        (r.last.last_token_ns - r.last.first_token_ns) / (r.last.output_tokens - 1)
        for r in requests
        if r.answered
        and r.last.stream
        and r.last.first_token_ns is not None
        and r.last.last_token_ns is not None
        and r.last.output_tokens > 1
    ]


def plain(found: Distribution) -> dict[str, Any]:
    """A Distribution as plain values, rounded to microseconds."""
    stated = {"p50": found.p50, "p95": found.p95, "p99": found.p99, "p999": found.p999}
    return {**over_time.rounded_or_none(stated), "n": found.n, "censored": found.censored}


# --------------------------------------------------------------------------- phases


def _phase(run: Run, phase: Phase, requests: Sequence[LogicalRequest], lanes: Lanes) -> dict[str, Any]:
    start, end = run.profile.phase_window_ns(phase.name)
    mine = [request for request in requests if request.phase == phase.name]
    of_lanes: dict[str, Any] = {}
    for lane, tenants in lanes.items():
        members = set(tenants)
        of_lane = [request for request in mine if request.tenant in members]
        if of_lane:
            of_lanes[lane] = endings(of_lane) | latencies(of_lane)
    return {
        "name": phase.name,
        "start_s": start / NS,
        "end_s": end / NS,
        "recorded": phase.record,
        "replays": phase.replays,
        **endings(mine),
        "answered_per_s": round(sum(r.answered for r in mine) / phase.seconds, 3),
        **latencies(mine),
        "lanes": of_lanes,
    }


# --------------------------------------------------------------------------- generator, provider, queue


def _generator(run: Run) -> dict[str, Any]:
    health = run.health
    return {
        **msgspec.to_builtins(health),
        "lateness_ms": plain(health.lateness_ms),
        "calm_lateness_ms": plain(health.calm_lateness_ms) if health.calm_lateness_ms else None,
        "stalls": [
            {"start_s": stall.start_ns / NS, "end_s": stall.end_ns / NS, "where": stall.where}
            for stall in health.stalls
        ],
        "torn_lines": run.meta.get("torn_lines", 0),
    }


def _provider(run: Run) -> dict[str, Any]:
    config = run.profile.provider
    by_ending = Counter(call.ending for call in run.ledger)
    admitted = [call for call in run.ledger if call.started_ns is not None]
    busiest, utilisation = _busiest_phase(run, admitted)
    window = (0, max(run.profile.duration_ns, history.end_ns(run) + 1))
    return {
        "available": run.ledger_available,
        "no_ledger_because": None if run.ledger_available else _why_no_ledger(run),
        "clock": run.meta.get("provider_clock"),
        "reasons": dict(Counter(c.reason for c in run.ledger if c.reason).most_common(MOST_REASONS)),
        "offered": len(run.ledger),
        "admitted": len(admitted),
        **{str(ending): by_ending[ending] for ending in CallEnding},
        "early": sum(call.early for call in run.ledger),
        "input_tokens": sum(call.input_tokens for call in admitted),
        "output_tokens": sum(call.output_tokens for call in admitted),
        "tokens": sum(call.charged_tokens for call in admitted),
        "unattributed": run.unattributed,
        "utilisation": utilisation,
        "busiest_phase": busiest,
        "tokens_per_minute": config.tokens_per_minute,
        "requests_per_minute": config.requests_per_minute,
        "bucket_s": config.bucket_s if config.tokens_per_minute or config.requests_per_minute else None,
        "slots": config.slots,
        "peak_in_service": peak_in_service(run.ledger, window),
    }


def _why_no_ledger(run: Run) -> str:
    lost = "it is fetched at the end, before which the run ended"
    return run.no_ledger_because or (lost if run.interrupted else "the provider is not ours")


def _busiest_phase(run: Run, admitted: Sequence[LedgerEntry]) -> tuple[str | None, float | None]:
    """The phase that used most of the tokens per minute, and the share: above 1 only out of a full bucket."""
    limit = run.profile.provider.tokens_per_minute
    if limit is None or not admitted:
        return None, None
    used: dict[str, float] = {}
    for phase in run.profile.phases:
        start, end = run.profile.phase_window_ns(phase.name)
        tokens = sum(call.charged_tokens for call in admitted if start <= call.arrived_ns < end)
        used[phase.name] = tokens / (limit / 60 * phase.seconds)
    busiest = max(used, key=lambda name: used[name])
    return busiest, round(used[busiest], 4)


def _hidden_queue(run: Run, queue: over_time.Queue | None) -> dict[str, Any]:
    nothing = {"max_depth": None, "max_depth_at_s": None, "max_age_ms": None, "wait_ms": None, "gauge": None}
    if queue is None:
        return nothing
    at_ns, depth = max(queue.steps, key=lambda step: step[1], default=(0, 0))
    name, _ = over_time.gauge_name(run.samples, over_time.DEPTH_GAUGES)
    agreement = compare_with_gauge(queue.steps, run.samples, name) if name else None
    return {
        "max_depth": depth,
        "max_depth_at_s": round(at_ns / NS, 3),
        "max_age_ms": round(max((wait.length_ns for wait in queue.waits), default=0) / over_time.MS, 3),
        "wait_ms": plain(distribution([wait.length_ns for wait in queue.waits if wait.served])),
        "gauge": agreement
        and {
            "name": name,
            "n": agreement.n,
            "depth_difference_median": agreement.median,
            "depth_difference_p95": agreement.p95,
        },
    }
