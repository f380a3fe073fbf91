"""The heartbeat and the lateness of the provider's process, told the time."""

from __future__ import annotations

from fake_provider.heartbeat import PERIOD_NS, Heartbeat, Lateness, Stall

MS = 1_000_000


def test_a_beat_that_comes_in_time_is_no_stall() -> None:
    heartbeat = Heartbeat(lambda: 0)
    for beat in range(1, 50):
        heartbeat.beat(beat * (PERIOD_NS + 40 * MS))
    assert heartbeat.stalls == []


def test_a_late_beat_is_a_stall_from_when_it_was_due() -> None:
    heartbeat = Heartbeat(lambda: 100 * MS)
    heartbeat.beat(110 * MS)
    heartbeat.beat(400 * MS)
    heartbeat.beat(410 * MS)
    assert heartbeat.stalls == [Stall(120 * MS, 400 * MS)]


def test_lateness_is_summed_up() -> None:
    lateness = Lateness()
    assert lateness.summary() == {"p50": None, "p99": None, "max": None, "n": 0}
    for _ in range(98):
        lateness.record(450_000)
    lateness.record(7 * MS + 1)
    lateness.record(3_000 * MS)
    assert lateness.summary() == {"p50": 0.5, "p99": 7.1, "max": 3_000.0, "n": 100}


def test_nothing_can_be_sent_before_it_is_due() -> None:
    lateness = Lateness()
    lateness.record(-5)
    assert lateness.summary()["max"] == 0
