"""What refused callers were promised, and what they found when they came back."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agentload.evidence.history import LogicalRequest, counted_phases, logical_requests
from agentload.model import NS, Outcome, RequestRecord, Run

INVITING = frozenset({429, 503})
"""Refusals whose Retry-After is a promise of service."""
_PUNCTUAL_NS = 50_000_000
"""A client that is back within 50 ms of the promised instant waited exactly as long as it was told."""


class Promise(msgspec.Struct, frozen=True, gc=False):
    """A refusal with a Retry-After of more than 0 seconds, and the attempt that followed it, if any did."""

    refusal: RequestRecord
    wait_s: float
    retry: RequestRecord | None

    @property
    def made_ns(self) -> int:
        """When it was made."""
        return self.refusal.ended_ns

    @property
    def due_ns(self) -> int:
        """When a client that obeys to the letter is back."""
        return self.refusal.ended_ns + round(self.wait_s * NS)

    @property
    def waited_part(self) -> float | None:
        """Which part of the promise the client waited before it came back; None when it never did."""
        if self.retry is None:
            return None
        return (self.retry.due_ns - self.made_ns) / (self.due_ns - self.made_ns)

    @property
    def kept_to(self) -> bool:
        """Whether the client came back exactly as promised (within 50 ms)."""
        return self.retry is not None and abs(self.retry.due_ns - self.due_ns) <= _PUNCTUAL_NS

    @property
    def served(self) -> bool:
        """Whether the attempt that followed was answered."""
        return self.retry is not None and self.retry.outcome is Outcome.ANSWERED


def promises(run: Run) -> list[Promise]:
    """Every promise made in the phases that checks count, in the order in which they were made."""
    phases = set(counted_phases(run))
    requests = logical_requests(record for record in run.records if record.phase in phases)
    found = [promise for request in requests for promise in _of(request)]
    found.sort(key=lambda promise: (promise.made_ns, promise.refusal.seq))
    return found


def _of(request: LogicalRequest) -> Iterable[Promise]:
    followers: list[RequestRecord | None] = [*request.attempts[1:], None]
    for record, follower in zip(request.attempts, followers, strict=True):
        wait_s = record.retry_after_s
        if record.status in INVITING and wait_s is not None and wait_s > 0:
            yield Promise(record, wait_s, follower)
