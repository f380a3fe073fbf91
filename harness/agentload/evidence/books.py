"""The gateway's own counters against what clients and the provider saw.

An instant of the gateway is not an instant of the client: an answer is counted there, then travels, and is
seen here. So at every sample a counter must lie between what the clients had seen for certain a moment
before, and what they could have seen a moment after. Attempts whose answer nobody saw (the client left, the
connection broke) may be anything, but there are only so many of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import msgspec

from agentload.model import LedgerEntry, Outcome, RequestRecord, Sample
from agentload.scheduler.gauges import REFUSED
from agentload.scheduler.reasons import Reason

COMPLETED, FAILED, EVICTED, LATE = "completed", "failed", "evicted", "too late"
_LATE = (Reason.DEADLINE_UNMEETABLE, Reason.EXPIRED, Reason.MAX_WAIT)
"""The same word is said at the door and in the queue, and counted apart: only the sum can be compared."""
_UNSEEN = (Outcome.ABANDONED, Outcome.UNFINISHED, Outcome.TRUNCATED)
_AT_THE_DOOR = frozenset(reason.value for reason in Reason) - {Reason.LEASE_EXPIRED.value}
_NOT_OFFERED = frozenset(
    {
        "invalid_api_key",
        "invalid_header",
        "invalid_json",
        "invalid_request",
        "body_too_long",
        "unknown_service_class",
        "service_class_not_allowed",
    }
)
"""Refused before the scheduler was asked."""


class Off(msgspec.Struct, frozen=True):
    """Requests by which a counter cannot be right, at one sample."""

    requests: int
    at_ns: int
    what: str


def unbalanced(sample: Sample) -> Off:
    """By how much the counters of one sample contradict each other."""
    value = _reader(sample)
    offered = value("offered") - value("refused") - value("admitted")
    ended = sum(map(value, ("completed", "failed", "expired", "cancelled", "evicted")))
    open_now = round(sample.values["waiting"] + sample.values["in_flight"])
    lost = value("admitted") - ended - open_now
    unnamed = value("refused") - sum(
        round(n) for name, n in sample.values.items() if name.startswith(REFUSED)
    )
    found = (
        Off(abs(offered), sample.at_ns, f"offered is not refused + admitted, by {offered:,}"),
        Off(abs(lost), sample.at_ns, f"admitted is not ended + waiting + running, by {lost:,}"),
        Off(abs(unnamed), sample.at_ns, f"refusals by reason do not add up, by {unnamed:,}"),
    )
    return max(found, key=lambda off: off.requests)


def _reader(sample: Sample) -> Callable[[str], int]:
    def value(name: str) -> int:
        return round(sample.values[f"counted.{name}"])

    return value


class Witnesses:
    """What clients and the provider saw, ready to be asked for any instant."""

    def __init__(
        self, records: Iterable[RequestRecord], ledger: Iterable[LedgerEntry] | None, slack_ns: int
    ) -> None:
        """`slack_ns`: how far an instant of the gateway may be from one of theirs."""
        self._slack_ns = slack_ns
        self._seen: dict[str, list[int]] = {}
        self._unseen: list[int] = []
        """When attempts were sent whose answer nobody saw."""
        self._sent: list[int] = []
        self._answered: list[int] = []
        self._answered_sent: list[int] = []
        for record in records:
            self._add(record)
        self._calls = None if ledger is None else sorted(call.arrived_ns for call in ledger)
        for times in self._seen.values():
            times.sort()
        for times in (self._unseen, self._sent, self._answered, self._answered_sent):
            times.sort()

    def _add(self, record: RequestRecord) -> None:
        if record.outcome is Outcome.UNSENT or record.reason in _NOT_OFFERED:
            return
        self._sent.append(record.sent_ns)
        category = category_of(record)
        if category is None:
            self._unseen.append(record.sent_ns)
        else:
            self._seen.setdefault(category, []).append(record.ended_ns)
            self._answered.append(record.ended_ns)
            self._answered_sent.append(record.sent_ns)

    def worst(self, first: Sample, last: Sample) -> Off:
        """Between two samples: by how many requests the counters cannot be right."""
        return max(self._findings(first, last), key=lambda off: off.requests)

    def _findings(self, first: Sample, last: Sample) -> Sequence[Off]:
        counts = {name: n - _categories(first).get(name, 0) for name, n in _categories(last).items()}
        found = [Off(0, last.at_ns, "")]
        surplus = 0
        for name in sorted(counts.keys() | self._seen.keys()):
            times = self._seen.get(name, [])
            least, most = self._between(times, first.at_ns, last.at_ns)
            count = counts.get(name, 0)
            found.append(Off(least - count, last.at_ns, f"{name}: {count:,} counted, clients saw {least:,}"))
            surplus += max(0, count - most)
        # Whoever did not see an answer may have been any of these, each only once.
        hidden = self._between(self._unseen, first.at_ns, last.at_ns)[1] + self._open_before(first)
        what = f"{surplus:,} more counted than clients saw, and {hidden:,} saw no answer"
        found.append(Off(surplus - hidden, last.at_ns, what))
        return [*found, *self._totals(first, last)]

    def _totals(self, first: Sample, last: Sample) -> list[Off]:
        found: list[Off] = []
        offered = _reader(last)("offered") - _reader(first)("offered")
        # Answered by now, and not sent before the first sample.
        least = bisect_right(self._answered, last.at_ns - self._slack_ns)
        least -= bisect_right(self._answered_sent, first.at_ns + self._slack_ns)
        _, most = self._between(self._sent, first.at_ns, last.at_ns)
        found.append(
            Off(least - offered, last.at_ns, f"{offered:,} offered, clients were answered {least:,}")
        )
        found.append(Off(offered - most, last.at_ns, f"{offered:,} offered, clients sent {most:,}"))
        if self._calls is not None:
            least, _ = self._between(self._calls, first.at_ns, last.at_ns)
            count = _reader(last)("dispatched") - _reader(first)("dispatched")
            found.append(
                Off(least - count, last.at_ns, f"{count:,} dispatched, the provider saw {least:,} calls")
            )
        return found

    def _open_before(self, first: Sample) -> int:
        """Attempts without an answer that were sent before the first sample and may have ended since."""
        return bisect_right(self._unseen, first.at_ns)

    def _between(self, times: Sequence[int], start_ns: int, end_ns: int) -> tuple[int, int]:
        """How many at least, and at most, as the gateway dates them."""
        slack = self._slack_ns
        most = bisect_right(times, end_ns + slack) - bisect_right(times, start_ns - slack)
        least = bisect_right(times, end_ns - slack) - bisect_right(times, start_ns + slack)
        return max(0, least), most


def category_of(record: RequestRecord) -> str | None:
    """Under which count an answer that a client saw must be; None when it saw none."""
    if record.outcome is Outcome.ANSWERED:
        return COMPLETED
    if record.status == 0 or record.outcome in _UNSEEN or record.own_answer is False:
        return None
    reason = record.reason
    if reason == Reason.SHUTTING_DOWN:
        return None  # refused at the door, stopped while it waited, or in service: counted apart
    if reason == Reason.EVICTED:
        return EVICTED
    if reason in _LATE:
        return LATE
    return reason if reason in _AT_THE_DOOR else FAILED


def _categories(sample: Sample) -> dict[str, int]:
    """The gateway's counts, by the same names."""
    value = _reader(sample)
    counts = {
        name.removeprefix(REFUSED): round(n) for name, n in sample.values.items() if name.startswith(REFUSED)
    }
    late = sum(counts.pop(reason.value, 0) for reason in _LATE)
    return counts | {
        COMPLETED: value("completed"),
        FAILED: value("failed"),
        EVICTED: value("evicted"),
        LATE: value("expired") + late,
    }
