"""Virtual time: what runs when."""

from __future__ import annotations

from random import Random

from agentload.drivers.simulated.kernel import MESSAGE, OBSERVE, TIMER, Kernel


def test_things_run_by_instant_then_priority_then_in_the_order_asked_for() -> None:
    kernel, ran = Kernel(), list[str]()
    kernel.at(20, ran.append, "later")
    kernel.at(10, ran.append, "gauge", OBSERVE)
    kernel.at(10, ran.append, "timer", TIMER)
    kernel.at(10, ran.append, "first message", MESSAGE)
    kernel.at(10, ran.append, "second message", MESSAGE)
    kernel.run(15)
    assert ran == ["first message", "second message", "timer", "gauge"]
    assert kernel.now_ns == 15
    kernel.run(20)
    assert ran[-1] == "later"


def test_what_is_asked_for_in_the_past_happens_now() -> None:
    kernel, seen = Kernel(), list[int]()
    kernel.at(10, lambda _: kernel.at(5, lambda _: seen.append(kernel.now_ns)))
    kernel.run(100)
    assert seen == [10]


def test_cancelled_things_do_not_happen_however_many_there_are() -> None:
    kernel, ran, random = Kernel(), list[int](), Random(1)
    handles = {kernel.at(random.randrange(1_000), ran.append, n): n for n in range(1_000)}
    gone = [handle for handle, n in handles.items() if n % 10]
    for handle in gone:
        kernel.cancel(handle)
    kernel.run(1_000)
    assert sorted(ran) == list(range(0, 1_000, 10))
    assert kernel.events == 100


def test_stop_ends_a_run_after_the_present_event_and_the_next_run_goes_on() -> None:
    kernel, ran = Kernel(), list[str]()
    kernel.at(1, lambda _: kernel.stop())
    kernel.at(1, ran.append, "after")
    kernel.run(10)
    assert ran == []
    assert kernel.now_ns == 1
    kernel.run(10)
    assert ran == ["after"]
