"""The master's books: workers' reports in; files, progress and the generator's health out.

Knows no Locust and no clock: it is handed reports and told the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from io import FileIO
from pathlib import Path

from agentload.drivers import health
from agentload.drivers.protocol import Counts, Histogram, Progress, Report, TenantProgress, WorkerState
from agentload.drivers.tally import LATENESS, LOGICAL
from agentload.drivers.withheld import told
from agentload.measure import IntervalLog, Recorder
from agentload.model import GeneratorHealth, Outcome, Stall
from agentload.storage import TornError, append_lines, storage_error

RECENT_NS = 5_000_000_000
PERCENTILES = (50.0, 95.0, 99.0)
Key = tuple[str, str, str]
"""Tenant, metric, outcome."""


class Files:
    """`records.jsonl`, `jobs.jsonl` and `latency.hlog` of a run folder; what was written survives anyone's
    death."""

    def __init__(self, folder: Path, start_unix_s: float) -> None:
        """Raises StorageError when the folder cannot be written."""
        self.folder = folder
        try:
            self._records = (folder / "records.jsonl").open("ab", buffering=0)
            self._jobs: FileIO | None = None
            self._latencies = (folder / "latency.hlog").open("w", encoding="utf-8")
            self._log = IntervalLog(self._latencies, start_unix_s)
        except OSError as error:
            raise storage_error(error, folder, "") from error

    def append(self, lines: bytes) -> None:
        """Records as JSON lines. Raises StorageError."""
        self._write(self._records, lines, "records.jsonl")

    def append_jobs(self, lines: bytes) -> None:
        """Records of durable jobs as JSON lines; no file without any. Raises StorageError."""
        if not lines:
            return
        try:
            self._jobs = self._jobs or (self.folder / "jobs.jsonl").open("ab", buffering=0)
        except OSError as error:
            raise storage_error(error, self.folder / "jobs.jsonl", "") from error
        self._write(self._jobs, lines, "jobs.jsonl")

    def _write(self, file: FileIO, lines: bytes, name: str) -> None:
        try:
            append_lines(file.fileno(), lines)
        except TornError as torn:
            raise storage_error(torn.because, self.folder / name, "") from torn

    def interval(self, start_s: float, length_s: float, recorders: Mapping[Key, Recorder]) -> None:
        """One interval of the latency log. Raises StorageError."""
        try:
            for key, recorder in recorders.items():
                self._log.write("/".join(part for part in key if part), start_s, length_s, recorder)
            self._latencies.flush()
        except OSError as error:
            raise storage_error(error, self.folder / "latency.hlog", "") from error

    def close(self) -> None:
        """Close them."""
        self._records.close()
        if self._jobs is not None:
            self._jobs.close()
        self._latencies.close()


class WorkerBook:
    """What is known of one worker."""

    def __init__(self, scheduled: int) -> None:
        self.counts: dict[str, Counts] = {}
        self.state = WorkerState(scheduled=scheduled)
        self.sequence = 0
        self.records_total = 0
        self.final = False
        self.lost: str | None = None
        """Why it is gone; None while it is there, or ended as it should."""

    @property
    def unaccounted(self) -> int:
        """Logical requests of its shard whose end is unknown."""
        ended = sum(sum(counts.ended.values()) for counts in self.counts.values())
        return max(0, self.state.scheduled - ended)


class Collector:
    """Merges what the workers report."""

    def __init__(
        self, files: Files, tenants: list[str], scheduled: Mapping[int, int], in_flight_cap: int
    ) -> None:
        """`scheduled`: arrivals by worker index."""
        self.files = files
        self.tenants = tenants
        self.in_flight_cap = in_flight_cap
        self.workers = {index: WorkerBook(n) for index, n in scheduled.items()}
        self.records = 0
        self.records_lost = 0
        self.stalls: list[Stall] = []
        self.totals: dict[Key, Recorder] = {}
        self._interval: dict[Key, Recorder] = {}
        self._interval_start_ns = 0
        self._recent: deque[tuple[int, list[Histogram]]] = deque()

    def report(self, report: Report, now_ns: int) -> None:
        """Take in one report. Raises StorageError; a report seen before is ignored."""
        book = self.workers.get(report.index)
        if book is None or report.sequence <= book.sequence:
            return
        self.files.append(report.records)
        self.files.append_jobs(report.jobs)
        self._count_records(book, report)
        book.counts.update(report.counts)
        book.state, book.sequence, book.final = report.state, report.sequence, report.final
        self.stalls += report.stalls
        self._merge(report.histograms)
        self._recent.append((now_ns, [h for h in report.histograms if h.metric == LOGICAL]))

    def lose(self, index: int, because: str) -> None:
        """A worker is gone, and what it had not reported with it."""
        book = self.workers[index]
        if book.lost is None and not book.final:
            book.lost = because
            self.records_lost += book.unaccounted

    def settled(self) -> bool:
        """Every worker has said its last word or is gone."""
        return all(book.final or book.lost for book in self.workers.values())

    def end_interval(self, now_ns: int) -> None:
        """Write the durations since the last call to the latency log. Raises StorageError."""
        start_s, length_s = self._interval_start_ns / 1e9, (now_ns - self._interval_start_ns) / 1e9
        self.files.interval(start_s, max(0.0, length_s), self._interval)
        self._interval, self._interval_start_ns = {}, now_ns

    def progress(self, now_ns: int) -> Progress:
        """The state of the run for a live view."""
        counts = self._counts()
        recent = self._recent_logical(now_ns)
        lateness = self.lateness().percentiles_us((50.0, 99.0))
        return Progress(
            at_ns=now_ns,
            tenants=[
                self._tenant(name, counts.get(name, Counts()), recent.get(name)) for name in self.tenants
            ],
            scheduled=self._sum("scheduled"),
            issued=self._sum("issued"),
            in_flight=sum(one.in_flight for one in counts.values()),
            workers=sum(1 for book in self.workers.values() if book.lost is None),
            lateness_p50_ms=_ms(lateness[0]),
            lateness_p99_ms=_ms(lateness[1]),
        )

    def health(self, baseline_p50_ms: float | None = None) -> GeneratorHealth:
        """Whether the load was generated as planned."""
        states = [book.state for book in self.workers.values()]
        return health.assess(
            GeneratorHealth(
                scheduled=self._sum("scheduled"),
                issued=self._sum("issued"),
                lateness_ms=self.lateness().distribution(),
                trustworthy=False,
                stalls=sorted(self.stalls, key=lambda stall: stall.start_ns),
                run_queue_wait=max((state.run_queue_wait for state in states), default=0.0),
                cpu=max((state.cpu for state in states), default=0.0),
                peak_in_flight=self._sum("peak_in_flight"),
                in_flight_cap=self.in_flight_cap,
                capped=self._sum("capped"),
                workers=len(self.workers),
                workers_lost=sum(1 for book in self.workers.values() if book.lost is not None),
                records_lost=self.records_lost,
                withheld=told(kind for state in states for kind in state.withheld),
            ),
            baseline_p50_ms,
        )

    def user_errors(self) -> dict[str, int]:
        """What tenants' own code raised, over all workers."""
        summed: dict[str, int] = {}
        for book in self.workers.values():
            for line, n in book.state.user_errors.items():
                summed[line] = summed.get(line, 0) + n
        return summed

    def ended_by_users(self) -> str | None:
        """Whose own code wants the run to end, of the first worker that says so."""
        said = (book.state.ended_by_users for book in self.workers.values())
        return next((because for because in said if because is not None), None)

    def lateness(self) -> Recorder:
        """Of all tenants' attempts in recorded phases."""
        merged = Recorder()
        for (_, metric, _), recorder in self.totals.items():
            if metric == LATENESS:
                merged.merge(recorder)
        return merged

    def _count_records(self, book: WorkerBook, report: Report) -> None:
        arrived = report.records.count(b"\n")
        self.records += arrived
        self.records_lost += max(0, report.records_total - book.records_total - arrived)
        book.records_total = report.records_total

    def _merge(self, histograms: list[Histogram]) -> None:
        for histogram in histograms:
            key = (histogram.tenant, histogram.metric, histogram.outcome)
            recorder = Recorder.from_state(histogram.state)
            for book in (self.totals, self._interval):
                if key not in book:
                    book[key] = Recorder()
                book[key].merge(recorder)

    def _counts(self) -> dict[str, Counts]:
        summed: dict[str, Counts] = {}
        for book in self.workers.values():
            for tenant, counts in book.counts.items():
                summed.setdefault(tenant, Counts()).add(counts)
        return summed

    def _recent_logical(self, now_ns: int) -> dict[str, Recorder]:
        while self._recent and self._recent[0][0] < now_ns - RECENT_NS:
            self._recent.popleft()
        merged: dict[str, Recorder] = {}
        for _, histograms in self._recent:
            for histogram in histograms:
                if histogram.outcome == Outcome.ANSWERED:
                    recorder = Recorder.from_state(histogram.state)
                    merged.setdefault(histogram.tenant, Recorder()).merge(recorder)
        return merged

    def _tenant(self, name: str, counts: Counts, recent: Recorder | None) -> TenantProgress:
        so_far = self.totals.get((name, LOGICAL, Outcome.ANSWERED.value), Recorder())
        p50, p95, p99 = (_ms(value) for value in so_far.percentiles_us(PERCENTILES))
        recent_p50, recent_p95, recent_p99 = (
            _ms(value) for value in (recent or Recorder()).percentiles_us(PERCENTILES)
        )
        answered = counts.ended.get(Outcome.ANSWERED, 0)
        return TenantProgress(
            tenant=name,
            offered=counts.offered,
            answered=answered,
            rejected=counts.outcomes.get(Outcome.REJECTED, 0),
            failed=sum(counts.ended.values()) - answered,
            retries=counts.retries,
            in_flight=counts.in_flight,
            p50_ms=p50,
            p95_ms=p95,
            p99_ms=p99,
            recent_p50_ms=recent_p50,
            recent_p95_ms=recent_p95,
            recent_p99_ms=recent_p99,
        )

    def _sum(self, field: str) -> int:
        return sum(getattr(book.state, field) for book in self.workers.values())


def _ms(value_us: int | None) -> float | None:
    return None if value_us is None else value_us / 1000
