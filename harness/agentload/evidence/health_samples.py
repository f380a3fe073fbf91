"""What an orchestrator would have seen of the gateway's health page: a sample for each time it was asked."""

from __future__ import annotations

from collections.abc import Iterable

from agentload.model import NS, Sample

SOURCE = "health"
STATUS, TOOK_S = "status", "took_s"
EVERY_NS = NS
"""From one probe to the next; the next but one where an answer takes longer. Orchestrators ask every one to
ten seconds: this is no load."""
PATIENCE_NS = 5 * NS
"""So long an answer is waited for, whatever a check makes of it."""


def sample(sent_ns: int, ended_ns: int, status: int) -> Sample:
    """One probe, dated by when it was sent; `status` 0: no answer came, or the connection was refused."""
    took_s = (ended_ns - sent_ns) / NS
    return Sample(at_ns=sent_ns, source=SOURCE, values={STATUS: float(status), TOOK_S: took_s})


def next_due_ns(sent_ns: int, now_ns: int) -> int:
    """When the next probe is due, after one that was sent at `sent_ns` and has ended now."""
    return sent_ns + EVERY_NS * max(1, -((sent_ns - now_ns) // EVERY_NS))


def samples_of(samples: Iterable[Sample]) -> list[Sample]:
    """The probes among them, in order."""
    return sorted((one for one in samples if one.source == SOURCE), key=lambda one: one.at_ns)
