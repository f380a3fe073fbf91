"""What one worker counts and measures between two reports. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentload.drivers.protocol import Counts, Histogram
from agentload.measure import Recorder
from agentload.model import Outcome, RequestRecord

LATENCY = "latency"
"""Of an attempt, from the instant it was due."""
SERVICE = "service"
"""Of an attempt, from the instant it was sent."""
LOGICAL = "logical"
"""Of a logical request, from the instant its first attempt was due to the end of its last."""
FIRST_TOKEN = "first-token"
"""From the instant an attempt was due to its first token."""
INTER_TOKEN = "inter-token"
"""Between one arrival of tokens and the next, in a stream."""
LATENESS = "lateness"
"""From the instant an attempt was due to the instant it was sent: ours, not the target's."""

Record = Callable[[int], None]


class Tally:
    """Counts go on for the whole run; durations are handed over and begin anew.

    Outcomes never share a distribution, and unrecorded phases (warm-ups) are counted but not measured.
    """

    def __init__(self, unrecorded_phases: Iterable[str] = (), unplanned: Iterable[str] = ()) -> None:
        """`unplanned`: tenants of users' own code, due when they send: no lateness."""
        self.counts: dict[str, Counts] = {}
        self._changed: set[str] = set()
        self._recorders: dict[tuple[str, str, str], Recorder] = {}
        self._by_outcome: dict[tuple[str, Outcome], tuple[Record, Record, Record, Record]] = {}
        self._unrecorded = frozenset(unrecorded_phases)
        self._unplanned = frozenset(unplanned)

    def of(self, tenant: str) -> Counts:
        """A tenant's counts, to be counted up; they go into the next report."""
        self._changed.add(tenant)
        counts = self.counts.get(tenant)
        if counts is None:
            counts = self.counts[tenant] = Counts()
        return counts

    def ended(self, record: RequestRecord) -> None:
        """The record of an attempt."""
        counts = self.of(record.tenant)
        outcome = record.outcome
        counts.outcomes[outcome] = counts.outcomes.get(outcome, 0) + 1
        if record.final:
            counts.ended[outcome] = counts.ended.get(outcome, 0) + 1
        if outcome is not Outcome.UNSENT and record.phase not in self._unrecorded:
            self._measure(record)

    def token_gaps(self, tenant: str, phase: str, arrivals_ns: list[int]) -> None:
        """When the tokens of one stream arrived."""
        if phase not in self._unrecorded and len(arrivals_ns) > 1:
            record = self._recorder(tenant, INTER_TOKEN, "").record
            before_ns = arrivals_ns[0]
            for at_ns in arrivals_ns[1:]:
                record((at_ns - before_ns) // 1000)
                before_ns = at_ns

    def take(self) -> tuple[dict[str, Counts], list[Histogram]]:
        """The counts of tenants that changed since the last call, and the durations since then."""
        counts = {tenant: self.counts[tenant] for tenant in self._changed}
        histograms = [
            Histogram(*key, recorder.state()) for key, recorder in self._recorders.items() if recorder.cells
        ]
        self._changed, self._recorders, self._by_outcome = set(), {}, {}
        return counts, histograms

    def _measure(self, record: RequestRecord) -> None:
        recorders = self._by_outcome.get((record.tenant, record.outcome))
        if recorders is None:
            recorders = self._recorders_of(record.tenant, record.outcome)
        lateness, latency, service, logical = recorders
        due_ns, sent_ns, ended_ns = record.due_ns, record.sent_ns, record.ended_ns
        if record.tenant not in self._unplanned:
            lateness((sent_ns - due_ns) // 1000)
        latency((ended_ns - due_ns) // 1000)
        service((ended_ns - sent_ns) // 1000)
        if record.final:
            logical((ended_ns - record.first_due_ns) // 1000)
        if record.first_token_ns is not None and record.stream:
            first_token = self._recorder(record.tenant, FIRST_TOKEN, record.outcome.value)
            first_token.record((record.first_token_ns - due_ns) // 1000)

    def _recorders_of(self, tenant: str, outcome: Outcome) -> tuple[Record, Record, Record, Record]:
        """Those that every attempt needs, looked up once between two reports."""
        found = (
            self._recorder(tenant, LATENESS, "").record,
            self._recorder(tenant, LATENCY, outcome.value).record,
            self._recorder(tenant, SERVICE, outcome.value).record,
            self._recorder(tenant, LOGICAL, outcome.value).record,
        )
        self._by_outcome[tenant, outcome] = found
        return found

    def _recorder(self, tenant: str, metric: str, outcome: str) -> Recorder:
        key = (tenant, metric, outcome)
        recorder = self._recorders.get(key)
        if recorder is None:
            recorder = self._recorders[key] = Recorder()
        return recorder
