"""What the retry storms have in common: a server that never stops work, exact timing, and three measures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from agentload.drivers.simulated.network import Timing
from agentload.evidence.expectations import Value
from agentload.evidence.history import LogicalRequest, answered_share, logical_requests
from agentload.gateway.lifecycle import RequestLifecycle, Step
from agentload.gateway.protocol import ClientLeft
from agentload.model import NS, Run

EXACT = Timing(one_way_ns=1_000, timer_grain_ns=1, sample_ns=0)
"""A server's capacity is what the experiment turns on: messages and timers must not cost any of it."""
WHOLE = 0.9
"""Share of the requests answered from which on the service counts as back."""


class NeverStops(RequestLifecycle):
    """Nothing tells it that a client has left: work that nobody waits for is done all the same.

    As in a database or a queue worker that knows its clients by their requests alone.
    """

    def handle(self, now_ns: int, event: object) -> Step:
        return [] if isinstance(event, ClientLeft) else super().handle(now_ns, event)


def due_in(run: Run, start_ns: int, end_ns: int) -> list[LogicalRequest]:
    """The logical requests first due in [start, end)."""
    records = (record for record in run.records if start_ns <= record.first_due_ns < end_ns)
    return logical_requests(records)


def end_goodput(run: Run, phase: str, seconds: float) -> Value:
    """Per cent of the requests due in the last `seconds` of a phase that were answered, whenever."""
    end_ns = run.profile.phase_window_ns(phase)[1]
    requests = due_in(run, end_ns - round(seconds * NS), end_ns)
    return 100 * answered_share(requests) if requests else None


def peak_amplification(run: Run) -> Value:
    """Attempts sent in the busiest second, per request wanted in a mean second."""
    sent = Counter(record.sent_ns // NS for record in run.records)
    wanted = sum(record.attempt == 0 for record in run.records)
    seconds = run.profile.duration_ns / NS
    return max(sent.values()) / (wanted / seconds) if wanted else None


def recovery_s(run: Run, after: str) -> Value:
    """Seconds of phase `after` until every second's requests are answered again (`WHOLE`), and stay so.

    +infinity when they are not in the phase's last second either.
    """
    start_ns, end_ns = run.profile.phase_window_ns(after)
    by_second: dict[int, list[LogicalRequest]] = {}
    for request in due_in(run, start_ns, end_ns):
        by_second.setdefault((request.first.first_due_ns - start_ns) // NS, []).append(request)
    return _last_bad(by_second, last=(end_ns - start_ns) // NS - 1) if by_second else None


def _last_bad(by_second: dict[int, list[LogicalRequest]], last: int) -> float:
    bad = max(_bad(by_second.items()), default=-1)
    return math.inf if bad >= last else float(bad + 1)


def _bad(seconds: Iterable[tuple[int, list[LogicalRequest]]]) -> Iterable[int]:
    return (second for second, requests in seconds if answered_share(requests) < WHOLE)
