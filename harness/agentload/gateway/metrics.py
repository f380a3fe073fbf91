"""What the gateway tells Prometheus. SHELL.

Every label has a bounded set of values: classes and reasons are ours, and tenants get a label of their own
only up to a number (`server.tenant_labels`), configured ones first and others once they have come often
enough.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from agentload.gateway.protocol import Record
from agentload.model import Outcome
from agentload.scheduler.snapshot import Snapshot

OTHER = "other"
_WAITS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_REGULAR_AFTER = 20
_CANDIDATES = 4_096


class TenantLabels:
    """Which tenants have a label of their own."""

    def __init__(self, configured: Iterable[str], most: int) -> None:
        self._named = set(list(configured)[:most])
        self._most = most
        self._seen: Tally[str] = Tally()

    def of(self, tenant: str) -> str:
        """The tenant's label. One that has once got its own keeps it, so that counters never go back."""
        if tenant in self._named:
            return tenant
        if len(self._named) >= self._most:
            return OTHER
        if len(self._seen) >= _CANDIDATES:
            self._seen.clear()
        self._seen[tenant] += 1
        if self._seen[tenant] >= _REGULAR_AFTER:
            self._named.add(tenant)
            del self._seen[tenant]
        return OTHER


class Metrics:
    """Counters and histograms of ended requests, and gauges of what waits and runs."""

    def __init__(self, labels: TenantLabels) -> None:
        self._labels = labels
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self._requests = counter("requests", "Ended requests", "service_class", "outcome", "reason", "status")
        self._dispatched = counter("dispatched", "Requests sent to the provider", "service_class")
        self._retried = counter("retried_arrivals", "Requests that came as a retry", "service_class")
        self._missed = counter("deadline_misses", "Requests that their deadline ended", "service_class")
        self._tenant_requests = counter("tenant_requests", "Ended requests by tenant", "tenant", "outcome")
        self._tenant_tokens = counter("tenant_tokens", "Tokens charged by tenant", "tenant", "direction")
        self._tokens = counter("tokens", "Tokens of requests sent to the provider", "direction", "kind")
        self._reserved = counter("reserved_units", "Work units reserved at dispatch", "service_class")
        self._wait = histogram("queue_wait_seconds", "Arrival to dispatch, or to the end", "service_class")
        self._upstream = histogram("upstream_seconds", "Dispatch to the end", "service_class")
        self._waiting = gauge("waiting", "Requests in the queue", "service_class")
        self._waiting_units = gauge("waiting_units", "Work units in the queue", "service_class")
        self._waiting_bytes = gauge("waiting_bytes", "Bytes of bodies in the queue", "service_class")
        self._oldest = gauge("oldest_wait_seconds", "Age of the oldest in the queue", "service_class")
        self._in_flight = gauge("in_flight", "Calls at the provider", "service_class")
        self._reserved_now = gauge("reserved_units_now", "Work units reserved", "service_class")
        self._capacity = gauge("capacity_units", "Work units of the pool", "pool")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"agentload_gateway_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"agentload_gateway_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"agentload_gateway_{name}", text, labels, registry=self.registry, buckets=_WAITS)

    def observe(self, record: Record) -> None:
        """Count one ended request."""
        name, tenant = record.service_class, self._labels.of(record.tenant)
        self._requests.labels(name, record.outcome.value, record.reason, str(record.status)).inc()
        self._tenant_requests.labels(tenant, record.outcome.value).inc()
        self._wait.labels(name).observe(record.waited_ns / 1e9)
        if record.attempt:
            self._retried.labels(name).inc()
        if record.outcome is Outcome.EXPIRED:
            self._missed.labels(name).inc()
        if record.dispatched:
            self._observe_call(record, tenant)

    def _observe_call(self, record: Record, tenant: str) -> None:
        self._dispatched.labels(record.service_class).inc()
        self._reserved.labels(record.service_class).inc(record.reserved_units)
        self._upstream.labels(record.service_class).observe(record.upstream_ns / 1e9)
        for direction, estimated, charged in (
            ("input", record.estimated_input_tokens, record.input_tokens),
            ("output", record.estimated_output_tokens, record.output_tokens),
        ):
            self._tokens.labels(direction, "estimated").inc(estimated)
            self._tokens.labels(direction, "charged").inc(charged)
            self._tenant_tokens.labels(tenant, direction).inc(charged)

    def read(self, snapshot: Snapshot) -> None:
        """Set the gauges from what the scheduler says."""
        for name, one in snapshot.classes.items():
            self._waiting.labels(name).set(one.waiting)
            self._waiting_units.labels(name).set(one.waiting_units)
            self._waiting_bytes.labels(name).set(one.waiting_bytes)
            self._oldest.labels(name).set(one.oldest_wait_ns / 1e9)
            self._in_flight.labels(name).set(one.running)
            self._reserved_now.labels(name).set(one.reserved_units)
        for name, pool in snapshot.pools.items():
            self._capacity.labels(name).set(pool.capacity_units)

    def text(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)
