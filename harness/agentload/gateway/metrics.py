"""What the gateway tells Prometheus. SHELL.

Nothing is counted here: a scrape reads the scheduler's snapshot and the books, so that all numbers of one
scrape are of one instant. Every label has a bounded set of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from agentload.gateway.books import Books
from agentload.gateway.boundaries import Boundary, boundaries
from agentload.gateway.histogram import Histogram
from agentload.gateway.job_figures import JobFigures
from agentload.scheduler.snapshot import ClassSnapshot, PoolSnapshot, Snapshot

PREFIX = "agentload_gateway_"
Rows: TypeAlias = dict[tuple[str, ...], float]
"""By label values, in the order of the labels' names."""

_OF_CLASS: dict[str, tuple[str, Callable[[ClassSnapshot], float]]] = {
    "in_flight": ("Calls at the provider", lambda one: one.running),
    "queue_units": ("Work units in the queue", lambda one: one.waiting_units),
    "queue_bytes": ("Bytes of bodies in the queue", lambda one: one.waiting_bytes),
    "reserved_units": ("Work units held by calls in flight", lambda one: one.reserved_units),
    "nominal_units": ("Work units that the class is due", lambda one: one.nominal_units),
    "floor_units": ("Work units that nobody else may use", lambda one: one.floor_units),
    "borrowed_units": ("Work units held beyond what the class is due", lambda one: one.borrowed_units),
}
_OF_POOL: dict[str, tuple[str, Callable[[PoolSnapshot], float]]] = {
    "capacity_units": ("Work units of the pool", lambda pool: pool.capacity_units),
    "capacity_slots": ("Calls in flight that the pool allows", lambda pool: pool.slots),
    "pool_reserved_units": ("Work units reserved", lambda pool: pool.reserved_units),
    "pool_reserved_slots": ("Slots reserved", lambda pool: pool.reserved_slots),
    "scale_out_advised": (
        "1 when more slots or units would help while the provider has room",
        lambda pool: pool.scale_out,
    ),
    "leases": ("Calls that hold capacity", lambda pool: pool.leases),
    "lease_age_seconds": (
        "For how long the longest silent call has not been heard of",
        lambda pool: pool.lease_age_ns / 1e9,
    ),
}


class Metrics:
    """The registry of one gateway."""

    def __init__(self, books: Books, look: Callable[[], Snapshot]) -> None:
        self.registry = CollectorRegistry()
        self.jobs: Callable[[], JobFigures] | None = None
        """Where the durable jobs' numbers come from; None while there are no jobs."""
        self._books = books
        self._look = look
        ProcessCollector(registry=self.registry)
        self.registry.register(_Collected(self._families))

    def text(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)

    def _families(self) -> Iterator[Metric]:
        seen = self._look()
        jobs = self.jobs() if self.jobs is not None else None
        yield from _conservation(seen, self._books)
        yield from _counted(self._books)
        yield from _timed(self._books)
        yield from _classes(seen)
        yield from _pools(seen)
        yield from _provider(seen)
        yield from _boundaries(boundaries(seen, jobs))
        if jobs is not None:
            yield from _jobs(jobs)


class _Collected(Collector):
    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked when it is registered."""
        return ()


def _counter(name: str, text: str, labels: str, rows: Mapping[tuple[str, ...], float]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=labels.split())
    for values, count in rows.items():
        family.add_metric(values, count)
    return family


def _gauge(name: str, text: str, labels: str, rows: Mapping[tuple[str, ...], float]) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels.split())
    for values, value in rows.items():
        family.add_metric(values, value)
    return family


def _histogram(name: str, text: str, labels: str, rows: Mapping[tuple[str, ...], Histogram]) -> Metric:
    family = HistogramMetricFamily(PREFIX + name, text, labels=labels.split())
    for values, one in rows.items():
        family.add_metric(values, one.cumulative(), one.total_s)
    return family


def _one(value: float) -> Rows:
    return {(): value}


def unaccounted(seen: Snapshot, books: Books) -> int:
    """Requests that the scheduler has let in and that neither are open nor have ended; 0, or there is a
    defect."""
    return seen.counters.admitted - round(sum(books.ended.values())) - seen.waiting - seen.running


def _conservation(seen: Snapshot, books: Books) -> Iterator[Metric]:
    """offered = refused + admitted; admitted = ended (all states) + waiting + running. At any instant."""
    c = seen.counters
    yield _counter("offered", "Requests that the scheduler was asked for", "", _one(c.offered))
    yield _counter("admitted", "Requests dispatched at once or let into a queue", "", _one(c.admitted))
    refused: Rows = {(reason.value,): float(count) for reason, count in c.refused_by.items()}
    yield _counter("refused", "Requests never let in, by reason", "reason", refused)
    ended: Rows = {
        ("completed",): float(c.completed),
        ("failed",): float(c.failed),
        ("expired",): float(c.expired),
        ("cancelled",): float(c.cancelled),
        ("evicted",): float(c.evicted),
    }
    yield _counter("ended", "Admitted requests that have ended, by state", "state", ended)
    yield _counter("call_retries", "Calls that failed and went back to their queue", "", _one(c.retried))
    yield _gauge("waiting", "Requests in a queue", "", _one(seen.waiting))
    yield _gauge("running", "Requests dispatched and not ended", "", _one(seen.running))
    yield _gauge(
        "unaccounted",
        "Requests let in that neither are open nor in the books as ended: 0, or something is lost",
        "",
        _one(unaccounted(seen, books)),
    )


def _counted(books: Books) -> Iterator[Metric]:
    yield _counter(
        "decisions",
        "Admission decisions on requests that have ended",
        "service_class decision reason",
        books.decisions,
    )
    yield _counter("class_ended", "Admitted requests that have ended", "service_class state", books.ended)
    yield _counter("requests", "Ended requests", "service_class outcome reason status", books.requests)
    yield _counter("retries", "Requests that came as a retry", "service_class attempt", books.retries)
    yield _counter(
        "deadline_misses", "Requests that their deadline ended", "service_class where", books.missed
    )
    yield _counter(
        "waits_explained", "Slow and load-refused requests by cause", "service_class cause", books.causes
    )
    yield _counter(
        "provider_failures", "Calls that the provider is to blame for", "reason", books.provider_failures
    )
    yield _counter("lease_reclaims", "Calls whose lease ran out", "service_class", books.reclaimed)
    yield _counter("tokens", "Tokens of dispatched requests", "direction kind", books.tokens)
    yield _counter("tools", "Tool work of dispatched requests", "what kind", books.tools)
    yield _counter("tenant_requests", "Ended requests", "tenant outcome", books.tenant_requests)
    yield _counter(
        "tenant_dispatched", "Requests sent to the provider", "tenant service_class", books.tenant_dispatched
    )
    yield _counter(
        "tenant_work_units", "Work units reserved at dispatch", "tenant service_class", books.tenant_units
    )
    yield _counter("tenant_tokens", "Tokens charged", "tenant direction", books.tenant_tokens)
    if books.tenant_cost:
        yield _counter(
            "tenant_cost", "What calls cost, by the configured prices", "tenant", books.tenant_cost
        )


def _timed(books: Books) -> Iterator[Metric]:
    yield _histogram(
        "queue_wait_seconds", "Arrival to dispatch, or to the end", "service_class tenant", books.waits
    )
    yield _histogram("model_seconds", "Dispatch to the end", "service_class", books.model_time)
    yield _histogram(
        "retry_delay_seconds", "What refused callers were told to wait", "service_class", books.retry_delays
    )


def _classes(seen: Snapshot) -> Iterator[Metric]:
    for name, (text, read) in _OF_CLASS.items():
        rows: Rows = {(cls,): float(read(one)) for cls, one in seen.classes.items()}
        yield _gauge(name, text, "service_class", rows)


def _pools(seen: Snapshot) -> Iterator[Metric]:
    for name, (text, read) in _OF_POOL.items():
        rows: Rows = {(pool,): float(read(one)) for pool, one in seen.pools.items()}
        yield _gauge(name, text, "pool", rows)
    yield _gauge("tenants_held", "Tenants that state is kept for", "", _one(seen.tenants_held))


def _provider(seen: Snapshot) -> Iterator[Metric]:
    provider = seen.provider
    yield _counter(
        "provider_refusals",
        "Times that the provider said 429 or 503",
        "",
        _one(seen.counters.provider_refusals),
    )
    yield _gauge(
        "provider_paused_seconds", "How long dispatching is still paused", "", _one(provider.paused_ns / 1e9)
    )
    for name, level in (("tokens", provider.tokens), ("requests", provider.requests)):
        if level is not None:
            yield _gauge(f"provider_{name}_left", f"{name.capitalize()} in our bucket", "", _one(level))


def _boundaries(found: list[Boundary]) -> Iterator[Metric]:
    """At each boundary how many wait, and since when the oldest: alert on the age."""
    rows = {(one.boundary, one.name): one for one in found}
    yield _gauge(
        "queue_depth", "What waits", "boundary queue", {key: float(one.depth) for key, one in rows.items()}
    )
    yield _gauge(
        "queue_age_seconds",
        "Age of the oldest that waits",
        "boundary queue",
        {key: one.age_ns / 1e9 for key, one in rows.items()},
    )
    yield _gauge(
        "queue_max_wait_seconds",
        "The age at which one is given up",
        "boundary queue",
        {key: one.max_wait_ns / 1e9 for key, one in rows.items() if one.max_wait_ns is not None},
    )


def _jobs(jobs: JobFigures) -> Iterator[Metric]:
    states: Rows = {(state,): float(count) for state, count in jobs.states.items()}
    yield _gauge("jobs", "Durable jobs by state", "state", states)
    yield _gauge("job_lease_age_seconds", "The longest silent worker's", "", _one(jobs.lease_age_ns / 1e9))
    yield _counter("job_lease_reclaims", "Jobs taken over from a silent worker", "", _one(jobs.reclaims))
    yield _counter("job_step_limits", "Runs ended by their step limit", "", _one(jobs.step_limits))
    yield _counter("job_tool_seconds", "Time spent in tools", "", _one(jobs.tool_ns / 1e9))
    yield _counter("job_tool_calls", "Tool calls made", "", _one(jobs.tool_calls))
    yield _counter("job_attempts", "Attempts beyond a job's first", "", _one(jobs.retries))
