"""Which jobs are leased to this process, and when their leases are renewed. PURE."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from agentload.gateway.jobs.lifecycle import JobLifecycle
from agentload.gateway.jobs.model import NS
from agentload.gateway.jobs.store import Renew
from agentload.scheduler.jobs_config import JobsSettings


class Leases:
    """Leases that are held; all are renewed together. All times are Unix times in nanoseconds."""

    def __init__(self, settings: JobsSettings) -> None:
        self.due_ns: int | None = None
        """When they are renewed next; None: none is held."""
        self._lease_ns = round(settings.lease_s * NS)
        self._beat_ns = round(settings.beat_s * NS)
        self._held: dict[int, JobLifecycle] = {}
        """By number."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held(self) -> Collection[JobLifecycle]:
        """Jobs with a step in service."""
        return self._held.values()

    def take(self, at_ns: int, lifecycle: JobLifecycle) -> None:
        """Its step is in service from now on."""
        self._held[lifecycle.job.number] = lifecycle
        if self.due_ns is None:
            self.due_ns = at_ns + self._beat_ns

    def give_up(self, number: int) -> None:
        """Its step is in service no more."""
        del self._held[number]

    def renewals(self, at_ns: int) -> Iterator[tuple[JobLifecycle, Renew]]:
        """Every lease that is held, for one more period. (One that lapsed has been taken away already.)"""
        until_ns = at_ns + self._lease_ns
        for lifecycle in self._held.values():
            yield lifecycle, Renew(lifecycle.job.id, lifecycle.job.token, until_ns)
        self.due_ns = at_ns + self._beat_ns if self._held else None
