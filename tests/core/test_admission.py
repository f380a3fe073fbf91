"""A request whose call failed and that is admitted to a second one: what it keeps, what it gives back."""

from __future__ import annotations

from agentload.scheduler.events import Dispatched
from agentload.scheduler.reasons import Reason
from agentload.scheduler.work import Request
from scheduler_kit import NS, Scene, gateway

BUDGET = {"tenants": {"a": {"budget": {"tokens": 1000}}}}


def call_again(scene: Scene, request: Request, *, input_tokens: int = 0, output_tokens: int = 0) -> bool:
    """Its call failed, and has cost so much."""
    del scene.running[request.id]
    waits = scene.admission.retry(
        scene.now_ns, request.id, input_tokens=input_tokens, output_tokens=output_tokens
    )
    scene.poll()
    return waits


def test_a_refused_call_that_waits_again_is_not_counted_twice() -> None:
    scene = Scene(gateway(slots=1))
    first, second = scene.submit("a"), scene.submit("b")
    scene.admission.provider_refused(scene.now_ns, first.id, NS)
    assert call_again(scene, first)
    scene.pass_time(NS)
    assert scene.fate(second) == "dispatched", "it does not jump the queue"
    scene.end(second)
    scene.pass_time(NS)
    assert [event.request.id for event in scene.of(Dispatched)] == [first.id, second.id, first.id]
    count = scene.snapshot.counters
    assert (count.offered, count.admitted, count.dispatched, count.retried) == (2, 2, 3, 1)


def test_one_that_cannot_wait_so_long_has_failed() -> None:
    scene = Scene(gateway(slots=1, max_wait_s=5))
    first = scene.submit("a")
    scene.admission.provider_refused(scene.now_ns, first.id, 9 * NS)
    assert not call_again(scene, first)
    assert scene.snapshot.counters.failed == 1
    assert scene.snapshot.running == scene.snapshot.waiting == 0
    assert scene.refusals == []


def test_a_retry_is_as_old_as_its_request() -> None:
    scene = Scene(gateway(slots=1, max_wait_s=10))
    first = scene.submit("a")
    scene.pass_time(4 * NS)
    scene.submit("b")
    scene.submit("c")
    assert call_again(scene, first)
    assert scene.snapshot.waiting == 2
    assert scene.snapshot.oldest_wait_ns == 4 * NS
    scene.pass_time(6 * NS)
    assert scene.fate(first) == "max_wait"
    assert scene.snapshot.oldest_wait_ns == 6 * NS


# ---------------------------------------------------------------- budgets and limits of the tenant


def test_a_call_that_cost_nothing_keeps_what_was_reserved_for_it() -> None:
    scene = Scene(gateway(**BUDGET))
    first = scene.submit("a", 900, real_tokens=300)
    assert call_again(scene, first)
    assert scene.fate(scene.submit("a", 200)) == "budget_reserved"
    scene.end(first)
    assert scene.fate(scene.submit("a", 700)) == "dispatched", "300 are spent, once"


def test_a_call_that_may_have_done_its_work_is_paid_and_needs_as_much_again() -> None:
    scene = Scene(gateway(**BUDGET))
    assert not call_again(scene, scene.submit("a", 600), output_tokens=500)
    assert call_again(scene, scene.submit("a", 100), output_tokens=50)
    assert scene.snapshot.counters.failed == 1
    assert scene.fate(scene.submit("a", 400)) == "budget_reserved", "550 are spent, and 100 reserved"


def test_a_second_call_is_not_counted_against_its_tenants_limit() -> None:
    scene = Scene(gateway(tenants={"a": {"requests_per_minute": 60, "burst_s": 2}}))
    assert call_again(scene, scene.submit("a"))
    assert scene.fate(scene.submit("a")) == "dispatched"
    assert scene.fate(scene.submit("a")) == "tenant_over_limit"


def test_one_that_leaves_while_it_waits_again_gives_everything_back() -> None:
    scene = Scene(gateway(slots=1, **BUDGET))
    first = scene.submit("a", 900)
    scene.submit("b")
    assert call_again(scene, first)
    scene.cancel(first)
    assert scene.snapshot.counters.cancelled == 1
    assert scene.fate(scene.submit("a", 900)) == "waiting", "its budget is whole"


def test_while_it_shuts_down_no_second_call_is_begun() -> None:
    scene = Scene(gateway(**BUDGET))
    first = scene.submit("a", 900)
    scene.admission.drain(scene.now_ns)
    assert not call_again(scene, first)
    assert scene.snapshot.counters.failed == 1


def test_a_deadline_that_a_second_call_cannot_meet_leaves_none() -> None:
    scene = Scene(gateway())
    for _ in range(3):
        request = scene.submit("a", workflow="slow")
        scene.pass_time(4 * NS)
        scene.end(request)
    hasty = scene.submit("a", workflow="slow", deadline_ns=scene.now_ns + 5 * NS)
    scene.pass_time(2 * NS)
    assert not call_again(scene, hasty)
    assert Reason.DEADLINE_UNMEETABLE not in {refusal.reason for refusal in scene.refusals}, "it has failed"
