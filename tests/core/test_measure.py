"""Recorder: HdrHistogram's buckets, exact ranks, exact merges, readable logs."""

from __future__ import annotations

import math
from io import StringIO
from pathlib import Path
from random import Random

import msgspec
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.measure import (
    HIGHEST_US,
    IntervalLog,
    Recorder,
    RecorderState,
    cell_of,
    highest_in_cell,
    milliseconds,
    percentile_of,
    rank,
    read_log,
)

durations = st.integers(0, HIGHEST_US) | st.integers(0, 5000)


def recorder(values: list[int]) -> Recorder:
    made = Recorder()
    for value in values:
        made.record(value)
    return made


def hdr(values: list[int]) -> HdrHistogram:
    histogram = HdrHistogram(1, HIGHEST_US, 3)
    for value in values:
        histogram.record_value(value)
    return histogram


@given(durations)
@settings(max_examples=300)
def test_bucket_layout_is_hdrhistograms(value: int) -> None:
    reference = HdrHistogram(1, HIGHEST_US, 3)
    assert cell_of(value) == reference._counts_index_for(value)  # pyright: ignore[reportPrivateUsage]
    assert highest_in_cell(cell_of(value)) == reference.get_highest_equivalent_value(value)


@given(st.lists(durations, min_size=1, max_size=200))
@settings(max_examples=60)
def test_encodes_to_the_same_bytes_as_hdrhistogram(values: list[int]) -> None:
    assert recorder(values).encode() == hdr(values).encode().decode()


@given(st.lists(st.lists(durations, max_size=60), min_size=1, max_size=7))
@settings(max_examples=60)
def test_merging_workers_is_exact(shards: list[list[int]]) -> None:
    merged = Recorder()
    for shard in shards:
        wire = msgspec.msgpack.encode(recorder(shard).state())
        merged.merge(Recorder.from_state(msgspec.msgpack.decode(wire, type=RecorderState)))
    everything = [value for shard in shards for value in shard]
    if everything:
        assert merged.encode() == hdr(everything).encode().decode()
        assert (merged.min_us, merged.max_us) == (min(everything), max(everything))
        assert merged.mean_us() == sum(everything) / len(everything)
    assert merged.count == len(everything)


def test_merging_an_empty_recorder_changes_nothing() -> None:
    one = recorder([70])
    one.merge(Recorder())
    assert (one.min_us, one.max_us, one.count) == (70, 70, 1)


@given(st.lists(durations, min_size=1, max_size=300), st.sampled_from([0, 25, 50, 75, 91, 95, 99, 99.9, 100]))
@settings(max_examples=100)
def test_percentiles_are_nearest_rank_to_three_digits(values: list[int], percentile: float) -> None:
    exact = sorted(values)[max(1, math.ceil(round(percentile * len(values) / 100, 9))) - 1]
    found = recorder(values).percentile_us(percentile)
    assert found is not None
    assert exact <= found <= max(exact * 1.001, exact + 1)


def test_ranks_are_rounded_up_where_hdrhistogram_rounds_down() -> None:
    assert recorder([10, 20, 30]).percentile_us(75) == 30
    assert rank(91, 10) == 10
    assert rank(99.9, 1000) == 999
    assert percentile_of([1.0, 2.0, math.inf], 100) == math.inf
    with pytest.raises(ValueError, match="no rank"):
        rank(50, 0)


def test_several_percentiles_come_in_the_order_asked_for() -> None:
    assert recorder([1, 2, 3, 4]).percentiles_us([100, 50, 25]) == [4, 2, 1]
    assert Recorder().percentiles_us([50, 99]) == [None, None]


def test_values_out_of_range_are_clamped_and_counted() -> None:
    made = recorder([-5, HIGHEST_US + 1])
    assert (made.under, made.over, made.count) == (1, 1, 2)
    assert (made.min_us, made.max_us) == (0, HIGHEST_US)


def test_distribution_says_nothing_below_its_sample_floors() -> None:
    few = recorder([1000] * 72).distribution()
    assert (few.p50, few.p95, few.p99, few.p999, few.n) == (1.0, 1.0, None, None, 72)
    assert recorder([1000] * 19).distribution().p50 is None


def test_decode_reads_what_encode_wrote() -> None:
    random = Random(4)
    values = [int(random.lognormvariate(11, 1)) for _ in range(500)]
    back = Recorder.decode(recorder(values).encode())
    assert back.cells == recorder(values).cells
    assert back.max_us == pytest.approx(max(values), rel=1e-3)
    assert Recorder.decode(Recorder().encode()).count == 0


def test_hdrhistograms_reader_reads_our_log_with_tags(tmp_path: Path) -> None:
    stream = StringIO()
    log = IntervalLog(stream, start_unix_s=1_795_952_909.042)
    log.write("quiet one,x/latency/answered", 0.0, 1.0, recorder([7_654_321, 20_000]))
    log.write("empty/latency/answered", 0.0, 1.0, Recorder())
    log.write("loud/latency/answered", 1.0, 1.0, recorder([1]))
    path = tmp_path / "latency.hlog"
    path.write_text(stream.getvalue())

    reader = HistogramLogReader(str(path), HdrHistogram(1, HIGHEST_US, 3))
    first = reader.get_next_interval_histogram()
    second = reader.get_next_interval_histogram()
    assert reader.get_next_interval_histogram() is None
    reader.close()
    assert first is not None
    assert second is not None
    assert first.get_tag() == "quiet_one_x/latency/answered"
    assert first.get_total_count() == 2
    assert first.get_value_at_percentile(100) == pytest.approx(7_654_321, rel=1e-3)
    assert second.get_start_time_stamp() == pytest.approx((1_795_952_909.042 + 1) * 1000)


def test_our_reader_reads_our_log(tmp_path: Path) -> None:
    path = tmp_path / "latency.hlog"
    with path.open("w") as stream:
        log = IntervalLog(stream, start_unix_s=1000.0)
        log.write("a/latency/answered", 2.5, 1.0, recorder([5, 5, 9]))
    [(tag, start_s, back)] = list(read_log(path))
    assert (tag, start_s, back.count) == ("a/latency/answered", 2.5, 3)


def test_milliseconds() -> None:
    assert milliseconds(1500) == 1.5
    assert milliseconds(None) is None
    assert milliseconds(math.inf) is None
