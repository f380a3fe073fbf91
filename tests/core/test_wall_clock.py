"""Dates for a core that knows none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.scheduler.budget_config import Per
from agentload.scheduler.wall_clock import EPOCH_NS, NS, WallClock

CLOCK = WallClock()


def test_a_date_is_rfc_3339_in_utc_and_never_too_early() -> None:
    assert CLOCK.text(0) == "2026-01-01T00:00:00.000Z"
    assert CLOCK.text(1) == "2026-01-01T00:00:00.001Z"
    assert CLOCK.text(59_999_000_001) == "2026-01-01T00:01:00.000Z"


@given(st.integers(0, 10**18))
def test_what_is_written_is_read(at_ns: int) -> None:
    assert 0 <= CLOCK.read(CLOCK.text(at_ns)) - at_ns < 1_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-01T00:00:10Z", 10),
        ("2026-01-01t00:00:10z", 10),
        ("2026-01-01T02:00:10.5+02:00", 10.5),
        ("2025-12-31T23:59:50-00:00", -10),
    ],
)
def test_offsets_and_fractions_are_read(text: str, seconds: float) -> None:
    assert CLOCK.read(text) == seconds * NS
    assert WallClock(EPOCH_NS - 5 * NS).read(text) == (seconds + 5) * NS


@pytest.mark.parametrize(
    "text", ["", "10", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "2026-01-01 00:00:00Z"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|month"):
        CLOCK.read(text)


def test_months_have_their_own_lengths() -> None:
    day_ns = 86_400 * NS
    assert CLOCK.window_end_ns(0, Per.MONTH) == 31 * day_ns
    assert CLOCK.window_end_ns(31 * day_ns, Per.MONTH) == 59 * day_ns
    assert CLOCK.window_end_ns(364 * day_ns, Per.MONTH) == 365 * day_ns
    assert CLOCK.window_end_ns(364 * day_ns, Per.TOTAL) is None
