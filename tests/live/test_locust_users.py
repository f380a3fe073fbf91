"""Users of somebody's own Locust file beside planned load: recorded, named, sharded, stopped."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from agentload import rundir
from agentload.drivers.protocol import Done, Progress
from agentload.errors import ExitCode
from agentload.model import NS, Outcome, Run
from driver_scene import config, driver_for, events_of, records, requests_seen, tiny_server
from own_users import PROFILE, USERS, loaded, written

pytestmark = pytest.mark.live


def run(folder: Path, *arguments: str, text: str = PROFILE, users: str = USERS) -> tuple[int, str]:
    """`agentload run`: its exit code and what it said."""
    written(folder, text, users)
    command = [sys.executable, "-P", "-m", "agentload", "run", "homegrown.yaml", "--out", "run", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=180, check=False)
    return done.returncode, done.stdout + done.stderr


def own(recorded: Run) -> list[tuple[int, int]]:
    return [(record.seq, record.worker) for record in recorded.records if record.tenant == "own"]


@pytest.mark.parametrize("user_class", ["Quick", pytest.param("Plain", marks=pytest.mark.slow)])
def test_their_requests_are_recorded_under_their_tenant_and_known_at_the_provider(
    tmp_path: Path, user_class: str
) -> None:
    text = PROFILE.replace("class: Quick", f"class: {user_class}")
    code, output = run(tmp_path, "--workers", "2", text=text)
    assert code in (ExitCode.PASSED, ExitCode.INCONCLUSIVE), output
    recorded = rundir.load(tmp_path / "run")
    sent = own(recorded)
    assert len(sent) > 20
    assert {worker for _, worker in sent} == {0, 1}
    assert len(set(sent)) == len(sent)
    mine = [record for record in recorded.records if record.tenant == "own"]
    assert {record.phase for record in mine} == {"beside"}
    assert {(record.outcome, record.own_answer) for record in mine} == {(Outcome.ANSWERED, True)}
    assert {record.output_tokens for record in mine} == {8}
    # Each is one call at the provider, known by its marker; and the gateway took the tenant's name for it.
    calls = Counter(call.seq for call in recorded.ledger if call.tenant == "own")
    assert calls == Counter(seq for seq, _ in sent)
    assert recorded.unattributed == 0
    assert len(recorded.records) == len(recorded.ledger) == recorded.health.scheduled
    assert recorded.health.scheduled == recorded.health.issued == 60 + len(sent)
    assert recorded.health.lateness_ms.n == 60
    assert "own " in output.split("share of work")[1]


@pytest.mark.slow
def test_unmarked_calls_make_attribution_inconclusive_and_the_mend_is_said(tmp_path: Path) -> None:
    text = PROFILE.replace("class: Quick", "class: Unmarked").replace("own-answer,", "bounded-queue,")
    code, output = run(tmp_path, text=text)
    assert code == ExitCode.INCONCLUSIVE
    recorded = rundir.load(tmp_path / "run")
    assert recorded.unattributed == len(own(recorded)) > 20
    said = " ".join(output.split())
    assert "Of own (Unmarked): does their code put `marked(self, …)` of agentload.locust around each" in said


@pytest.mark.slow
def test_users_that_send_nothing_prove_nothing(tmp_path: Path) -> None:
    users = f"{USERS}\n\nclass Broken(User):\n    @task\n    def ask(self) -> None:\n        raise KeyError\n"
    code, output = run(tmp_path, text=PROFILE.replace("class: Quick", "class: Broken"), users=users)
    assert code == ExitCode.INCONCLUSIVE
    assert "the users of own (Broken) sent no request: does their code raise" in " ".join(output.split())


def test_a_file_that_cannot_be_imported_is_one_line_and_nothing_is_started(tmp_path: Path) -> None:
    code, output = run(tmp_path, users="import os\n\nimport nope_nobody_has_this\n")
    assert code == ExitCode.USAGE
    assert output == "users.py:3: ModuleNotFoundError: No module named 'nope_nobody_has_this'\n"
    assert not (tmp_path / "run").exists()


LEAVER = """

class Leaver(Quick):
    def on_stop(self) -> None:
        sys.exit(9)

    @task
    def leave(self) -> None:
"""
WAYS_OUT = {
    "sys.exit": ("sys.exit(3)", "SystemExit: 3"),
    "quit": ("self.environment.runner.quit()", "calls runner.quit()"),
    "spawned": ("gevent.spawn(sys.exit, 4).join()", "SystemExit: 4"),
}


@pytest.mark.parametrize(
    "way", ["sys.exit", *(pytest.param(w, marks=pytest.mark.slow) for w in ("quit", "spawned"))]
)
def test_users_that_end_the_test_end_the_run_with_a_report_that_names_them(tmp_path: Path, way: str) -> None:
    call, said = WAYS_OUT[way]
    users = f"import sys\n\nimport gevent\n{USERS}{LEAVER}        {call}\n"
    text = PROFILE.replace("class: Quick", "class: Leaver").replace("seconds: 2", "seconds: 20")
    code, output = run(tmp_path, text=text, users=users)
    assert code == ExitCode.INCONCLUSIVE, output
    recorded = rundir.load(tmp_path / "run")
    at = "" if way == "spawned" else f":{users.count(chr(10))}"
    because = f"the users of own (Leaver) ended the run: users.py{at}: {said}; to end one user alone, raise "
    because += "StopUser"
    assert recorded.interrupted == because
    assert because in output
    assert "lost" not in output
    assert recorded.health.trustworthy
    assert len(recorded.records) == len(recorded.ledger) + recorded.health.scheduled - recorded.health.issued


FIXTURE = """\
import time
import gevent
from agentload.locust import Refused, headers, marked
from locust import FastHttpUser, HttpUser, User, constant, events, task

CALL = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

@events.init_command_line_parser.add_listener
def options(parser):
    parser.add_argument("--mood", default="mild", env_var="MOOD")

@events.init.add_listener
def begin(environment, **_):
    environment.mood = environment.parsed_options.mood

@events.test_stop.add_listener
def end(environment, **_):
    with open(f"{__file__}.ends", "a") as ends:
        ends.write(environment.mood)

class Quick(FastHttpUser):
    @task
    def ask(self):
        assert (self.environment.mood, self.environment.host) == ("mild", self.host)
        self.client.post("/v1/chat/completions", json=CALL)
        try:
            self.client.get("http://elsewhere.example/")
        except Refused:
            gevent.sleep(0.05)

class Raising(User):
    wait_time = constant(0)
    @task
    def ask(self):
        raise KeyError("choices")

class ByHand(User):
    wait_time = constant(0.05)
    @task
    def ask(self):
        assert headers(self) == {"X-Tenant": "own"} | headers(self)
        gevent.spawn(self.fire, marked(self, "hi")).join()
    def fire(self, text):
        self.environment.events.request.fire(
            request_type="SDK", name="chat", response_time=2.0, response_length=0, exception=None, context={}
        )
"""


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_every_request_is_recorded_once_as_the_server_counts_them(tmp_path: Path, workers: int) -> None:
    chosen = loaded(tmp_path, users=FIXTURE)
    with tiny_server(tmp_path, "--delay-ms", "30") as port:
        with driver_for(config(chosen, port, tmp_path, workers=workers, max_rate=50)) as driver:
            driver.start()
            events = events_of(driver)
            health = driver.result()
        seen = requests_seen(port)
    kept = records(tmp_path)
    assert len(kept) == seen == health.scheduled == health.issued
    own = [record for record in kept if record.tenant == "own"]
    assert len(own) > 20
    # Of 50 in any second the planned ones leave 30; a busy machine may see some a little nearer together.
    assert max(sum(0 <= one.sent_ns - first.sent_ns < 0.8 * NS for one in own) for first in own) <= 30
    refused, held = health.withheld
    assert "elsewhere.example is neither the target nor allowed" in refused
    assert "for --max-rate" in held
    assert health.trustworthy, "it is no reason for doubt"
    assert (tmp_path / "users.py.ends").read_text() == "mild" * workers
    assert {record.outcome for record in own} == {Outcome.ANSWERED}
    assert all(NS <= record.due_ns == record.sent_ns < 3.1 * NS for record in own)
    # Two milliseconds less than the server was told: uvloop rounds timers, and reads its clock once a turn.
    assert all(record.ended_ns - record.sent_ns >= 28_000_000 for record in own)
    final = [event for event in events if isinstance(event, Progress)][-1]
    assert {tenant.tenant: (tenant.offered, tenant.in_flight) for tenant in final.tenants} == {
        "planned": (60, 0),
        "own": (len(own), 0),
    }


@pytest.mark.slow
def test_what_their_code_raises_is_told_and_does_not_spin(tmp_path: Path) -> None:
    chosen = loaded(tmp_path, PROFILE.replace("class: Quick", "class: Raising"), FIXTURE)
    with tiny_server(tmp_path) as port, driver_for(config(chosen, port, tmp_path)) as driver:
        driver.start()
        done = events_of(driver)[-1]
        health = driver.result()
    assert isinstance(done, Done)
    [(line, times)] = done.user_errors.items()
    raising = FIXTURE[: FIXTURE.index("raise KeyError")].count("\n") + 1
    assert line.endswith(f"users.py:{raising}: KeyError: 'choices'")
    assert line.startswith("own: ")
    assert 5 <= times <= 5 * 25
    assert health.scheduled == 60


@pytest.mark.slow
def test_a_client_of_their_own_fires_its_events_by_hand(tmp_path: Path) -> None:
    chosen = loaded(tmp_path, PROFILE.replace("class: Quick", "class: ByHand"), FIXTURE)
    with tiny_server(tmp_path) as port, driver_for(config(chosen, port, tmp_path)) as driver:
        driver.start()
        events_of(driver)
    own = [record for record in records(tmp_path) if record.tenant == "own"]
    assert len(own) > 20
    assert {record.ended_ns - record.sent_ns for record in own} == {2_000_000}


@pytest.mark.slow
def test_what_is_open_when_the_run_ends_is_unfinished_and_stopping_early_ends_soon(tmp_path: Path) -> None:
    long = PROFILE.replace("seconds: 2", "seconds: 60").replace("during: [beside]", "during: []")
    chosen = loaded(tmp_path, long, FIXTURE)
    with (
        tiny_server(tmp_path, "--delay-ms", "60000") as port,
        driver_for(config(chosen, port, tmp_path)) as driver,
    ):
        driver.start()
        stopped = False
        for event in driver.events():
            if isinstance(event, Progress) and event.in_flight > 5 and not stopped:
                driver.stop()
                stopped = True
        assert driver.done is not None
        assert driver.done.interrupted == "stopped by the user"
    own = [record for record in records(tmp_path) if record.tenant == "own"]
    assert Counter(record.outcome for record in own) == {Outcome.UNFINISHED: 5}


@pytest.mark.slow
def test_a_user_that_does_not_finish_its_task_leaves_when_its_phase_has_ended(tmp_path: Path) -> None:
    text = PROFILE.replace("seconds: 1}", "seconds: 0.5}").replace("during: [beside]", "during: [before]")
    chosen = loaded(tmp_path, text.replace("seconds: 2", "seconds: 4"), FIXTURE)
    with (
        tiny_server(tmp_path, "--delay-ms", "60000") as port,
        driver_for(config(chosen, port, tmp_path, drain_s=0.1)) as driver,
    ):
        driver.start()
        events_of(driver)
    own = [record for record in records(tmp_path) if record.tenant == "own"]
    assert Counter((record.outcome, record.reason) for record in own) == {(Outcome.ABANDONED, "left"): 5}
    assert all(2.5 * NS <= record.ended_ns < 4.5 * NS for record in own)
