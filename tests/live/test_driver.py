"""The live driver end to end: real workers, real HTTP, against a server whose times are known exactly."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import msgspec
import pytest

from agentload.drivers.live import LiveDriver
from agentload.drivers.protocol import Done, Failed, MasterReady, Progress, Started, WorkerLost, WorkerState
from agentload.errors import InconclusiveError
from agentload.measure import Recorder, percentile_of, read_log
from agentload.model import Outcome, RequestRecord
from agentload.plan import draw
from driver_scene import (
    closed_tenant,
    config,
    driver_for,
    events_of,
    open_tenant,
    profile,
    records,
    requests_seen,
    tiny_server,
)
from process_facts import children_of, is_running, wait_until

pytestmark = pytest.mark.live


@pytest.mark.parametrize("workers", [1, 2])
def test_every_planned_request_is_sent_once_and_recorded_once(tmp_path: Path, workers: int) -> None:
    chosen = profile(1.5, open_tenant("a", 80), open_tenant("b", 40), closed_tenant("c", 3, think_s=0.05))
    with tiny_server(tmp_path, "--delay-ms", "5") as port:
        with driver_for(config(chosen, port, tmp_path, workers=workers)) as driver:
            driver.start()
            events = events_of(driver)
            health = driver.result()
        seen = requests_seen(port)
    kept = records(tmp_path)
    assert isinstance(events[-1], Done)
    assert events[-1].interrupted is None
    assert health.scheduled == health.issued == seen == len(kept) == events[-1].records
    assert {record.outcome for record in kept} == {Outcome.ANSWERED}
    planned = {(one.seq, one.tenant, one.due_ns) for one in draw(chosen, 7).arrivals}
    assert {(one.seq, one.tenant, one.due_ns) for one in kept if one.tenant != "c"} == planned
    assert len({record.seq for record in kept}) == len(kept)
    assert {record.worker for record in kept} == set(range(workers))
    assert all(record.due_ns <= record.sent_ns <= record.ended_ns for record in kept)
    assert cells_logged(tmp_path, "a/latency/answered") == cells_of(kept, "a")
    final = [event for event in events if isinstance(event, Progress)][-1]
    assert sum(tenant.answered for tenant in final.tenants) == len(kept)
    assert final.in_flight == 0


def cells_of(kept: list[RequestRecord], tenant: str) -> dict[int, int]:
    """The histogram of a tenant's latencies, from the records."""
    recorder = Recorder()
    for record in kept:
        if record.tenant == tenant:
            recorder.record((record.ended_ns - record.due_ns) // 1000)
    return recorder.cells


def cells_logged(folder: Path, tag: str) -> dict[int, int]:
    """The same from the latency log."""
    return merged_log(folder, tag).cells


def merged_log(folder: Path, tag: str) -> Recorder:
    """All intervals and workers of one tag."""
    merged = Recorder()
    for logged, _, recorder in read_log(folder / "latency.hlog"):
        if logged == tag:
            merged.merge(recorder)
    return merged


def test_a_stalled_server_is_not_hidden(tmp_path: Path) -> None:
    """Frozen 0.8 s in every 3 s, and 5 ms of work. Closed loops report a small part of the truth."""
    chosen = profile(3.0, open_tenant("a", 200, kind="constant"))
    freeze = ["--delay-ms", "5", "--freeze-every-s", "3", "--freeze-for-s", "0.8"]
    with tiny_server(tmp_path, *freeze) as port, driver_for(config(chosen, port, tmp_path)) as driver:
        driver.start()
        events_of(driver)
    latencies_ms = sorted((r.ended_ns - r.due_ns) / 1e6 for r in records(tmp_path))
    # Work that a freeze interrupts takes longest (5 of 3,000 ms); then come arrivals early in the freeze.
    truth_ms = 800 + 5 - (0.05 * 3000 - 5)
    assert percentile_of(latencies_ms, 95) == pytest.approx(truth_ms, rel=0.03)


def test_first_token_and_token_gaps_are_timed_as_the_bytes_arrive(tmp_path: Path) -> None:
    """100 ms to the first token, then 50 tokens a second.

    A busy machine makes tokens late, and makes several come at once (then there are fewer gaps than tokens).
    So what holds on any machine is asked of every stream: nothing comes early, and the gaps add up to the
    time from first to last token, none lost. Accuracy is asked of the quicker ones.
    """
    streaming = {"input_tokens": 24, "output_tokens": 20, "stream": True}
    chosen = profile(2.0, open_tenant("a", 40, workload=streaming))
    options = ["--first-token-ms", "100", "--token-ms", "20", "--tokens", "20"]
    with tiny_server(tmp_path, *options) as port, driver_for(config(chosen, port, tmp_path)) as driver:
        driver.start()
        events_of(driver)
    kept = records(tmp_path)
    assert {(record.outcome, record.stream) for record in kept} == {(Outcome.ANSWERED, True)}
    assert {record.output_tokens for record in kept} == {20}
    first_ms, last_ms = zip(*map(span_ms, kept), strict=True)
    assert min(first_ms) >= 100 - ROUNDING_MS
    assert min(last_ms) >= 100 + 19 * 20 - ROUNDING_MS
    assert percentile_of(sorted(first_ms), 25) <= 105
    gaps = merged_log(tmp_path, "a/inter-token")
    assert gaps.count <= 19 * len(kept)
    assert gaps.total_us / 1000 == pytest.approx(sum(last_ms) - sum(first_ms), rel=0.001)
    assert (gaps.percentile_us(50) or 0) / 1000 == pytest.approx(20, abs=1)


ROUNDING_MS = 1
"""To which the server's timers are rounded."""


def span_ms(record: RequestRecord) -> tuple[float, float]:
    """From the sending of a stream's request to its first token, and to its last."""
    assert record.first_token_ns is not None
    assert record.last_token_ns is not None
    return (record.first_token_ns - record.sent_ns) / 1e6, (record.last_token_ns - record.sent_ns) / 1e6


def test_what_is_open_after_the_drain_is_unfinished_with_its_age(tmp_path: Path) -> None:
    chosen = profile(0.5, open_tenant("a", 40), drain_s=0.4)
    with (
        tiny_server(tmp_path, "--delay-ms", "60000") as port,
        driver_for(config(chosen, port, tmp_path, workers=2)) as driver,
    ):
        driver.start()
        events_of(driver)
        health = driver.result()
    kept = records(tmp_path)
    assert Counter(record.outcome for record in kept) == {Outcome.UNFINISHED: 20}
    assert all(record.final and record.ended_ns >= 900_000_000 for record in kept)
    assert (health.scheduled, health.issued) == (20, 20)


def test_the_cap_is_kept_and_what_it_costs_is_counted(tmp_path: Path) -> None:
    chosen = profile(1.0, open_tenant("a", 40), drain_s=0.2)
    with tiny_server(tmp_path, "--delay-ms", "60000") as port:
        with driver_for(config(chosen, port, tmp_path, in_flight_cap=10)) as driver:
            driver.start()
            events_of(driver)
            health = driver.result()
        assert requests_seen(port) == 10
    kept = Counter((record.outcome, record.reason) for record in records(tmp_path))
    assert kept == {(Outcome.UNFINISHED, None): 10, (Outcome.UNSENT, "in-flight-cap"): 30}
    assert (health.capped, health.peak_in_flight, health.in_flight_cap) == (30, 10, 10)
    assert not health.trustworthy
    assert "30 requests were not sent because 10 were open already" in health.reasons[0]


def test_a_killed_worker_leaves_a_readable_partial_run_and_is_named(tmp_path: Path) -> None:
    chosen = profile(20.0, open_tenant("a", 100))
    events: list[object] = []
    with (
        tiny_server(tmp_path, "--delay-ms", "5") as port,
        driver_for(config(chosen, port, tmp_path, workers=2)) as driver,
    ):
        driver.start()
        for event in driver.events():
            if isinstance(event, Progress) and event.issued > 100 and not _lost(events):
                os.kill(worker_pids(driver)[0], signal.SIGKILL)
                events.append(None)
            if event is not None:
                events.append(event)
        health = driver.result()
    assert [event.index for event in events if isinstance(event, WorkerLost)] in ([0], [1])
    assert isinstance(events[-1], Done)
    assert "was lost" in (events[-1].interrupted or "")
    assert (health.workers, health.workers_lost, health.trustworthy) == (2, 1, False)
    assert health.records_lost > 0
    kept = records(tmp_path)
    assert len([record for record in kept if record.outcome is Outcome.ANSWERED]) > 50
    assert len(kept) + health.records_lost == health.scheduled


def _lost(events: list[object]) -> bool:
    return None in events


def worker_pids(driver: LiveDriver) -> list[int]:
    """Children of the master."""
    return children_of(master_pid(driver))


def master_pid(driver: LiveDriver) -> int:
    """As it said in its first event."""
    first = next(event for event in driver.events() if event)
    assert isinstance(first, MasterReady)
    return first.pid


def test_stopping_early_ends_soon_and_names_what_was_not_sent(tmp_path: Path) -> None:
    chosen = profile(60.0, open_tenant("a", 50), closed_tenant("c", 2, think_s=0.1))
    with (
        tiny_server(tmp_path, "--delay-ms", "5") as port,
        driver_for(config(chosen, port, tmp_path, workers=2)) as driver,
    ):
        driver.start()
        events = []
        for event in driver.events():
            if isinstance(event, Progress) and event.issued > 30:
                driver.stop()
            if event is not None:
                events.append(event)
        health = driver.result()
    assert isinstance(events[-1], Done)
    assert events[-1].interrupted == "stopped by the user"
    kept = records(tmp_path)
    by_outcome = Counter(record.outcome for record in kept)
    assert set(by_outcome) == {Outcome.ANSWERED, Outcome.UNSENT}
    assert by_outcome[Outcome.UNSENT] == health.scheduled - health.issued
    assert len([record for record in kept if record.tenant == "a"]) == 3000
    assert all(r.ended_ns >= r.due_ns for r in kept)


def test_a_stray_locust_configuration_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "locust.conf").write_text("users = abc\nthis is no configuration\n")
    (tmp_path / "pyproject.toml").write_text('[tool.locust]\nusers = "many"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCUST_USERS", "none")
    monkeypatch.setenv("LOCUST_HEADLESS", "perhaps")
    with (
        tiny_server(tmp_path) as port,
        driver_for(config(profile(0.3, open_tenant("a", 40)), port, tmp_path)) as driver,
    ):
        driver.start()
        assert isinstance(events_of(driver)[-1], Done)
        assert driver.result().issued == 12


WORKER = [sys.executable, "-m", "agentload.drivers.locust_worker"]


@contextmanager
def started_by_hand(folder: Path, *command: str) -> Generator[subprocess.Popen[bytes]]:
    """A worker as somebody on another host would start it."""
    with (folder / "by-hand.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_workers_from_elsewhere_are_waited_for(tmp_path: Path) -> None:
    chosen = config(profile(0.5, open_tenant("a", 80)), 1, tmp_path, expect_workers=2)
    with tiny_server(tmp_path) as port:
        chosen.target["port"] = port
        with driver_for(chosen) as driver:
            driver.start()
            command = [*WORKER, "127.0.0.1", str(driver.port)]
            with started_by_hand(tmp_path, *command) as one, started_by_hand(tmp_path, *command) as other:
                assert isinstance(events_of(driver)[-1], Done)
                assert driver.result().issued == 40
                assert [one.wait(10), other.wait(10)] == [0, 0]
    assert {record.worker for record in records(tmp_path)} == {0, 1}


def has_time_namespaces() -> bool:
    """Whether a process may be given another monotonic clock here."""
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--time", "--monotonic", "100000", "--fork", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_time_namespaces(), reason="needs time namespaces (Linux, privileged)")
def test_a_worker_with_another_clock_agrees_on_time_zero(tmp_path: Path) -> None:
    """As on another host: its monotonic clock is 100,000 seconds ahead."""
    chosen = config(profile(0.5, open_tenant("a", 80)), 1, tmp_path, expect_workers=1)
    ahead = ["unshare", "--time", "--monotonic", "100000", "--fork", "--kill-child"]
    with tiny_server(tmp_path) as port:
        chosen.target["port"] = port
        with driver_for(chosen) as driver:
            driver.start()
            with started_by_hand(tmp_path, *ahead, *WORKER, "127.0.0.1", str(driver.port)) as worker:
                events_of(driver)
                assert worker.wait(10) == 0
    kept = records(tmp_path)
    assert len(kept) == 40
    assert median(record.sent_ns - record.due_ns for record in kept) < 1_000_000_000
    states = msgspec.json.decode((tmp_path / "workers.json").read_bytes(), type=dict[str, WorkerState])
    assert states["0"].clock_offset_ns == pytest.approx(100_000 * 10**9, abs=10**8)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "latency.hlog").mkdir()
    with driver_for(config(profile(1.0, open_tenant("a", 1)), 1, tmp_path)) as driver:
        driver.start()
        last = events_of(driver)[-1]
    assert isinstance(last, Failed)
    assert "cannot be written" in last.error


def test_a_worker_that_draws_another_plan_refuses(tmp_path: Path) -> None:
    other = config(profile(1.0, open_tenant("a", 10)), 1, tmp_path, fingerprint="f" * 64)
    with driver_for(other) as driver:
        driver.start()
        last = events_of(driver)[-1]
    assert isinstance(last, Failed)
    assert "draws another plan" in last.error


def test_a_missing_key_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    chosen = config(profile(1.0, open_tenant("a", 10)), 1, tmp_path)
    chosen.target["templates"] = [["Authorization", "Bearer {env:NO_SUCH_KEY}"]]
    with driver_for(chosen) as driver:
        driver.start()
        last = events_of(driver)[-1]
    assert isinstance(last, Failed)
    assert "NO_SUCH_KEY is not set" in last.error


def test_nothing_survives_the_death_of_the_driver(tmp_path: Path) -> None:
    chosen = profile(60.0, open_tenant("a", 20))
    with tiny_server(tmp_path) as port, driver_for(config(chosen, port, tmp_path)) as driver:
        driver.start()
        events = driver.events()
        while not (isinstance(event := next(events), Progress) and event.issued > 5):
            pass
        pids = worker_pids(driver)
        os.kill(master_pid(driver), signal.SIGKILL)
        with pytest.raises(InconclusiveError, match="the load driver died"):
            list(events)
    assert len(pids) == 1
    wait_until(lambda: not is_running(pids[0]))
    assert len(records(tmp_path)) > 0


def test_nothing_survives_the_end_of_its_user(tmp_path: Path) -> None:
    chosen = profile(60.0, open_tenant("a", 20))
    with tiny_server(tmp_path) as port:
        with driver_for(config(chosen, port, tmp_path)) as driver:
            driver.start()
            events = driver.events()
            while not isinstance(next(events), Started):
                pass
            pids = worker_pids(driver)
        assert len(pids) == 1
        wait_until(lambda: not is_running(pids[0]))


def test_the_first_event_is_where_the_master_listens(tmp_path: Path) -> None:
    with driver_for(config(profile(1.0, open_tenant("a", 1)), 1, tmp_path, expect_workers=1)) as driver:
        driver.start()
        assert driver.port > 0
        first = next(event for event in driver.events() if event)
        assert isinstance(first, MasterReady)
        driver.stop()
        last = events_of(driver)[-1]
        assert isinstance(last, Failed)
        assert "stopped before the load began" in last.error
