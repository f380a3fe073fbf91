"""Two clocks: what is known of their difference, how well, and what becomes of it while they drift."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.clock_alignment import ClockAlignment, ClockReading, compare

MS = 1_000_000
S = 1_000 * MS
DAY = 86_400 * S


def reading(at_ns: int, ahead_ns: int, uncertainty_ns: int = MS) -> ClockReading:
    return ClockReading(at_ns=at_ns, ahead_ns=ahead_ns, uncertainty_ns=uncertainty_ns)


@given(
    ahead_ns=st.integers(-(10**16), 10**16),
    trips=st.lists(st.tuples(st.integers(0, 500 * MS), st.integers(0, 500 * MS)), min_size=1, max_size=20),
)
def test_the_truth_lies_within_half_the_quickest_round_trip(
    ahead_ns: int, trips: list[tuple[int, int]]
) -> None:
    """However unequal the way there and the way back."""
    exchanges = [
        (at_ns, at_ns + there + ahead_ns, at_ns + there + back)
        for at_ns, (there, back) in zip(range(DAY, DAY + 1000 * S, 50 * S), trips, strict=False)
    ]
    found = compare(exchanges)
    assert abs(found.ahead_ns - ahead_ns) <= found.uncertainty_ns
    assert found.uncertainty_ns <= min(there + back for there, back in trips) // 2 + 1


def test_nothing_follows_from_nothing() -> None:
    with pytest.raises(ValueError):
        compare([])


@given(
    drift_ppm=st.integers(-400, 400),
    errors=st.tuples(st.integers(-MS, MS), st.integers(-MS, MS)),
    at_s=st.integers(0, 600),
)
def test_what_clocks_drift_apart_is_taken_out(drift_ppm: int, errors: tuple[int, int], at_s: int) -> None:
    """Ten minutes at 400 millionths are 240 ms; what is left is the readings' own error."""

    def ahead_ns(ours_ns: int) -> int:
        return DAY + ours_ns * drift_ppm // 1_000_000

    clock = ClockAlignment(
        before=reading(0, ahead_ns(0) + errors[0]), after=reading(600 * S, ahead_ns(600 * S) + errors[1])
    )
    truth_ns = at_s * S
    assert abs(clock.ours_ns(truth_ns + ahead_ns(truth_ns)) - truth_ns) <= clock.uncertainty_ns + 1_000
    assert abs(clock.theirs_ns(truth_ns) - truth_ns - ahead_ns(truth_ns)) <= clock.uncertainty_ns + 1_000
    assert clock.steady
    assert clock.uncertainty_ns == MS


def test_there_and_back_again() -> None:
    clock = ClockAlignment(before=reading(0, DAY), after=reading(60 * S, DAY + 3 * MS))
    assert clock.drift_ppm == pytest.approx(50)
    for ours_ns in (0, 17 * S, 60 * S, 90 * S):
        assert abs(clock.ours_ns(clock.theirs_ns(ours_ns)) - ours_ns) <= 1_000


def test_until_compared_again_a_clock_is_believed_to_run_evenly() -> None:
    clock = ClockAlignment(before=reading(0, DAY, 7))
    assert clock.theirs_ns(5) == DAY + 5
    assert clock.ours_ns(DAY + 5) == 5
    assert (clock.uncertainty_ns, clock.drift_ppm, clock.steady, clock.drift_told) == (7, 0.0, True, False)


def test_a_clock_that_jumped_is_in_doubt_by_the_whole_jump() -> None:
    """A host that was suspended, or a provider started anew on another one."""
    clock = ClockAlignment(before=reading(0, DAY), after=reading(60 * S, DAY - 2 * S, 3 * MS))
    assert not clock.steady
    assert clock.uncertainty_ns == 2 * S + 3 * MS


def test_errors_of_short_runs_are_no_jump() -> None:
    """Two milliseconds in one second are 2,000 millionths, and no more than the two readings allow for."""
    clock = ClockAlignment(before=reading(0, DAY), after=reading(S, DAY + 2 * MS))
    assert (clock.steady, clock.drift_told, clock.uncertainty_ns) == (True, False, MS)
