"""The thread that does things to the gateway: in time, in order, and no further than it may."""

from __future__ import annotations

import socket
import time

from agentload.drivers.faults import Timeline, keep_place
from agentload.errors import UnreachableError
from agentload.faults import GatewayAct
from agentload.gateway_faults import Act
from process_facts import wait_until

MS = 1_000_000
ACTS = [
    GatewayAct(20 * MS, Act.PAUSE, "gateway-pause"),
    GatewayAct(40 * MS, Act.RESUME, "gateway-pause"),
    GatewayAct(60 * MS, Act.KILL, "gateway-kill"),
]


def test_acts_are_done_in_order_and_never_early() -> None:
    t0_ns, done = time.monotonic_ns(), list[tuple[Act, int]]()
    timeline = Timeline(ACTS, t0_ns, lambda act: done.append((act, time.monotonic_ns() - t0_ns)))
    timeline.start()
    wait_until(lambda: len(done) == 3)
    assert [act for act, _ in done] == [Act.PAUSE, Act.RESUME, Act.KILL]
    assert all(at_ns >= one.at_ns for (_, at_ns), one in zip(done, ACTS, strict=True))
    assert timeline.is_alive(), "what it started dies with it"
    timeline.release()
    assert not timeline.is_alive()


def test_a_stop_comes_before_the_next_act() -> None:
    done: list[Act] = []
    later = [one._replace(at_ns=one.at_ns + 60_000 * MS) for one in ACTS]
    timeline = Timeline(later, time.monotonic_ns(), done.append)
    timeline.start()
    timeline.stop()
    timeline.release()
    assert done == []
    assert timeline.problem is None


def test_a_gateway_that_does_not_come_up_is_a_problem_to_be_told() -> None:
    def fail(act: Act) -> None:
        raise UnreachableError(f"the gateway did not {act}")

    timeline = Timeline(ACTS, time.monotonic_ns(), fail)
    timeline.start()
    wait_until(lambda: timeline.problem is not None)
    timeline.release()
    assert str(timeline.problem) == "the gateway did not pause"


def test_a_kept_port_is_given_to_nobody_but_who_listens_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
    place = keep_place(port)
    assert place is not None
    with place, socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) != 0
        with socket.create_server(("127.0.0.1", port)) as second:
            assert second.getsockname()[1] == port
