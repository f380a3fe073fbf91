"""The file of `agentload locustfile` under the real `locust`: alone, with workers, and with its web UI."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentload import rundir
from agentload.errors import ExitCode
from agentload.interrupts import OUT_OF_TIME
from agentload.model import Outcome
from agentload.plan import draw
from own_users import PROFILE, written
from process_facts import wait_until
from real_gateways import free_port

pytestmark = pytest.mark.live

PATIENCE_S = 180
LOCUST = [sys.executable, "-m", "locust", "-f", "file.py"]


def prepared(folder: Path, seconds: int = 2) -> None:
    written(folder, PROFILE.replace("seconds: 2", f"seconds: {seconds}"))
    command = [sys.executable, "-m", "agentload", "locustfile", "homegrown.yaml", "--out", "file.py"]
    subprocess.run(command, cwd=folder, check=True, timeout=PATIENCE_S)


def the_run(folder: Path) -> Path:
    [found] = (folder / "reports").iterdir()
    return found


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_plan_is_played_and_can_be_judged(tmp_path: Path, processes: int) -> None:
    prepared(tmp_path)
    more = ["--processes", str(processes)] if processes > 1 else []
    done = subprocess.run(
        [*LOCUST, "--headless", *more],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"agentload judge reports/{the_run(tmp_path).name}" in done.stderr
    assert re.search(r"^POST +planned +60 ", done.stdout + done.stderr, re.MULTILINE)
    recorded = rundir.load(the_run(tmp_path))
    planned = {(one.seq, one.due_ns) for one in draw(recorded.profile, 1).arrivals}
    assert {(one.seq, one.due_ns) for one in recorded.records if one.tenant == "planned"} == planned
    assert {record.worker for record in recorded.records} == set(range(processes))
    assert {record.outcome for record in recorded.records} == {Outcome.ANSWERED}
    assert len(recorded.records) == len(recorded.ledger) > len(planned) + 20
    assert (recorded.unattributed, recorded.interrupted) == (0, None)
    judged = subprocess.run(
        [sys.executable, "-m", "agentload", "judge", str(the_run(tmp_path))],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert judged.returncode in (ExitCode.PASSED, ExitCode.INCONCLUSIVE), judged.stdout


@pytest.mark.slow
def test_what_ended_by_its_run_time_says_so_and_not_that_its_user_did(tmp_path: Path) -> None:
    prepared(tmp_path, seconds=30)
    done = subprocess.run(
        [*LOCUST, "--headless", "-t", "3s"],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert "ended by -t, before the plan did: waiting briefly for open requests" in done.stderr
    assert rundir.load(the_run(tmp_path)).interrupted == OUT_OF_TIME
    judged = subprocess.run(
        [sys.executable, "-m", "agentload", "judge", str(the_run(tmp_path))],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert judged.returncode == ExitCode.INCONCLUSIVE, judged.stdout
    assert "by the user" not in judged.stdout


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Locust with its web UI, and where that is."""
    prepared(tmp_path, seconds=30)
    port = free_port()
    with (tmp_path / "locust.log").open("wb") as log:
        process = subprocess.Popen(
            [*LOCUST, "--web-host", "127.0.0.1", "--web-port", str(port)],
            cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def fetched(url: str, form: bytes | None = None) -> bytes | None:
    try:
        with urllib.request.urlopen(url, data=form, timeout=PATIENCE_S) as answer:
            return bytes(answer.read())
    except OSError:
        return None


def statistics(url: str) -> dict[str, Any]:
    answer = fetched(f"{url}/stats/requests")
    return {} if answer is None else {row["name"]: row for row in json.loads(answer)["stats"]}


@pytest.mark.slow
def test_the_web_ui_starts_it_shows_the_tenants_and_stops_it(
    tmp_path: Path, web: tuple[subprocess.Popen[bytes], str]
) -> None:
    process, url = web
    wait_until(lambda: fetched(url) is not None, PATIENCE_S)
    for turn in (1, 2):  # a second test is a run of its own
        assert b"success" in (fetched(f"{url}/swarm", b"user_count=1&spawn_rate=1") or b"")
        wait_until(lambda: statistics(url).get("planned", {}).get("num_requests", 0) > 5, PATIENCE_S)
        assert fetched(f"{url}/stop", b"") is not None
        folders = sorted((tmp_path / "reports").iterdir())
        assert len(folders) == turn
        recorded = rundir.load(folders[-1])
        assert recorded.interrupted is not None
        assert sum(record.outcome is Outcome.ANSWERED for record in recorded.records) > 5
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=30)
    assert psutil.wait_procs(family, timeout=5)[1] == []


def test_what_is_wrong_with_the_options_is_one_line(tmp_path: Path) -> None:
    prepared(tmp_path)
    (tmp_path / "users.py").write_text("import nope_nobody_has_this\n")
    done = subprocess.run(
        [*LOCUST, "--headless"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == ExitCode.USAGE
    assert "users.py:1: ModuleNotFoundError: No module named 'nope_nobody_has_this'\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_run_of_ours_shows_itself_in_locusts_web_ui_and_can_be_stopped_there(tmp_path: Path) -> None:
    written(tmp_path, PROFILE.replace("seconds: 2", "seconds: 60"))
    port = free_port()
    command = [sys.executable, "-m", "agentload", "run", "homegrown.yaml", "--locust-web", str(port)]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        wait_until(lambda: statistics(url).get("planned", {}).get("num_requests", 0) > 5, PATIENCE_S)
        assert fetched(f"{url}/swarm", b"user_count=1&spawn_rate=1") is None, "403: nothing is to be started"
        fetched(f"{url}/stop", b"")  # its answer may be lost: the process that gives it ends with the run
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert f"Locust's web UI: {url}" in output
    assert rundir.load(the_run(tmp_path)).interrupted == "stopped in Locust's web UI"
    assert "was lost" not in output
