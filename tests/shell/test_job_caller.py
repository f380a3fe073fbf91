"""What a client of jobs keeps of an answer's fields."""

from __future__ import annotations

import time
from pathlib import Path

from agentload import targets
from agentload.client.job_pursuit import JobPursuit, Kind
from agentload.drivers.caller import Caller
from agentload.drivers.clock import RunClock
from agentload.drivers.job_caller import MAX_BODY, BodyReader
from agentload.model import NS, Arrival, Job, JobOrder, JobRecord, JobStep, Outcome
from driver_scene import open_tenant, profile
from foreign_jobs import serving_jobs
from provider_helpers import ProviderProcess


def test_a_key_that_comes_back_in_a_field_is_not_recorded() -> None:
    reader = BodyReader(lambda text: text.replace("sesame", "***"))
    reader.head(429, [(b"Retry-After", b"sesame"), (b"X-Admission-Reason", b"no sesame")], 0.0)
    assert (reader.retry_after, reader.retry_after_s, reader.reason) == ("***", None, "no ***")


def test_a_body_without_end_is_not_kept() -> None:
    reader = BodyReader(str)
    for _ in range(3):
        reader.feed(b"x" * (MAX_BODY // 2 + 1), 0)
    assert len(reader.body) <= MAX_BODY + MAX_BODY // 2 + 1


ORDER = JobOrder(steps=(JobStep(chat=True),), poll_s=0.02, confirm_s=0.02)


def pursued(caller: Caller, seq: int) -> tuple[JobRecord, list[Outcome]]:
    """A job of somebody's gateway, from its POST to its end, and the same POST once more."""
    job = Job(input_tokens=24, output_tokens=4, declared_output_tokens=8)
    arrival = Arrival(seq=seq, tenant="a", service_class="standard", phase="load", due_ns=0, job=job)
    pursuit = JobPursuit(arrival, ORDER, caller.jobs.key(arrival), 20 * NS, caller.jobs.words)
    outcomes: list[Outcome] = []
    while (ask := pursuit.next_ask()) is not None:
        time.sleep(max(0, ask.due_ns - caller.now_ns()) / NS)
        call = caller.jobs.ask(arrival, ORDER, ask)
        if (record := pursuit.heard(call.ended_ns, ask, call.reply)) is not None:
            outcomes.append(record.outcome)
            again = caller.jobs.ask(arrival, ORDER, ask)
            assert ask.kind is Kind.POST
            assert caller.jobs.words.read(again.reply.body, None) is not None
    return pursuit.record(), outcomes


def test_a_job_of_somebodys_gateway_is_pursued_in_its_words_and_known_by_its_key(tmp_path: Path) -> None:
    with (
        serving_jobs(tmp_path, more="  key: X-Request-Key\n") as gateway,
        ProviderProcess(f"--port={gateway.provider_port}") as provider,
    ):
        provider.control("POST", "reset", {"run": 7, "config": {}})
        caller = Caller(targets.load(str(gateway.target), {}), profile(1, open_tenant("a", 1)), 7, 0)
        caller.prepare(RunClock(time.monotonic_ns()))
        found = [pursued(caller, seq) for seq in (3, 4)]
        caller.close()
        ledger = provider.ledger()["entries"]
    for job, outcomes in found:
        assert (job.state, job.steps, job.relapsed, outcomes) == ("completed", 1, False, [Outcome.ANSWERED])
    assert [(entry["tenant"], entry["seq"]) for entry in ledger] == [(0, 3), (0, 4)], (
        "each posted twice, done once"
    )
