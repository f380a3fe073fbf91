"""Each safeguard of durable jobs, seen to matter: without it a promise is broken that the reference keeps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from agentload.gateway.jobs import states
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.lifecycle import JobLifecycle
from agentload.gateway.jobs.model import Job, Verdict
from agentload.gateway.jobs.news import Begin, Effects, Ended, Granted
from agentload.gateway.jobs.phase import Phase
from agentload.gateway.jobs.store import APPLIED, Change, Outcome, Update
from jobs_world import WatchedStore, World, body, chat_step, tool_step

# --------------------------------------------------------------------------- what the reference keeps


def nothing_accepted_is_lost(world: World) -> None:
    number = world.post([tool_step()])
    answer = world.alive.answers.get(number)
    world.kill()
    world.start()
    if answer is not None:
        assert body(answer)["id"] in world.store.rows


def what_was_under_way_is_taken_over(world: World) -> None:
    world.accept([tool_step()])
    world.alive.flush()
    world.kill()
    world.start()
    world.settle()


def what_is_refused_is_parked(world: World) -> None:
    for _ in range(3):
        world.accept([chat_step()])
    world.settle()
    assert all(row.state.value == "completed" for row in world.store.rows.values())


def a_slow_former_holder_cannot_win(world: World) -> None:
    world.accept([tool_step()])
    world.alive.flush()
    zombie = world.kill()
    world.start()
    world.alive.flush()
    world.alive.flush()
    for call_id in list(zombie.tools):
        zombie.answer_tool(call_id)
    zombie.write_late()


def a_step_has_one_key(world: World) -> None:
    what_was_under_way_is_taken_over(world)
    assert all(len(keys) == 1 for keys in world.keys.values())


def poison_is_given_up(world: World) -> None:
    job = world.accept([tool_step()])
    for _ in range(12):
        world.alive.flush()
        world.alive.flush()
        world.kill()
        world.start()
    world.alive.flush()
    assert world.store.rows[job].state.ended


def no_delivery_goes_uncounted(world: World) -> None:
    job = world.accept([tool_step()])
    for _ in range(4):  # it dies before anything of the delivery is saved
        world.kill()
        world.start()
    assert world.calls <= world.store.rows[job].deliveries


def a_long_step_keeps_its_lease(world: World) -> None:
    job = world.accept([tool_step()])
    world.alive.flush()
    for _ in range(10):
        world.advance(0.6)
        world.alive.flush()
    assert world.store.rows[job].deliveries == 1


def a_hang_is_given_up(world: World) -> None:
    job = world.accept([tool_step(timeout_s=1)], deadline_ms=4_000)
    for _ in range(12):
        world.alive.flush()
        world.advance(0.5)
    world.alive.flush()
    assert world.store.rows[job].state.ended


PROMISES = [
    nothing_accepted_is_lost,
    what_was_under_way_is_taken_over,
    what_is_refused_is_parked,
    a_slow_former_holder_cannot_win,
    a_step_has_one_key,
    poison_is_given_up,
    no_delivery_goes_uncounted,
    a_long_step_keeps_its_lease,
    a_hang_is_given_up,
]


def world(core: type[JobsCore] = JobsCore, store: type[WatchedStore] = WatchedStore) -> World:
    return World(core=core, store=store, slots=1, max_queue=0, max_attempts=3, ahead=3)


@pytest.mark.parametrize("promise", PROMISES)
def test_the_reference_keeps_it(promise: Callable[[World], None]) -> None:
    promise(world())


# --------------------------------------------------------------------------- without one safeguard


class AnswersBeforeItIsSafe(JobsCore):
    def _accept(self, at_ns: int, lifecycle: JobLifecycle) -> None:
        super()._accept(at_ns, lifecycle)
        self._out.extend(self._desk.accepted(at_ns, lifecycle))


class NewKeyEachTime(JobsCore):
    def step_key(self, job: Job) -> str:
        return f"{super().step_key(job)}:{job.deliveries}"


class NeverRenews(JobsCore):
    def _beat(self, at_ns: int) -> None:
        self._leases.due_ns = None


class NeverReclaims(JobsCore):
    class lifecycle(JobLifecycle):
        def recovered(self, at_ns: int) -> Effects:
            return [] if self.job.owner else super().recovered(at_ns)


class CountsNoFailures(JobsCore):
    class lifecycle(JobLifecycle):
        def _reclaim(self, at_ns: int, reason: str, message: str) -> Effects:
            return self._settle(states.release(self.job))


class DropsWhatIsRefused(JobsCore):
    class lifecycle(JobLifecycle):
        def handle(self, at_ns: int, event: object) -> Effects:
            effects = super().handle(at_ns, event)
            parked = isinstance(event, Ended) and event.end.verdict is Verdict.PARKED
            return [] if parked and self.phase is Phase.WAITING else effects


class BeginsBeforeTheLeaseIsSafe(JobsCore):
    class lifecycle(JobLifecycle):
        def handle(self, at_ns: int, event: object) -> Effects:
            effects = super().handle(at_ns, event)
            if isinstance(event, Granted):
                self._give_up_ns = at_ns + 10**12
                return [*effects, Begin()]
            return [one for one in effects if not isinstance(one, Begin)]


class WaitsForEver(JobsCore):
    class lifecycle(JobLifecycle):
        def _arm(self, at_ns: int) -> None:
            super()._arm(at_ns)
            if self.phase is Phase.RUNNING:
                self.timer_ns = self.job.leased_until_ns


class Unfenced(WatchedStore):
    """Takes any update of a row that has not ended."""

    def _make(self, change: Change) -> Outcome:
        if isinstance(change, Update):
            self.rows[change.job.id] = replace(change.job)
            return APPLIED
        return super()._make(change)


@pytest.mark.parametrize(
    ("promise", "core"),
    [
        (nothing_accepted_is_lost, AnswersBeforeItIsSafe),
        (what_was_under_way_is_taken_over, NeverReclaims),
        (what_is_refused_is_parked, DropsWhatIsRefused),
        (a_step_has_one_key, NewKeyEachTime),
        (poison_is_given_up, CountsNoFailures),
        (no_delivery_goes_uncounted, BeginsBeforeTheLeaseIsSafe),
        (a_long_step_keeps_its_lease, NeverRenews),
        (a_hang_is_given_up, WaitsForEver),
    ],
)
def test_without_its_safeguard_it_is_broken(promise: Callable[[World], None], core: type[JobsCore]) -> None:
    with pytest.raises(AssertionError):
        promise(world(core))


def test_without_tokens_a_stale_holder_wins() -> None:
    with pytest.raises(AssertionError, match=r"stale|ended job changed"):
        a_slow_former_holder_cannot_win(world(store=Unfenced))
