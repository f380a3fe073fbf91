"""Durable jobs under crashes at every point: nothing accepted is lost, nothing is done twice."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentload.gateway.protocol import Drain, Stop
from jobs_world import Process, World, chat_step, tool_step

STEPS = {
    "chat": [chat_step()],
    "tool": [tool_step()],
    "run": [chat_step(), tool_step(), chat_step()],
    "tools": [tool_step("a"), tool_step("b")],
}


class Crashes(RuleBasedStateMachine):
    """Requests, answers, failures, crashes and zombies in any order."""

    @initialize(full=st.sampled_from(["defer", "reject"]), slots=st.integers(1, 3))
    def begin(self, full: str, slots: int) -> None:
        self.world = World(full=full, slots=slots)
        self.posted: list[int] = []
        self.zombies: list[Process] = []
        self.releases = 0

    def take_answers(self) -> None:
        process = self.world.process
        for number in list(self.posted):
            answer = None if process is None else process.answers.get(number)
            if answer is not None:
                self.posted.remove(number)
                if answer.status == 202:
                    self.world.accepted.append(json.loads(answer.body)["id"])

    # ----------------------------------------------------------------- callers

    @precondition(lambda self: self.world.process is not None)
    @rule(what=st.sampled_from(sorted(STEPS)), tenant=st.sampled_from("ab"), key=st.sampled_from([None, "k"]))
    def post(self, what: str, tenant: str, key: str | None) -> None:
        self.posted.append(self.world.post(STEPS[what], tenant=tenant, key=key))

    @precondition(lambda self: self.world.process is not None and self.world.accepted)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.world.accepted))
        tenant = self.world.store.rows[job].tenant
        self.world.delete(job, tenant=tenant)

    # ----------------------------------------------------------------- the store

    @precondition(lambda self: self.world.process is not None)
    @rule(full=st.booleans())
    def flush(self, full: bool) -> None:
        self.world.store.full = full
        self.world.alive.flush()
        self.world.store.full = False

    # ----------------------------------------------------------------- the outside

    @precondition(lambda self: self.world.process is not None and self.world.alive.chats)
    @rule(data=st.data(), status=st.sampled_from([200, 200, 500, 429, 400]))
    def answer_chat(self, data: st.DataObject, status: int) -> None:
        self.world.alive.answer_chat(data.draw(st.sampled_from(sorted(self.world.alive.chats))), status)

    @precondition(lambda self: self.world.process is not None and self.world.alive.tools)
    @rule(data=st.data(), status=st.sampled_from([200, 200, 500, 400]))
    def answer_tool(self, data: st.DataObject, status: int) -> None:
        self.world.alive.answer_tool(data.draw(st.sampled_from(sorted(self.world.alive.tools))), status)

    @rule(seconds=st.sampled_from([0.01, 0.3, 0.7, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    # ----------------------------------------------------------------- crashes

    @precondition(lambda self: self.world.process is not None)
    @rule(committed=st.booleans(), zombie=st.booleans())
    def kill(self, committed: bool, zombie: bool) -> None:
        """Before what it wanted saved was, or after, but before it heard of it."""
        self.take_answers()
        if committed:
            self.world.alive.flush(tell=False)
        killed = self.world.kill()
        self.posted.clear()
        if zombie and not committed:
            self.zombies.append(killed)

    @precondition(lambda self: self.world.process is None)
    @rule()
    def start(self) -> None:
        self.world.start()

    @precondition(lambda self: self.zombies)
    @rule(data=st.data())
    def zombie_goes_on(self, data: st.DataObject) -> None:
        """A former holder that was only slow: its answers come, and it writes what it thinks it may."""
        zombie = data.draw(st.sampled_from(self.zombies))
        for call_id in list(zombie.tools):
            zombie.answer_tool(call_id)
        for request_id in list(zombie.chats):
            zombie.answer_chat(request_id)
        zombie.write_late()

    @precondition(lambda self: self.world.process is not None)
    @rule()
    def shut_down(self) -> None:
        self.take_answers()
        self.releases += 1
        self.world.alive.feed(Drain())
        self.world.alive.feed(Stop())
        self.world.alive.flush()
        self.world.alive.flush()
        assert not self.world.alive.chats
        assert not self.world.alive.tools
        self.take_answers()
        self.world.kill()
        self.posted.clear()

    # ----------------------------------------------------------------- what holds

    @invariant()
    def answers_are_true(self) -> None:
        self.take_answers()
        for job in self.world.accepted:
            assert job in self.world.store.rows, "a 202 before the row was safe"

    @invariant()
    def deliveries_are_counted(self) -> None:
        for job in self.world.store.rows.values():
            assert job.failures <= job.max_attempts
            # Every delivery ended in a result, a failure or a shutdown; one may be under way or cancelled.
            spare = 1 + self.releases + len(self.zombies)
            assert job.deliveries <= job.step + job.failures + spare

    @invariant()
    def a_step_is_called_with_one_key(self) -> None:
        assert all(len(keys) == 1 for keys in self.world.keys.values())
        assert all(count == 1 for count in self.world.effects.values())

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        if self.world.process is None:
            self.world.start()
        self.world.settle()
        for job in self.world.accepted:
            row = self.world.store.rows[job]
            assert row.state.ended
            if row.state == "completed":
                assert row.step == row.steps_total == len(row.results)
        jobs = self.world.alive.front.jobs
        assert len(jobs._underway) == 0
        assert jobs._gate.used == 0
        assert len(jobs.leased) == 0
        assert jobs.registry.open == 0
        assert jobs.registry.bytes == 0
        assert self.world.alive.front.core.open_requests == 0


TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
