"""Attempts whose answer is asked for, as greenlets: what is sent, waited for, left and stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import gevent

from agentload.client.logical import AttemptStart
from agentload.client.wire import ReplyReader, RequestWriter, marker_of
from agentload.drivers.call import Call
from agentload.drivers.clock import RunClock
from agentload.drivers.http1 import Exchange
from agentload.drivers.http1_answer import Failure
from agentload.drivers.polled_caller import PolledCaller
from agentload.model import Arrival, Job, Outcome
from agentload.targets import Target

TARGET = Target(name="t", host="gw", port=80, path="/v1/jobs", flavour="jobs", options={"poll_s": 0.02})
ARRIVAL = Arrival(
    seq=7,
    tenant="a",
    service_class="standard",
    phase="load",
    due_ns=0,
    job=Job(input_tokens=24, output_tokens=10, declared_output_tokens=48, stream=True),
)
ACCEPTED, OPEN = {"id": "j", "state": "queued"}, {"id": "j", "state": "running"}
DONE = {"id": "j", "state": "completed", "result": {"choices": [{"message": {"content": "hello"}}]}}


class Gateway:
    """Answers one exchange after another, the last one for ever; keeps what was asked."""

    worker = 3

    def __init__(self, *answers: tuple[int, object]) -> None:
        self.answers = list(answers)
        self.clock = RunClock(time.monotonic_ns())
        self.asked: list[str] = []
        self.hangs_at = 99

    def reader(self, arrival: Arrival) -> ReplyReader:
        return ReplyReader(False, arrival.seq, None, TARGET.api)

    def send(self, tenant: str, request: bytes, timeout_at_ns: int, reader: ReplyReader) -> Exchange:
        self.asked.append(request.partition(b" HTTP")[0].decode())
        now_ns = self.clock.now_ns()
        if len(self.asked) > self.hangs_at and request.startswith(b"GET"):
            gevent.sleep((timeout_at_ns - now_ns) / 1e9)
            return Exchange(now_ns, now_ns, self.clock.now_ns(), failure=Failure.TIMEOUT)
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        data = json.dumps(body).encode()
        reader.head(status, [(b"content-type", b"application/json")], 0.0)
        reader.feed(data, now_ns)
        return Exchange(now_ns, now_ns, now_ns, status=status, body_bytes=len(data))


def begin(gateway: Gateway, patience_s: float, leave_s: float | None = None) -> Callable[[], Call]:
    """An attempt in a greenlet of its own."""
    now_ns = gateway.clock.now_ns()
    start = AttemptStart(
        number=0,
        due_ns=now_ns,
        timeout_at_ns=now_ns + round(patience_s * 1e9),
        leave_at_ns=None if leave_s is None else now_ns + round(leave_s * 1e9),
    )
    caller = PolledCaller(TARGET, RequestWriter(TARGET), gateway)
    return lambda: caller.call(ARRIVAL, marker_of(1, 0, ARRIVAL, 0), start)


def test_it_posts_once_and_asks_until_it_is_done() -> None:
    gateway = Gateway((202, ACCEPTED), (200, OPEN), (503, {}), (200, DONE))
    call = begin(gateway, 20)()
    assert gateway.asked == ["POST /v1/jobs"] + ["GET /v1/jobs/j"] * 3
    assert (call.result.outcome, call.result.worker) == (Outcome.ANSWERED, 3)
    assert call.body_bytes == sum(len(json.dumps(body)) for body in (ACCEPTED, OPEN, {}, DONE))
    assert call.ended_ns - call.result.sent_ns > 60_000_000, "three waits"


def test_a_client_leaves_when_its_patience_ends_also_during_a_question() -> None:
    waiting, hanging = Gateway((202, ACCEPTED), (200, OPEN)), Gateway((202, ACCEPTED))
    hanging.hangs_at = 1
    for gateway in (waiting, hanging):
        began_ns = gateway.clock.now_ns()
        call = begin(gateway, 20, leave_s=0.15)()
        assert (call.result.outcome, call.result.reason) == (Outcome.ABANDONED, "left")
        assert 140_000_000 < call.ended_ns - began_ns < 5_000_000_000
        assert gateway.asked[-1] == "DELETE /v1/jobs/j"
        assert call.result.called_off == (200 if gateway is waiting else 202)
    assert len(hanging.asked) == 3
    assert begin(Gateway((202, OPEN)), 0.1)().result.reason == "timeout"


def test_the_end_of_the_run_finds_it_waiting_or_asking_and_leaves_it_unfinished() -> None:
    waiting, asking = Gateway((202, ACCEPTED), (200, OPEN)), Gateway((202, ACCEPTED))
    asking.hangs_at = 1
    for gateway in (waiting, asking):
        running = gevent.spawn(begin(gateway, 20))
        while len(gateway.asked) < 2:
            gevent.sleep(0.005)
        running.kill(block=False)
        running.join(10)
        assert running.value.result.outcome is Outcome.UNFINISHED
