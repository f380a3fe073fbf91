"""latency.hlog of a simulated run: what a live run's workers measure, second by second, from its records."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TextIO

from agentload.drivers.tally import Tally
from agentload.measure import IntervalLog, Recorder
from agentload.model import NS, Profile, RequestRecord


def write_latencies(
    profile: Profile, records: Iterable[RequestRecord], stream: TextIO, start_unix_s: float
) -> None:
    """An HdrHistogram V2 interval log with a line for each second, tenant, metric and outcome."""
    log = IntervalLog(stream, start_unix_s)
    tally = Tally(phase.name for phase in profile.phases if not phase.record)
    in_order = sorted(records, key=lambda record: record.ended_ns)
    for second, ended in groupby(in_order, key=lambda record: record.ended_ns // NS):
        for record in ended:
            tally.ended(record)
        for histogram in tally.take()[1]:
            parts = (histogram.tenant, histogram.metric, histogram.outcome)
            tag = "/".join(part for part in parts if part)
            log.write(tag, float(second), 1.0, Recorder.from_state(histogram.state))
