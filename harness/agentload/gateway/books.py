"""What has become of all requests, kept while they end: the numbers behind the metrics. PURE.

The scheduler counts what it decides; this counts what the requests' own records say. The two are kept apart
on purpose: as long as they agree at every instant, none is lost and none is counted twice, and an operator
can check that from a scrape (`agentload_gateway_unaccounted` is 0).

Memory is bounded: classes and reasons are ours, and tenants have a bounded number of labels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeAlias

from agentload.gateway.histogram import Histogram
from agentload.gateway.protocol import Record
from agentload.gateway.tenant_labels import TenantLabels
from agentload.model import Outcome

Tally: TypeAlias = defaultdict[tuple[str, ...], float]
Price: TypeAlias = Callable[[str, int, int], float]
"""What a call costs: (model, input tokens, output tokens) → money."""

MANY_ATTEMPTS = 5
"""Retries are counted by their number up to this one."""
_RECLAIMED = "lease_expired"


def _tally() -> Tally:
    return defaultdict(float)


def state_of(record: Record) -> str:
    """The state that a request ended in, by the scheduler's own names."""
    if not record.admitted:
        return "refused"
    if record.outcome is Outcome.ANSWERED:
        return "completed"
    if record.outcome is Outcome.ABANDONED:
        return "cancelled"
    if not record.waiting:
        return "failed"
    if record.reason == "evicted":
        return "evicted"
    return "expired" if record.outcome is Outcome.EXPIRED else "cancelled"


class Books:
    """Counters by label values, in the order of the labels' names in `metrics.py`."""

    def __init__(self, labels: TenantLabels, classes: Iterable[str], price: Price | None = None) -> None:
        """`price`: None while nobody has said what tokens cost."""
        self._labels = labels
        self._classes = frozenset(classes)
        self._price = price
        self.decisions: Tally = _tally()
        """Of requests that have ended, by (class, decision, reason)."""
        self.ended: Tally = _tally()
        """Admitted requests that have ended, by (class, state)."""
        self.requests: Tally = _tally()
        """By (class, outcome, reason, status)."""
        self.retries: Tally = _tally()
        """Requests that came as a retry, by (class, attempt)."""
        self.missed: Tally = _tally()
        """Requests whose deadline ended them, by (class, where)."""
        self.causes: Tally = _tally()
        """Why requests waited long or were refused, by (class, cause)."""
        self.provider_failures: Tally = _tally()
        """Calls that the provider is to blame for, by (reason,)."""
        self.reclaimed: Tally = _tally()
        """Calls whose lease ran out, by (class,)."""
        self.tokens: Tally = _tally()
        """By (direction, kind)."""
        self.tools: Tally = _tally()
        """Tool calls and tool seconds, by (what, kind)."""
        self.tenant_requests: Tally = _tally()
        """By (tenant, outcome)."""
        self.tenant_dispatched: Tally = _tally()
        """By (tenant, class)."""
        self.tenant_units: Tally = _tally()
        """Work units that were reserved, by (tenant, class)."""
        self.tenant_tokens: Tally = _tally()
        """By (tenant, direction)."""
        self.tenant_cost: Tally = _tally()
        """By (tenant,)."""
        self.waits: defaultdict[tuple[str, ...], Histogram] = defaultdict(Histogram)
        """Arrival to dispatch, or to the end, by (class, tenant)."""
        self.retry_delays: defaultdict[tuple[str, ...], Histogram] = defaultdict(Histogram)
        """What refused callers were told to wait, by (class,)."""
        self.model_time: defaultdict[tuple[str, ...], Histogram] = defaultdict(Histogram)
        """Dispatch to the end, by (class,)."""

    @property
    def series(self) -> int:
        """Sets of label values that are kept: what the size of a scrape, and of memory, goes by."""
        counts = sum(len(tally) for tally in self._tallies())
        return counts + sum(len(histograms) for histograms in self._histograms())

    def _tallies(self) -> tuple[Tally, ...]:
        return (
            self.decisions,
            self.ended,
            self.requests,
            self.retries,
            self.missed,
            self.causes,
            self.provider_failures,
            self.reclaimed,
            self.tokens,
            self.tools,
            self.tenant_requests,
            self.tenant_dispatched,
            self.tenant_units,
            self.tenant_tokens,
            self.tenant_cost,
        )

    def _histograms(self) -> tuple[defaultdict[tuple[str, ...], Histogram], ...]:
        return self.waits, self.retry_delays, self.model_time

    def enter(self, record: Record) -> None:
        """Count one request that has ended. Exactly once for each."""
        # Whoever asks for a class that does not exist must not be able to make labels.
        name = record.service_class if record.service_class in self._classes else "unknown"
        tenant = self._labels.of(record.tenant)
        outcome = record.outcome.value
        self.requests[name, outcome, record.reason, str(record.status)] += 1
        self.tenant_requests[tenant, outcome] += 1
        self.waits[name, tenant].add(record.waited_ns / 1e9)
        if record.admitted:
            self.decisions[name, "admitted", ""] += 1
            self.ended[name, state_of(record)] += 1
        else:
            self.decisions[name, "refused" if record.offered else "malformed", record.reason] += 1
        if record.dispatched:
            self._enter_call(record, name, tenant)
        if record.reason != "ok" or record.attempt or record.wait_cause:
            self._enter_trouble(record, name)

    def _enter_call(self, record: Record, name: str, tenant: str) -> None:
        self.model_time[(name,)].add(record.upstream_ns / 1e9)
        self.tenant_dispatched[tenant, name] += 1
        self.tenant_units[tenant, name] += record.reserved_units
        self.tenant_tokens[tenant, "input"] += record.input_tokens
        self.tenant_tokens[tenant, "output"] += record.output_tokens
        self.tokens["input", "estimated"] += record.estimated_input_tokens
        self.tokens["output", "estimated"] += record.estimated_output_tokens
        self.tokens["input", "actual"] += record.input_tokens
        self.tokens["output", "actual"] += record.output_tokens
        if record.tool_calls:
            self.tools["calls", "declared"] += record.tool_calls
        if record.tool_seconds:
            self.tools["seconds", "declared"] += record.tool_seconds
        if self._price is not None:
            cost = self._price(record.model, record.input_tokens, record.output_tokens)
            self.tenant_cost[(tenant,)] += cost

    def _enter_trouble(self, record: Record, name: str) -> None:
        if record.attempt:
            self.retries[name, str(min(record.attempt, MANY_ATTEMPTS))] += 1
        if record.wait_cause:
            self.causes[name, record.wait_cause] += 1
        if record.retry_after_s is not None:
            self.retry_delays[(name,)].add(record.retry_after_s)
        if record.outcome is Outcome.EXPIRED:
            self.missed[name, _where(record)] += 1
        if record.upstream_failed:
            self.provider_failures[(record.reason,)] += 1
        if record.dispatched and record.reason == _RECLAIMED:
            self.reclaimed[(name,)] += 1


def _where(record: Record) -> str:
    """Where the deadline ended it: before it was let in, while it waited, or while it was served."""
    if record.dispatched and not record.waiting:
        return "service"
    return "queue" if record.admitted else "admission"
