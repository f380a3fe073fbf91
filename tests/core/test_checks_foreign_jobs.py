"""Durable jobs of a gateway that knows no steps of ours: a job is one chat call, which our provider sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from agentload.checks import Check
from agentload.checks.eta_honest import EtaHonest
from agentload.checks.exactly_once import ExactlyOnce
from agentload.checks.lease_reclaim import LeaseReclaim
from agentload.checks.nothing_lost import NothingLost
from agentload.client.job_pursuit import JobPursuit, JobReply, Kind
from agentload.client.job_words import words_of
from agentload.client.job_writer import JobWriter
from agentload.evidence.durable_scene import JobScene
from agentload.evidence.synthetic import MS
from agentload.judge import judge
from agentload.model import (
    NS,
    Arrival,
    CallEnding,
    Job,
    JobOrder,
    JobRecord,
    JobStep,
    LedgerEntry,
    Outcome,
    Run,
    Spec,
    Status,
    ToolUse,
)
from agentload.promises import Promises, Truth, is_not_asked
from agentload.targets import Target
from agentload.targets._declares import as_declared
from fake_provider import marker

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE
KILL_MS = 5_000
NAMES = {
    "body": {"ask": "{prompt}", "most": "{max_tokens}"},
    "poll": "/tasks/{id}",
    "id": "task.ref",
    "state": "task.phase",
    "done": ["ready"],
    "failed": ["broken"],
    "expired": [],
    "reason": "task.why",
    "key": "X-Request-Key",
    "eta_s": "task.in",
    "position": "task.ahead",
}
TARGET = Target(name="gw.yaml", host="gw", port=80, path="/tasks", flavour="jobs", options={"jobs": NAMES})


class Scene(JobScene):
    """Its jobs are chat calls, as a target's that maps its names."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger: list[LedgerEntry] = []

    def chat(self, job: JobRecord, at_ms: float, took_ms: float, ending: str = "completed") -> None:
        at_ns = round(at_ms * MS)
        self.ledger.append(
            LedgerEntry(
                call=len(self.ledger) + 1,
                arrived_ns=at_ns,
                started_ns=at_ns,
                ended_ns=at_ns + round(took_ms * MS),
                ending=CallEnding(ending),
                tenant=job.tenant,
                seq=job.seq,
                attempt=0,
            )
        )

    def played(self, **more: Any) -> Run:
        mapped, promises = as_declared(self.profile, TARGET.to_dict())
        run = msgspec.structs.replace(self.run(), profile=mapped, ledger=self.ledger, promises=promises)
        return msgspec.structs.replace(run, **more)


def scene(*, cut: int = 5, again_ms: float | None = None, ended_ms: float = 190.0) -> Scene:
    """Forty jobs; the calls of `cut` of them are cut off by the kill and made again. One more is answered
    `ended_ms` after 4,600, and called again at `again_ms`."""
    made = Scene()
    for k in range(40):
        at_ms = 4_800 if k < cut else 6_000 + 100 * k
        job = made.job(at_ms, 2_000)
        if k < cut:
            made.chat(job, at_ms + 10, KILL_MS - at_ms, "cancelled")
            made.chat(job, 5_900, 200)
        else:
            made.chat(job, at_ms + 10, 150)
    if again_ms is not None:
        job = made.job(4_590, 3_000)
        made.chat(job, 4_600, ended_ms)
        made.chat(job, again_ms, 100)
    return made


def verdict(check: Check, run: Run) -> tuple[Status, str]:
    found = check.judge(run)
    return found.status, found.because


def test_a_call_that_the_kill_cut_off_is_rightly_made_again() -> None:
    status, because = verdict(ExactlyOnce(), scene().played())
    assert (status, "40 whole answers for 40 jobs, 5 of them called again" in because) == (PASSED, True)


def test_nothing_is_shown_where_no_call_was_made_again() -> None:
    status, because = verdict(ExactlyOnce(), scene(cut=2).played())
    assert (status, "only 2 jobs called more than once" in because) == (INCONCLUSIVE, True)
    assert because.endswith("(kill the gateway under more load)")


def test_lost_jobs_are_not_called_again_under_more_load() -> None:
    made = scene(cut=0)
    for at_ms in (4_700, 4_900):
        made.chat(job := made.job(at_ms, None), at_ms + 10, 100, "cancelled")
        job.answered_ns = 24_000 * MS
    status, because = verdict(ExactlyOnce(), made.played())
    lost = "2 accepted jobs never ended, and lost work is never called again"
    assert (status, because) == (
        INCONCLUSIVE,
        "only 0 jobs called more than once: at least 3 are needed; "
        f"{lost}: mend what nothing-lost shows first",
    )


@pytest.mark.parametrize(
    ("ended_ms", "again_ms", "expected"),
    [
        (100.0, 5_900.0, FAILED),  # 300 ms before the kill: time enough to write it down
        (390.0, 5_900.0, PASSED),  # 10 ms before it
        (500.0, 5_900.0, PASSED),  # while it was dead: nobody read the answer
        (100.0, 4_650.0, FAILED),  # side by side, long before the kill
    ],
)
def test_an_answer_that_could_be_written_down_is_not_asked_for_again(
    ended_ms: float, again_ms: float, expected: Status
) -> None:
    run = scene(again_ms=again_ms, ended_ms=ended_ms).played()
    status, because = verdict(ExactlyOnce(), run)
    assert status is expected, because
    if expected is FAILED:
        assert "1 were answered once more for nothing" in because


def test_a_job_posted_again_without_a_key_is_forgiven_its_second_call() -> None:
    made = scene(again_ms=5_900.0, ended_ms=100.0)
    made.jobs[-1].posts = 2
    assert verdict(ExactlyOnce(), made.played())[0] is FAILED, "it has a key"
    made.jobs[-1].key = ""
    assert verdict(ExactlyOnce(), made.played())[0] is PASSED
    made.jobs[-1].posts = 1
    assert verdict(ExactlyOnce(), made.played())[0] is FAILED, "it was posted once"


def test_a_completed_job_without_a_call_has_not_been_done() -> None:
    made = scene()
    made.job(9_000, 500)
    assert verdict(ExactlyOnce(), made.played()) == (
        FAILED,
        "40 whole answers for 40 jobs, 5 of them called again; "
        "0 were answered once more for nothing, 1 never",
    )
    status, because = verdict(ExactlyOnce(), made.played(unattributed=9))
    assert (status, "9 of 45 provider calls cannot be traced" in because) == (INCONCLUSIVE, True)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"ledger_available": False}, "the run has none"), ({"ledger": []}, "does {prompt} reach it unchanged")],
)
def test_without_the_providers_word_nothing_is_known_of_calls(change: dict[str, Any], words: str) -> None:
    status, because = verdict(ExactlyOnce(), scene().played(**change))
    assert (status, words in because) == (INCONCLUSIVE, True), because


def test_orphans_are_calls_that_were_cut_off() -> None:
    status, because = verdict(LeaseReclaim(), scene().played())
    assert (status, because.startswith("5 steps orphaned")) == (PASSED, True)
    made = scene()
    made.ledger = [call for call in made.ledger if call.arrived_ns != 5_900 * MS]
    for job in made.jobs[:5]:
        job.state = job.ended_ns = None
    assert verdict(LeaseReclaim(), made.played())[0] is FAILED


# --------------------------------------------------------------------------- late, or lost


def unended(last_shown_ms: float | None) -> Scene:
    """Eighty jobs, and one more that is never seen to end."""
    made = Scene()
    for k in range(80):
        made.job(1_000 + 100 * k, 1_500)
    job = made.job(9_000, None)
    job.answered_ns = 24_000 * MS
    job.shown_ns = None if last_shown_ms is None else round(last_shown_ms * MS)
    return made


def test_a_job_that_is_still_shown_is_late_where_no_deadlines_are_declared() -> None:
    run = unended(24_000).played()
    status, because = verdict(NothingLost(), run)
    assert (status, "1 job had not ended long after the deadline" in because) == (INCONCLUSIVE, True)
    strict = Promises(known=frozenset({Truth.DEADLINES}))
    assert verdict(NothingLost(), msgspec.structs.replace(run, promises=strict))[0] is FAILED
    assert verdict(NothingLost(), msgspec.structs.replace(run, promises=None))[0] is FAILED


@pytest.mark.parametrize(("overtaken", "shown_ms"), [(True, 24_000), (False, None), (False, 23_000)])
def test_it_is_lost_where_a_later_one_has_ended_or_it_is_no_longer_known(
    overtaken: bool, shown_ms: float | None
) -> None:
    made = unended(shown_ms)
    if overtaken:
        made.job(9_100, 1_500)
    assert verdict(NothingLost(), made.played())[0] is FAILED


# --------------------------------------------------------------------------- what is declared


def promises_of(**declares: Any) -> Promises:
    _, found = as_declared(Scene().profile, replace(TARGET, declares=declares).to_dict())
    assert found is not None
    return found


def test_a_target_that_is_asked_after_its_work_has_jobs_of_one_call() -> None:
    mapped, promises = as_declared(Scene().profile, TARGET.to_dict())
    assert mapped.tenants[0].job is not None
    assert mapped.tenants[0].job.steps == (JobStep(chat=True),)
    assert promises is not None
    assert {Truth.JOBS, Truth.JOB_ETAS} == promises.known
    same, _ = as_declared(Scene().profile, replace(TARGET, declares="profile").to_dict())
    assert same.tenants[0].job == mapped.tenants[0].job
    assert mapped.about == f"{Scene().profile.about} Each job is one chat call: this gateway takes no steps."
    assert as_declared(mapped, TARGET.to_dict())[0].about == mapped.about
    own = replace(TARGET, options={})
    kept = as_declared(Scene().profile, own.to_dict())[0]
    assert (kept.tenants, kept.about) == (Scene().profile.tenants, Scene().profile.about)


def test_what_is_not_promised_of_jobs_is_not_asked() -> None:
    promises = promises_of(jobs=True, without=["job_leases", "job_etas"])
    assert promises.known == {Truth.JOBS}
    assert is_not_asked(LeaseReclaim().rests(), promises)
    assert is_not_asked(EtaHonest().rests(), promises)
    assert not is_not_asked(NothingLost().rests(), promises)
    assert Truth.JOB_LEASES in promises_of(jobs={"lease_s": 2}).known
    profile = Scene().profile.model_copy(update={"checks": (Spec(kind="eta-honest"),)})
    made = scene()
    made.profile = profile
    [found] = judge(made.played())
    assert (
        found.because
        == "none of 40 jobs was told an ETA: jobs.eta_s of the target file says where one stands"
    )


# --------------------------------------------------------------------------- what is sent, and understood

ORDER = JobOrder(
    steps=(JobStep(tool=ToolUse(side_effect=True)), JobStep(chat=True)), max_attempts=3, poll_s=0.1
)
ARRIVAL = Arrival(
    seq=7,
    tenant="a",
    service_class="standard",
    phase="load",
    due_ns=NS,
    job=Job(input_tokens=24, output_tokens=10, declared_output_tokens=48, stream=True),
)


def test_a_job_is_posted_in_the_targets_words_always_the_same_and_with_its_key() -> None:
    writer = JobWriter(TARGET, 9)
    head, _, body = writer.post(ARRIVAL, ORDER, 4, 3 * NS).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /tasks HTTP/1.1\r\n")
    assert b"\r\nX-Request-Key: 0009-7\r\n" in head
    assert b"Idempotency-Key" not in head
    assert body == writer.post(ARRIVAL, ORDER, 4, 5 * NS).partition(b"\r\n\r\n")[2]
    asked = msgspec.json.decode(body)
    found = marker.decode([{"role": "user", "content": asked["ask"]}][-1]["content"])
    assert found is not None
    assert (found.run, found.tenant, found.seq, asked["most"]) == (9, 4, 7, 48)
    keyless = JobWriter(replace(TARGET, options={"jobs": NAMES | {"key": None}}), 9)
    assert b"Key:" not in keyless.post(ARRIVAL, ORDER, 4, NS).partition(b"\r\n\r\n")[0]
    assert keyless.key(ARRIVAL) == ""


class Chase:
    def __init__(self, target: Target = TARGET) -> None:
        self.pursuit = JobPursuit(ARRIVAL, target.api.job_order(ORDER), "k", 60 * NS, words_of(target))
        self.now_ns = NS
        self.outcomes: list[tuple[Outcome, str | None]] = []

    def answer(self, status: int, body: Any = None, location: str | None = None) -> str:
        """Where it asked."""
        ask = self.pursuit.next_ask()
        assert ask is not None
        self.now_ns = max(self.now_ns, ask.due_ns) + 1
        text = b"" if body is None else msgspec.json.encode(body)
        reply = JobReply(sent_ns=self.now_ns, status=status, body=text, location=location)
        if (record := self.pursuit.heard(self.now_ns, ask, reply)) is not None:
            self.outcomes.append((record.outcome, record.reason))
        return ask.path if ask.kind is Kind.POLL else "posted"


def test_a_mapped_job_is_pursued_by_its_own_names() -> None:
    chase = Chase()
    chase.answer(200, {"task": {"ref": "a/b", "phase": "pending", "in": 3, "ahead": 2}})
    assert chase.answer(202, {"task": {"phase": "working"}}) == "/tasks/a%2Fb"
    assert chase.pursuit.record().shown_ns == chase.now_ns
    chase.answer(500)
    chase.answer(200, {"task": {"phase": "broken", "why": "no luck"}})
    chase.answer(200, {"task": {"phase": "broken", "why": "no luck"}})
    assert chase.pursuit.next_ask() is None
    job = chase.pursuit.record()
    assert (job.id, job.state, job.reason, job.steps) == ("a/b", "failed", "no luck", 1)
    assert (job.eta_s, job.position, job.poll_faults, job.relapsed) == (3.0, 2, {"500": 1}, False)
    assert chase.outcomes == [(Outcome.ANSWERED, None)]


def test_why_a_job_ended_is_kept_without_secrets_and_in_bounds() -> None:
    keyed = replace(TARGET, keyring={("Authorization", "a"): "sk-secret-123456"})
    chase = Chase(keyed)
    chase.answer(200, {"task": {"ref": "r", "phase": "broken"}})
    chase.answer(200, {"task": {"phase": "broken", "why": "refused sk-secret-123456 " + "x" * 500}})
    reason = chase.pursuit.record().reason
    assert reason is not None
    assert "sk-secret" not in reason
    assert reason.startswith("refused ")
    assert len(reason) == 120


def test_jobs_that_did_not_complete_are_said_beside_the_whole_answers() -> None:
    made = scene()
    made.job(9_000, 500).state = "failed"
    status, because = verdict(ExactlyOnce(), made.played())
    assert (status, because.endswith("0 never; jobs that did not complete are owed nothing (1 failed)")) == (
        PASSED,
        True,
    ), because


def test_a_response_in_the_background_is_a_job_too() -> None:
    told = Target(
        name="t",
        host="gw",
        port=80,
        path="/v1/responses",
        flavour="openai-responses",
        options={"background": True},
    )
    post = JobWriter(told, 9).post(ARRIVAL, ORDER, 4, NS)
    assert post.startswith(b"POST /v1/responses HTTP/1.1\r\n")
    asked = msgspec.json.decode(post.partition(b"\r\n\r\n")[2])
    assert (asked["background"], asked.get("stream", False)) == (True, False)
    chase = Chase(told)
    chase.answer(200, {"id": "resp_1", "status": "queued"})
    assert chase.answer(200, {"id": "resp_1", "status": "in_progress"}) == "/v1/responses/resp_1"
    chase.answer(200, {"id": "resp_1", "status": "incomplete", "output": []})
    assert chase.pursuit.record().state == "completed"


def test_an_end_that_turns_into_another_is_noticed() -> None:
    chase = Chase()
    chase.answer(202, {"task": {"ref": "x", "phase": "pending"}})
    chase.answer(200, {"task": {"phase": "ready"}})
    chase.answer(200, {"task": {"phase": "working"}})
    assert chase.pursuit.record().relapsed


def test_a_location_names_a_job_without_an_id() -> None:
    chase = Chase()
    chase.answer(201, None, "/elsewhere/5?a=b")
    assert chase.answer(200, {"task": {"phase": "ready"}}) == "/elsewhere/5?a=b"
    assert chase.pursuit.record().id == "/elsewhere/5?a=b"


@pytest.mark.parametrize(
    ("body", "location"),
    [
        ({"id": "x"}, None),
        ({"task": {"ref": ".."}}, None),
        (None, "http://other/tasks/5"),
        ({"task": {"ref": "x" * 300}}, None),
    ],
)
def test_a_job_that_cannot_be_asked_for_is_no_answer(body: Any, location: str | None) -> None:
    chase = Chase()
    chase.answer(202, body, location)
    assert chase.pursuit.next_ask() is None
    assert chase.outcomes == [(Outcome.FAILED, "answer-without-id")]
    assert chase.pursuit.record().accepted_ns is None
