"""Who got how much of a shared provider, and how much each was entitled to.

Shares are compared only while all compared tenants are backlogged: a tenant that asks for less than its share
is not a victim. Served work comes from the provider's ledger, so a gateway cannot flatter itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Literal

import msgspec

from agentload.evidence.hidden_queue import Wait
from agentload.evidence.intervals import Interval, intersect, merge, overlap_count
from agentload.model import NS, LedgerEntry, Run

Measure = Literal["tokens", "charged", "requests", "seconds"]
"""tokens: prompt and produced tokens; charged: what the token bucket was asked for; requests: 1 a call;
seconds: in service at the provider."""

TRANSIT_NS = 10_000_000
"""A wait up to 10 ms is the way through an idle gateway, not a backlog."""


class Service(msgspec.Struct, frozen=True, gc=False):
    """Work that the provider took up for a tenant."""

    at_ns: int
    tenant: str
    work: float


def measure_of(run: Run, given: Measure | None) -> Measure:
    """In which unit shares are compared: as the check says, else as the gateway divides."""
    return given or ("tokens" if run.promises is None else run.promises.fairness)


def services(ledger: Iterable[LedgerEntry], measure: Measure = "tokens") -> list[Service]:
    """Served work by the instant service began, ascending; refused and unattributed calls left out."""
    calls = list(ledger)
    until_ns = last_ns(calls) if measure == "seconds" else 0
    found = [
        Service(call.started_ns, call.tenant, work_of(call, measure, until_ns))
        for call in calls
        if call.started_ns is not None and call.tenant is not None
    ]
    found.sort(key=lambda service: service.at_ns)
    return found


def work_of(call: LedgerEntry, measure: Measure, until_ns: int = 0) -> float:
    """What one call cost, in the measure's unit; in seconds, one that is still open until `until_ns`."""
    match measure:
        case "tokens":
            return call.input_tokens + call.output_tokens
        case "charged":
            return call.charged_tokens
        case "seconds":
            ended_ns = until_ns if call.ended_ns is None else call.ended_ns
            return max(0, ended_ns - (call.started_ns or ended_ns)) / NS
        case "requests":
            return 1.0


def last_ns(ledger: Iterable[LedgerEntry]) -> int:
    """The last instant that a ledger knows of."""
    return max((call.ended_ns or call.arrived_ns for call in ledger), default=0)


def unit_of(measure: Measure) -> str:
    """In words."""
    return {"requests": "calls", "seconds": "seconds"}.get(measure, "tokens")


def within(ascending: Sequence[Service], window: Interval) -> Sequence[Service]:
    """The services that began in [start, end)."""
    first = bisect_left(ascending, window[0], key=lambda service: service.at_ns)
    last = bisect_left(ascending, window[1], key=lambda service: service.at_ns)
    return ascending[first:last]


def served_work(found: Iterable[Service], tenants: Iterable[str]) -> dict[str, float]:
    """Work per tenant; tenants without any are there with 0."""
    work = dict.fromkeys(tenants, 0.0)
    for service in found:
        if service.tenant in work:
            work[service.tenant] += service.work
    return work


def shares(amounts: Mapping[str, float]) -> dict[str, float]:
    """Each amount as a share of all, 0..1; zeros when there is nothing to share."""
    total = sum(amounts.values())
    return {name: amount / total if total else 0.0 for name, amount in amounts.items()}


def peak_in_service(ledger: Iterable[LedgerEntry], window: Interval) -> int:
    """C: the most calls that were at the provider (in service or queued there) at once within a window."""
    spans = [
        (max(call.arrived_ns, window[0]), min(window[1], call.ended_ns or window[1]))
        for call in ledger
        if call.started_ns is not None
    ]
    return max((count for _, count in overlap_count(spans)), default=0)


def backlog(found: Iterable[Wait]) -> dict[str, list[Interval]]:
    """When each tenant had work waiting in the gateway for more than the way through it."""
    waiting: dict[str, list[Interval]] = {}
    for wait in found:
        if wait.length_ns > TRANSIT_NS:
            waiting.setdefault(wait.tenant, []).append((wait.start_ns, wait.end_ns))
    return {tenant: merge(intervals) for tenant, intervals in waiting.items()}


def all_backlogged(
    waiting: Mapping[str, list[Interval]], tenants: Collection[str], window: Interval
) -> list[Interval]:
    """The parts of a window in which every one of the tenants was backlogged."""
    common = [window]
    for tenant in tenants:
        common = intersect(common, waiting.get(tenant, []))
    return common


def gap_bound(in_service: int, cost_i: float, weight_i: float, cost_j: float, weight_j: float) -> float:
    """(C + 1)(cmax_i/w_i + cmax_j/w_j): what fair queueing keeps |S_i/w_i − S_j/w_j| below.

    For any two backlogged tenants over any interval, with C calls in service at once: the bound of
    start-time fair queueing (Goyal et al., 1996) for D servers (SFQ(D), Jin et al., 2004).
    """
    return (in_service + 1) * (cost_i / weight_i + cost_j / weight_j)


def share_bounds(
    in_service: int, weights: Mapping[str, float], costs: Mapping[str, float], total: float
) -> dict[str, float]:
    """How far a share (0..1) may be from its entitlement while every pair keeps `gap_bound`.

    S_i/w_i − mean = Σ_j (w_j/W)(S_i/w_i − S_j/w_j), so the pairs' bounds add up to
    (C + 1)/total · [(1 − p_i)·cmax_i + p_i·Σ_{j≠i} cmax_j] with p_i = w_i/W.
    """
    entitled = shares(weights)
    all_costs = sum(costs[tenant] for tenant in weights)
    bounds: dict[str, float] = {}
    for tenant, share in entitled.items():
        own, others = costs[tenant], all_costs - costs[tenant]
        slack = (in_service + 1) * ((1 - share) * own + share * others)
        bounds[tenant] = slack / total if total else float("inf")
    return bounds


def entitled_shares(
    capacity: float, weights: Mapping[str, float], demands: Mapping[str, float]
) -> dict[str, float]:
    """Weighted max-min fairness by water filling: what each tenant should get of a capacity.

    Nobody gets more than it asks for; what the modest leave is divided among the rest by weight. Units are
    those of `capacity` and `demands`; an infinite demand means "as much as possible".
    """
    granted: dict[str, float] = {}
    modest_first = sorted(demands, key=lambda tenant: (demands[tenant] / weights[tenant], tenant))
    weights_left = list(accumulate(weights[tenant] for tenant in reversed(modest_first)))
    left = capacity
    for tenant, weight_left in zip(modest_first, reversed(weights_left), strict=True):
        fair = left * weights[tenant] / weight_left
        granted[tenant] = max(0.0, min(demands[tenant], fair))
        left -= granted[tenant]
    return granted


def jain(values: Collection[float]) -> float:
    """Jain's index (Σx)²/(n·Σx²) of weight-normalised amounts: 1 is equal, 1/n is one takes all.

    For reports only: starving one of eight still gives 0.875.
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
