"""Every job this process knows: by id, by number, by its caller's key, and how many there are. PURE."""

from __future__ import annotations

from collections import deque

from agentload.gateway.jobs.lifecycle import JobLifecycle
from agentload.gateway.jobs.model import Job

_OVERHEAD_BYTES = 512
"""What a job costs beside its texts, about."""


def size_bytes(job: Job) -> int:
    """What holding it costs, about."""
    return _OVERHEAD_BYTES + sum(
        len(step.chat.body if step.chat is not None else step.tool.payload if step.tool is not None else b"")
        for step in job.steps
    )


class Registry:
    """Jobs. Those that have ended are kept for a while, and then forgotten."""

    def __init__(self) -> None:
        self.by_id: dict[str, JobLifecycle] = {}
        self.by_number: dict[int, JobLifecycle] = {}
        self.bytes = 0
        """Of jobs that have not ended."""
        self.last_number = 0
        self._by_key: dict[tuple[str, str], JobLifecycle] = {}
        self._open: dict[tuple[str, str], int] = {}
        self._open_of_class: dict[str, int] = {}
        self._sizes: dict[int, int] = {}
        self._ended: deque[JobLifecycle] = deque()

    def add(self, lifecycle: JobLifecycle) -> None:
        """A job that has not ended, or one that has, found in the store."""
        job = lifecycle.job
        self.by_id[job.id] = lifecycle
        self.by_number[job.number] = lifecycle
        self.last_number = max(self.last_number, job.number)
        if job.key is not None:
            self._by_key[job.tenant, job.key] = lifecycle
        if job.state.ended:
            self._ended.append(lifecycle)
            return
        self._sizes[job.number] = size = size_bytes(job)
        self.bytes += size
        self._count(job, 1)

    def with_key(self, tenant: str, key: str | None) -> JobLifecycle | None:
        """The tenant's job that came with that key."""
        return None if key is None else self._by_key.get((tenant, key))

    def open_of(self, service_class: str, tenant: str) -> int:
        """The tenant's jobs in the class that have not ended."""
        return self._open.get((service_class, tenant), 0)

    def open_of_class(self, service_class: str) -> int:
        """Jobs of the class that have not ended."""
        return self._open_of_class.get(service_class, 0)

    @property
    def open(self) -> int:
        """Jobs that have not ended."""
        return len(self._sizes)

    @property
    def ended(self) -> int:
        """Jobs that have ended and are kept."""
        return len(self._ended)

    def end(self, lifecycle: JobLifecycle) -> None:
        """It has ended, and is kept."""
        self._close(lifecycle.job)
        self._ended.append(lifecycle)

    def drop(self, lifecycle: JobLifecycle) -> None:
        """It is not ours, or never came to be."""
        self._close(lifecycle.job)
        self._forget(lifecycle)

    def pop_stale(self, before_ns: int, most: int) -> JobLifecycle | None:
        """Forget one that ended before an instant, or is one too many; None when there is none."""
        if not self._ended:
            return None
        if len(self._ended) <= most and self._ended[0].job.ended_at_ns > before_ns:
            return None
        lifecycle = self._ended.popleft()
        self._forget(lifecycle)
        return lifecycle

    def oldest_end_ns(self) -> int | None:
        """When the first of those that are kept ended."""
        return self._ended[0].job.ended_at_ns if self._ended else None

    def _forget(self, lifecycle: JobLifecycle) -> None:
        job = lifecycle.job
        self.by_id.pop(job.id, None)
        self.by_number.pop(job.number, None)
        if job.key is not None:
            self._by_key.pop((job.tenant, job.key), None)

    def _close(self, job: Job) -> None:
        size = self._sizes.pop(job.number, None)
        if size is not None:
            self.bytes -= size
            self._count(job, -1)

    def _count(self, job: Job, by: int) -> None:
        pair = (job.service_class, job.tenant)
        self._open[pair] = self._open.get(pair, 0) + by
        if not self._open[pair]:
            del self._open[pair]
        self._open_of_class[job.service_class] = self._open_of_class.get(job.service_class, 0) + by
