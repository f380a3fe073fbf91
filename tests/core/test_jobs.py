"""Durable jobs, one behaviour at a time: what callers are told, and what is safe when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentload.gateway.headers import first
from agentload.gateway.jobs.protocol import ChatPosted, JobEnded, Recovered, Stored
from agentload.gateway.protocol import Drain, Respond, Stop
from agentload.model import NS
from jobs_world import World, body, chat_step, tool_step


def header(answer: Respond, name: str) -> str | None:
    return first(answer.headers, name.encode())


def code(answer: Respond) -> str:
    return str(body(answer)["error"]["code"])


# --------------------------------------------------------------------------- accepting


def test_nobody_is_told_of_a_job_before_its_row_is_safe() -> None:
    world = World()
    number = world.post([chat_step()])
    assert number not in world.alive.answers
    assert world.alive.chats == {}
    world.alive.flush()
    answer = world.alive.answers[number]
    told = body(answer)
    assert (answer.status, told["state"], sorted(told)) == (
        202,
        "queued",
        ["eta_s", "id", "position", "state"],
    )
    assert header(answer, "location") == f"/v1/jobs/{told['id']}"
    assert told["id"] in world.store.rows


def test_a_full_disk_is_a_503_and_nothing_is_kept() -> None:
    world = World()
    world.store.full = True
    number = world.post([chat_step()], key="k")
    world.alive.flush()
    answer = world.alive.answers[number]
    assert (answer.status, code(answer)) == (503, "store_unavailable")
    assert int(header(answer, "retry-after") or 0) >= 1
    assert world.store.rows == {}
    world.store.full = False
    assert world.accept([chat_step()], key="k") in world.store.rows


def test_the_same_key_gives_the_same_job_and_another_body_a_conflict() -> None:
    world = World()
    twice = [world.post([tool_step()], key="k") for _ in range(2)]
    world.alive.flush()
    ids = {body(world.alive.answers[number])["id"] for number in twice}
    assert len(ids) == 1
    world.settle()
    again = world.post([tool_step()], key="k")
    assert body(world.alive.answers[again]) | {"id": ids.pop()} == body(world.alive.answers[again])
    assert body(world.alive.answers[again])["state"] == "completed"
    other = world.post([tool_step("other")], key="k")
    assert (world.alive.answers[other].status, code(world.alive.answers[other])) == (
        409,
        "idempotency_conflict",
    )
    assert world.accept([tool_step("other")], key="k", tenant="u") not in ids


def test_keys_and_jobs_outlive_the_process() -> None:
    world = World()
    job = world.accept([tool_step()], key="k")
    world.kill()
    world.start()
    again = world.post([tool_step()], key="k")
    assert body(world.alive.answers[again])["id"] == job
    world.settle()
    assert body(world.get(job))["state"] == "completed"


def test_a_job_is_nobodys_but_its_tenants() -> None:
    world = World()
    job = world.accept([chat_step()])
    for answer in (world.get(job, "u"), world.get("job_none")):
        assert (answer.status, code(answer)) == (404, "unknown_job")
    world.delete(job, "u")
    assert not world.store.rows[job].state.ended
    assert world.get(job).status == 200


@pytest.mark.parametrize(
    ("steps", "more", "status", "says"),
    [
        ([], {}, 400, "invalid_request"),
        ([{}], {}, 400, "invalid_request"),
        ([{"chat": {"model": "m"}}], {}, 400, "invalid_request"),
        ([{"tool": {"name": "a b"}}], {}, 400, "invalid_request"),
        ([{"tool": {"name": "a", "wait": 1}}], {}, 400, "invalid_request"),
        ([tool_step()] * 101, {}, 400, "too_many_steps"),
        ([tool_step()], {"service_class": "gold"}, 400, "unknown_service_class"),
        ([tool_step()], {"max_attempts": 0}, 400, "invalid_request"),
        ([tool_step(payload="x" * 9_000_000)], {}, 413, "body_too_long"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    steps: list[dict[str, Any]], more: dict[str, Any], status: int, says: str
) -> None:
    world = World()
    answer = world.alive.answers[world.post(steps, **more)]
    assert (answer.status, code(answer)) == (status, says)
    assert world.alive.batches == []


def test_every_bound_refuses_with_a_promise() -> None:
    world = World(full="reject", max_queue=3, slots=1, tenant_max_queued=4, max_queued=9)
    for _ in range(4):
        world.accept([chat_step()])
        world.alive.flush()
    full = world.alive.answers[world.post([chat_step()])]
    assert (full.status, code(full), int(header(full, "retry-after") or 0) >= 1) == (
        429,
        "tenant_queue_full",
        True,
    )
    crowded = world.alive.answers[world.post([chat_step()], tenant="u")]
    assert (crowded.status, code(crowded)) == (429, "class_queue_full")
    burst = World(full="reject", max_queue=3, slots=1)
    numbers = [burst.post([chat_step()]) for _ in range(8)]  # all before anything is safe
    burst.alive.flush()
    assert sorted(burst.alive.answers[number].status for number in numbers) == [202] * 3 + [429] * 5
    tight = World(max_bytes=10)
    refused = tight.alive.answers[tight.post([chat_step()])]
    assert (refused.status, code(refused)) == (503, "jobs_full")


def test_a_class_that_defers_takes_more_and_says_so() -> None:
    world = World(full="defer", max_queue=2, slots=1)
    for _ in range(4):
        world.accept([chat_step()])
        world.alive.flush()
    number = world.post([chat_step()])
    world.alive.flush()
    assert body(world.alive.answers[number])["state"] == "deferred"
    world.settle()
    assert {row.state.value for row in world.store.rows.values()} == {"completed"}


def test_a_chat_call_that_prefers_to_wait_elsewhere_becomes_a_job() -> None:
    world = World()
    asked = json.dumps(chat_step()["chat"] | {"stream": True}).encode()
    world.alive.feed(ChatPosted(9, ((b"x-tenant", b"t"), (b"prefer", b"respond-async, wait=10")), asked))
    world.alive.flush()
    answer = world.alive.answers[9]
    assert (answer.status, header(answer, "preference-applied")) == (202, "respond-async")
    world.alive.flush()
    [call] = world.alive.chats.values()
    assert "stream" not in json.loads(call.call.body)
    world.settle()
    assert body(world.get(body(answer)["id"]))["result"]["choices"]


# --------------------------------------------------------------------------- running


def test_a_step_is_begun_when_its_lease_is_safe_and_over_when_its_result_is() -> None:
    world = World()
    job = world.accept([chat_step(), tool_step()])
    assert world.alive.chats == {}
    world.alive.flush()
    row = world.store.rows[job]
    assert (row.state.value, row.token, row.deliveries, row.owner) == ("running", 1, 1, world.alive.owner)
    [request_id] = world.alive.chats
    world.alive.answer_chat(request_id)
    assert body(world.get(job))["steps_done"] == 0
    assert world.alive.tools == {}
    world.alive.flush()
    assert body(world.get(job))["steps_done"] == 1
    world.alive.flush()
    [call] = world.alive.tools.values()
    assert first(call.headers, b"idempotency-key") == f"{job}:1"
    world.settle()
    told = body(world.get(job))
    assert (told["state"], told["result"], told["total_tokens"]) == ("completed", {"ok": True}, 8)


def test_leases_are_renewed_and_a_lapsed_one_is_taken_back_through_admission() -> None:
    world = World()
    job = world.accept([tool_step()])
    world.alive.flush()
    for _ in range(8):
        world.advance(0.7)
        world.alive.flush()
    assert body(world.get(job))["attempts"] == 0
    [late] = world.alive.tools
    world.advance(3, told=False)  # the process stood still
    world.alive.tick()
    assert world.alive.tools == {}
    world.alive.flush()
    world.alive.flush()
    told = body(world.get(job))
    assert (told["state"], told["attempts"], told["reason"]) == ("running", 1, "lease_lapsed")
    [again] = world.alive.tools
    assert again != late
    world.settle()
    assert world.store.rows[job].deliveries == 2
    assert world.alive.front.jobs.counters.reclaimed == 1


def test_what_admission_refuses_is_parked_and_never_counted() -> None:
    world = World(slots=1, max_queue=0, ahead=3)
    jobs = [world.accept([chat_step()]) for _ in range(3)]
    world.alive.flush()
    parked = [body(world.get(job)) for job in jobs[1:]]
    assert [one["state"] for one in parked] == ["deferred", "deferred"]
    assert all(one["not_before_ms"] > 1_700_000_000_000 for one in parked)
    world.settle()
    assert [body(world.get(job))["state"] for job in jobs] == ["completed"] * 3
    assert all(row.failures == 0 for row in world.store.rows.values())
    assert world.alive.front.jobs.counters.parked >= 1


def test_a_job_that_kills_its_gateway_is_given_up() -> None:
    world = World(max_attempts=3)
    job = world.accept([tool_step()])
    for _ in range(10):
        world.alive.flush()
        world.alive.flush()
        world.kill()
        world.start()
        world.alive.flush()
    told = body(world.get(job))
    assert (told["state"], told["reason"], told["deliveries"]) == ("failed", "attempts_exhausted", 3)
    assert told["message"].startswith("lease_orphaned")
    assert len(world.keys[job, "0"]) == 1


def test_failures_wait_longer_each_time_and_are_bounded() -> None:
    world = World(max_attempts=3)
    job = world.accept([chat_step()])
    for attempt in range(1, 4):
        world.alive.flush()
        [request_id] = world.alive.chats
        world.alive.answer_chat(request_id, 500)
        world.alive.flush()
        told = body(world.get(job))
        assert told["attempts"] == attempt
        if attempt < 3:
            assert told["state"] in ("deferred", "queued")
            assert world.alive.chats == {}
            world.advance(4)
    assert (told["state"], told["reason"]) == ("failed", "attempts_exhausted")


def test_a_step_that_will_never_be_done_is_not_tried_again() -> None:
    world = World()
    job = world.accept([tool_step(), tool_step()])
    world.alive.flush()
    [call_id] = world.alive.tools
    world.alive.answer_tool(call_id, 400)
    world.alive.flush()
    told = body(world.get(job))
    assert (told["state"], told["reason"], told["steps_done"]) == ("failed", "step_refused", 0)


def test_a_run_stops_at_its_spend_limit() -> None:
    world = World()
    job = world.accept([chat_step()] * 5, max_total_tokens=30)
    world.settle()
    told = body(world.get(job))
    assert (told["state"], told["reason"]) == ("failed", "spend_limit")
    assert told["total_tokens"] <= 30
    assert 1 <= told["steps_done"] < 5


def test_a_hanging_tool_is_given_up_in_time_and_its_call_closed() -> None:
    world = World(max_attempts=1, lease_s=60, heartbeat_s=1)
    job = world.accept([tool_step(timeout_s=2)])
    world.alive.flush()
    [call] = world.alive.tools.values()
    assert call.timeout_ns == 2 * NS
    assert call.connect_timeout_ns == 2 * NS
    world.advance(2.1)
    assert world.alive.tools == {}
    world.alive.flush()
    assert body(world.get(job))["message"].startswith("tool_timeout")


def test_the_deadline_ends_a_job_wherever_it_is() -> None:
    world = World(slots=1, lease_s=60, heartbeat_s=1)
    running = world.accept([chat_step()], deadline_ms=2_000)
    waiting = world.accept([chat_step()], deadline_ms=2_000)
    world.alive.flush()
    world.advance(2.5)
    world.alive.flush()
    for job in (running, waiting):
        assert body(world.get(job))["state"] == "expired"
    assert world.alive.chats == {}
    assert world.alive.front.core.open_requests == 0


# --------------------------------------------------------------------------- ending


def test_cancelling_stops_what_runs_at_once_and_is_answered_when_it_is_safe() -> None:
    world = World(slots=1)
    running, waiting = world.accept([chat_step()]), world.accept([chat_step()])
    world.alive.flush()
    numbers = [world.delete(job) for job in (running, waiting)]
    assert world.alive.chats == {}
    assert world.alive.cancelled_chats == 1
    assert not set(numbers) & set(world.alive.answers)
    world.alive.flush()
    world.alive.flush()  # the second had just been granted the slot: its lease had to be saved first
    for number in numbers:
        assert body(world.alive.answers[number])["state"] == "cancelled"
    again = world.delete(running)
    assert body(world.alive.answers[again])["state"] == "cancelled"
    assert world.alive.front.core.open_requests == 0


def test_a_cancel_that_is_not_safe_is_said_to_be_so_and_made_safe_later() -> None:
    world = World()
    job = world.accept([chat_step()])
    world.alive.flush()
    number = world.delete(job)
    world.store.full = True
    world.alive.flush()
    assert (world.alive.answers[number].status, code(world.alive.answers[number])) == (
        503,
        "store_unavailable",
    )
    world.store.full = False
    world.advance(1)
    world.alive.flush()
    assert world.store.rows[job].state.value == "cancelled"


def test_a_result_that_could_not_be_saved_is_kept_and_saved_later() -> None:
    world = World()
    job = world.accept([tool_step()])
    world.alive.flush()
    [call_id] = world.alive.tools
    world.alive.answer_tool(call_id)
    world.store.full = True
    for _ in range(5):
        world.alive.flush()
        world.advance(5)
    world.store.full = False
    world.advance(5)
    world.alive.flush()
    assert body(world.get(job))["state"] == "completed"
    assert world.store.rows[job].deliveries == 1


def test_a_drain_begins_nothing_and_a_stop_gives_back_uncounted() -> None:
    world = World(slots=1)
    jobs = [world.accept([chat_step()]), world.accept([chat_step()]), world.accept([tool_step()])]
    world.alive.flush()
    world.alive.feed(Drain())
    refused = world.alive.answers[world.post([chat_step()])]
    assert (refused.status, code(refused)) == (503, "shutting_down")
    assert world.alive.front.busy
    [request_id] = world.alive.chats
    world.alive.answer_chat(request_id)
    world.alive.flush()
    assert body(world.get(jobs[0]))["state"] == "completed"
    assert world.alive.chats == {}
    world.alive.feed(Stop())
    assert world.alive.tools == {}
    world.alive.flush()
    assert not world.alive.front.busy
    world.kill()
    world.start()
    world.settle()
    assert all(row.failures == 0 for row in world.store.rows.values())
    assert all(row.state.value == "completed" for row in world.store.rows.values())


def test_ended_jobs_are_forgotten_after_their_time() -> None:
    world = World(retention_s=10)
    job = world.accept([tool_step()], key="k")
    world.settle()
    assert world.store.rows[job].steps == ()
    world.advance(11)
    world.alive.flush()
    assert world.store.rows == {}
    assert world.get(job).status == 404
    assert world.accept([tool_step("other")], key="k") != job


def test_a_recovered_store_forgets_no_ended_job_and_begins_no_second_time() -> None:
    world = World()
    done, open_ = world.accept([tool_step()]), None
    world.settle()
    open_ = world.accept([tool_step()])
    world.kill()
    world.start()
    assert body(world.get(done))["state"] == "completed"
    assert body(world.get(open_))["state"] in ("queued", "running")
    world.settle()
    assert max(world.effects.values()) == 1
    assert world.duplicates == 0


# --------------------------------------------------------------------------- promises


def test_the_eta_of_a_waiting_job_comes_true() -> None:
    world = World(lease_s=60, heartbeat_s=1, tool_slots=2, tool_tenant_slots=2)
    jobs = [world.accept([tool_step(seconds=1)]) for _ in range(20)]
    promised: dict[str, float] = {}
    began: dict[int, float] = {}
    for _ in range(400):
        now_s = world.now_ns / 1e9
        if now_s >= 3:
            for job in jobs:
                told = body(world.get(job))
                if told["eta_s"] is not None and job not in promised and told["position"]:
                    promised[job] = now_s + told["eta_s"]
        world.alive.flush()
        for call_id in list(world.alive.tools):
            if now_s - began.setdefault(call_id, now_s) >= 1:
                world.alive.answer_tool(call_id)
        world.alive.flush()
        world.advance(0.05)
    assert len(promised) >= 10
    for job, at_s in promised.items():
        ended_s = world.store.rows[job].ended_at_ns / 1e9 - 1_700_000_000
        assert ended_s - at_s < 2.5, "later than promised"
        assert at_s - ended_s < 2.5, "much sooner than promised"


def test_positions_count_down_and_tenants_take_turns() -> None:
    world = World(slots=1)
    many = [world.accept([chat_step()], tenant="a") for _ in range(6)]
    one = world.accept([chat_step()], tenant="b")
    world.alive.flush()
    assert [body(world.get(job, "a"))["position"] for job in many] == [0, 2, 3, 4, 5, 6]
    assert body(world.get(one, "b"))["position"] == 2


def test_every_end_is_reported_once() -> None:
    world = World()
    ended = []
    handle = world.alive.front.handle

    def listening(now_ns: int, event: Any) -> Any:
        actions = handle(now_ns, event)
        ended.extend(action for action in actions if isinstance(action, JobEnded))
        return actions

    world.alive.front.handle = listening  # type: ignore[method-assign]
    for _ in range(3):
        world.accept([tool_step()])
    world.settle()
    assert len(ended) == 3
    assert {one.job.state.value for one in ended} == {"completed"}


def test_news_of_batches_that_nobody_knows_is_ignored() -> None:
    world = World()
    world.alive.feed(Stored(99, ()))
    world.alive.feed(Recovered(()))
    assert world.alive.batches == []


def test_what_a_run_is_taken_for_is_kept_with_it_and_what_it_cost_is_recorded_step_by_step() -> None:
    world = World()
    chat, tool = chat_step("hello" * 8, max_tokens=1_000), tool_step(seconds=20.0)
    job = world.accept([chat, tool, chat], key="contract_review:doc_884")
    world.settle()
    world.kill()
    world.start()
    told = body(world.get(job))
    # Twice 10 + 1,000 tokens, a quarter for a call of a tool, a tenth for each of its seconds.
    assert told["estimated_work_units"] == pytest.approx(2 * 1.01 + 0.25 + 2.0)
    assert told["idempotency_key"] == "contract_review:doc_884"
    costs = [(one["kind"], one["input_tokens"], one["output_tokens"]) for one in told["results"]]
    assert costs == [("chat", 3, 5), ("tool", 0, 0), ("chat", 3, 5)]
    assert all(one["seconds"] >= 0 for one in told["results"])


def test_a_tool_that_would_end_after_the_deadline_is_not_called() -> None:
    world = World()
    hopeless = world.alive.answers[world.post([tool_step(seconds=2.0)], deadline_ms=1_900)]
    assert (hopeless.status, code(hopeless)) == (504, "deadline_unmeetable")
    assert header(hopeless, "retry-after") is None
    job = world.accept([chat_step(), tool_step(seconds=2.0)], deadline_ms=5_000)
    world.alive.flush()
    for _ in range(5):  # the chat step takes most of it
        world.advance(0.7)
        world.alive.flush()
    [call] = world.alive.chats
    world.alive.answer_chat(call)
    for _ in range(4):
        world.alive.flush()
    told = body(world.get(job))
    assert (told["state"], told["reason"], told["steps_done"]) == ("expired", "deadline_unmeetable", 1)
    assert not world.keys, "no tool was called"
