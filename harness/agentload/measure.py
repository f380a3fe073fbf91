"""Durations: recorded in HdrHistogram's own buckets, merged exactly, and written as HdrHistogram V2 logs.

The only importer of `hdrh`. Its recording costs 1.2 µs a value, drops values out of range, sets the minimum
to 0 when an empty histogram is added, rounds ranks down and cannot write tags; so recording, ranks, merging
and log lines are done here (0.3 µs a value), and `hdrh` encodes and decodes.

Layout and log format: http://hdrhistogram.org and the HdrHistogram Java sources (`HistogramLogWriter`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import msgspec
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from agentload.model import Distribution

HIGHEST_US = 3_600_000_000
"""One hour: longer durations are recorded as one hour and counted in `over`."""
SIGNIFICANT_DIGITS = 3
"""A recorded value is known to one part in 1,000 or better."""
SAMPLE_FLOORS: Mapping[float, int] = {50.0: 20, 95.0: 72, 99.0: 368, 99.9: 3_687}
"""Fewest samples from which a percentile may be stated. For p > 50: n with 1 - (p/100)**n >= 0.975, so that
the sample reaches beyond the percentile at all."""

_SUB_BUCKET_BITS = 11
_HALF_SUB_BUCKETS_LOG2 = 10
_NO_MINIMUM = 1 << 62


def rank(percentile: float, n: int) -> int:
    """Nearest rank, 1..n: the smallest r with r/n >= percentile/100, exact for percentiles of 4 decimals."""
    if n < 1 or not 0 <= percentile <= 100:
        raise ValueError(f"no rank for percentile {percentile} of {n} values")
    return max(1, -(-round(percentile * 10_000) * n // 1_000_000))


def percentile_of(ascending: Sequence[float], percentile: float) -> float:
    """The nearest-rank percentile of values already sorted; +infinity may be among them."""
    return ascending[rank(percentile, len(ascending)) - 1]


class RecorderState(msgspec.Struct, frozen=True, array_like=True):
    """What a Recorder holds, as it travels from a worker to the master."""

    cells: dict[int, int]
    total_us: int
    min_us: int
    max_us: int
    over: int = 0
    under: int = 0


class Recorder:
    """Counts durations in the buckets of HdrHistogram(1, 3,600,000,000, 3), in microseconds.

    Only the buckets in use are kept: hundreds of recorders, each emptied every second, stay cheap.
    """

    __slots__ = ("cells", "max_us", "min_us", "over", "total_us", "under")

    def __init__(self) -> None:
        self.cells: defaultdict[int, int] = defaultdict(int)
        self.total_us = 0
        self.min_us = _NO_MINIMUM
        self.max_us = 0
        self.over = 0
        """Values above an hour: recorded as an hour."""
        self.under = 0
        """Negative values (two clocks disagreed): recorded as 0."""

    def record(self, value_us: int) -> None:
        """Count one duration."""
        if value_us > HIGHEST_US:
            self.over += 1
            value_us = HIGHEST_US
        elif value_us < 0:
            self.under += 1
            value_us = 0
        bucket = value_us.bit_length() - _SUB_BUCKET_BITS
        if bucket < 0:
            bucket = 0
        self.cells[(bucket << _HALF_SUB_BUCKETS_LOG2) + (value_us >> bucket)] += 1
        self.total_us += value_us
        if value_us < self.min_us:
            self.min_us = value_us
        if value_us > self.max_us:
            self.max_us = value_us

    @property
    def count(self) -> int:
        """How many durations were recorded."""
        return sum(self.cells.values())

    def mean_us(self) -> float | None:
        """Exact mean (of the values after clamping), None when empty."""
        count = self.count
        return self.total_us / count if count else None

    def percentile_us(self, percentile: float) -> int | None:
        """Nearest-rank percentile: the highest value its bucket stands for, never above the maximum."""
        return self.percentiles_us((percentile,))[0]

    def percentiles_us(self, percentiles: Sequence[float]) -> list[int | None]:
        """Several percentiles in one pass, in the order asked for; Nones when empty."""
        count = self.count
        if not count:
            return [None] * len(percentiles)
        wanted = sorted((rank(p, count), position) for position, p in enumerate(percentiles))
        answers: list[int | None] = [None] * len(percentiles)
        cells = iter(sorted(self.cells.items()))
        index, seen = next(cells)
        for goal, position in wanted:
            while seen < goal:
                index, more = next(cells)
                seen += more
            answers[position] = min(highest_in_cell(index), self.max_us)
        return answers

    def distribution(self) -> Distribution:
        """p50, p95, p99 and p99.9 in milliseconds, each None below its sample floor."""
        count = self.count
        values = self.percentiles_us(tuple(SAMPLE_FLOORS))
        stated = [
            None if value is None or count < floor else value / 1000
            for value, floor in zip(values, SAMPLE_FLOORS.values(), strict=True)
        ]
        return Distribution(p50=stated[0], p95=stated[1], p99=stated[2], p999=stated[3], n=count)

    def merge(self, other: Recorder) -> None:
        """Add another recorder's values: the result is as if every value had been recorded here."""
        if not other.cells:
            return
        for index, count in other.cells.items():
            self.cells[index] += count
        self.total_us += other.total_us
        self.min_us = min(self.min_us, other.min_us)
        self.max_us = max(self.max_us, other.max_us)
        self.over += other.over
        self.under += other.under

    def state(self) -> RecorderState:
        """Its contents, for sending. The cells are shared, not copied: drop the recorder or send at once."""
        return RecorderState(self.cells, self.total_us, self.min_us, self.max_us, self.over, self.under)

    @classmethod
    def from_state(cls, state: RecorderState) -> Recorder:
        """The recorder that `state` was taken from."""
        recorder = cls()
        recorder.cells.update(state.cells)
        recorder.total_us, recorder.min_us, recorder.max_us = state.total_us, state.min_us, state.max_us
        recorder.over, recorder.under = state.over, state.under
        return recorder

    def to_hdr(self) -> Any:
        """The same counts as an `hdrh.histogram.HdrHistogram`."""
        histogram = HdrHistogram(1, HIGHEST_US, SIGNIFICANT_DIGITS)
        for index, count in self.cells.items():
            histogram.counts[index] = count
        histogram.total_count = self.count
        if self.cells:
            histogram.min_value, histogram.max_value = self.min_us, self.max_us
        return histogram

    def encode(self) -> str:
        """HdrHistogram V2, compressed, base64: what any HdrHistogram tool reads. About 0.1 ms."""
        return cast(bytes, self.to_hdr().encode()).decode("ascii")

    @classmethod
    def decode(cls, text: str) -> Recorder:
        """From `encode`. Minimum, maximum and mean come back only to 3 digits: the format holds no more."""
        return cls._from_hdr(HdrHistogram.decode(text))

    @classmethod
    def _from_hdr(cls, histogram: Any) -> Recorder:
        recorder = cls()
        for item in histogram.get_recorded_iterator():
            count, value_us = item.count_at_value_iterated_to, item.value_iterated_to
            recorder.cells[cell_of(value_us)] += count
            recorder.total_us += count * value_us
        if recorder.cells:
            recorder.min_us, recorder.max_us = histogram.min_value, histogram.max_value
        return recorder


def cell_of(value_us: int) -> int:
    """Index of the bucket that counts a value of 0..HIGHEST_US."""
    bucket = max(0, value_us.bit_length() - _SUB_BUCKET_BITS)
    return (bucket << _HALF_SUB_BUCKETS_LOG2) + (value_us >> bucket)


def highest_in_cell(index: int) -> int:
    """The highest value, in microseconds, that the bucket at `index` counts."""
    bucket = max((index >> _HALF_SUB_BUCKETS_LOG2) - 1, 0)
    return ((index - (bucket << _HALF_SUB_BUCKETS_LOG2) + 1) << bucket) - 1


class IntervalLog:
    """Writes an HdrHistogram V2 interval log with a tag on every line; times are relative to its start."""

    def __init__(self, stream: TextIO, start_unix_s: float) -> None:
        self.stream = stream
        stream.write(
            "#[Histogram log format version 1.3]\n"
            "#[Values in microseconds, Interval_Max in milliseconds, tags are tenant/metric/outcome]\n"
            f"#[StartTime: {start_unix_s:.3f} (seconds since epoch)]\n"
            f"#[BaseTime: {start_unix_s:.3f} (seconds since epoch)]\n"
            '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
        )

    def write(self, tag: str, start_s: float, length_s: float, recorder: Recorder) -> None:
        """One interval of one tag; empty recorders leave no line. Commas and spaces in tags become `_`."""
        if recorder.cells:
            safe = "".join("_" if c in ", \t\r\n" else c for c in tag)
            maximum_ms = recorder.max_us / 1000
            self.stream.write(
                f"Tag={safe},{max(0.0, start_s):.3f},{length_s:.3f},{maximum_ms:.3f},{recorder.encode()}\n"
            )


def read_log(path: Path) -> Iterator[tuple[str, float, Recorder]]:
    """(tag, start in seconds since the log's start, values) of every line of an interval log."""
    reader = HistogramLogReader(str(path), HdrHistogram(1, HIGHEST_US, SIGNIFICANT_DIGITS))
    try:
        while (histogram := reader.get_next_interval_histogram()) is not None:
            start_s = histogram.get_start_time_stamp() / 1000 - reader.get_start_time_sec()
            yield histogram.get_tag() or "", start_s, Recorder._from_hdr(histogram)  # pyright: ignore[reportPrivateUsage]
    finally:
        reader.close()


def milliseconds(value_us: float | None) -> float | None:
    """Microseconds as milliseconds; None and infinities become None."""
    return None if value_us is None or math.isinf(value_us) else value_us / 1000
