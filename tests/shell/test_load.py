"""A worker's share of load, with a stand-in for the network: due times, retries, stops, caps, endings."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import gevent
import pytest

from agentload import behaviours
from agentload.client.logical import AttemptResult, AttemptStart
from agentload.drivers.call import Call
from agentload.drivers.clock import RunClock
from agentload.drivers.load import Load, Share
from agentload.drivers.tally import Tally
from agentload.drivers.ticker import SleepTicker, make_ticker
from agentload.model import Arrival, Job, Outcome, Phase, Plan, Profile, RequestRecord, Spec, Tenant
from agentload.plan import ClosedLoops
from agentload.scheduler.config import GatewayConfig
from fake_provider.config import ProviderConfig

MS = 1_000_000


class Server:
    """Answers after `delay_s`; the first `refusals` attempts of every request are refused."""

    def __init__(self, delay_s: float = 0.0, refusals: int = 0, retry_after_s: float = 0.0) -> None:
        self.clock = RunClock(0)
        self.delay_s = delay_s
        self.refusals = refusals
        self.retry_after_s = retry_after_s
        self.starts: list[AttemptStart] = []

    def call(self, arrival: Arrival, start: AttemptStart) -> Call:
        self.starts.append(start)
        sent_ns = self.clock.now_ns()
        try:
            gevent.sleep(self.delay_s)
        except gevent.GreenletExit:
            unfinished = AttemptResult(outcome=Outcome.UNFINISHED, sent_ns=sent_ns)
            return Call(unfinished, self.clock.now_ns())
        refused = start.number < self.refusals
        result = AttemptResult(
            outcome=Outcome.REJECTED if refused else Outcome.ANSWERED,
            status=429 if refused else 200,
            sent_ns=sent_ns,
            retry_after_s=self.retry_after_s if refused else None,
            retry_after_hint_s=self.retry_after_s if refused else None,
        )
        return Call(result, self.clock.now_ns())


def tenant(name: str, users: int | None = None, think_s: float = 0.0) -> Tenant:
    arrivals = None if users else Spec(kind="constant", params={"rate": 1})
    return Tenant(
        name=name,
        group=name,
        arrivals=arrivals,
        users=users,
        think_s=think_s,
        workload=Spec(kind="fixed", params={}),
        client=Spec(kind="obeys", params={}),
    )


def scene(*due_ms: int, users: int = 0, cap: int = 1000, drain_s: float = 1.0, server: Server) -> Scene:
    return Scene(list(due_ms), users, cap, drain_s, server)


class Scene:
    """One share: tenant `a` with arrivals at given times, tenant `c` with closed-loop users, 300 ms long."""

    def __init__(self, due_ms: list[int], users: int, cap: int, drain_s: float, server: Server) -> None:
        profile = Profile(
            name="scene",
            about="",
            phases=(Phase(name="steady", seconds=0.3),),
            tenants=(tenant("a"), *((tenant("c", users, think_s=0.02),) if users else ())),
            provider=ProviderConfig(),
            gateway=GatewayConfig(),
            checks=(Spec(kind="bounded-queue"),),
        )
        arrivals = tuple(arrival(seq, at * MS) for seq, at in enumerate(due_ms))
        plan = Plan(seed=1, arrivals=arrivals, closed_users=users, fingerprint="")
        loops = ClosedLoops(profile, plan)
        self.records: list[RequestRecord] = []
        self.tally = Tally()
        self.server = server
        self.share = Share(
            arrivals=arrivals,
            users=loops.users,
            loops=loops,
            behaviours={one.name: behaviours.make(one.client) for one in profile.tenants},
            seed=1,
            horizon_ns=profile.duration_ns + round(drain_s * 1e9),
            in_flight_cap=cap,
        )
        server.clock = clock = RunClock(time.monotonic_ns() + 20 * MS)
        self.load = Load(self.share, server, clock, self.tally, self._keep)

    def _keep(self, record: RequestRecord, call: Any) -> None:
        self.records.append(record)

    def allow(self, rate: float) -> None:
        """Attempts in any second."""
        self.share = replace(self.share, max_rate=rate)
        self.load = Load(self.share, self.server, self.server.clock, self.tally, self._keep)

    def run(self, meanwhile: Callable[[], None] | None = None) -> Scene:
        if meanwhile is not None:
            gevent.spawn(meanwhile)
        self.load.run()
        return self

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(record.outcome.value for record in self.records)

    @property
    def reasons(self) -> Counter[str | None]:
        return Counter(record.reason for record in self.records)


def arrival(seq: int, due_ns: int) -> Arrival:
    job = Job(input_tokens=24, output_tokens=2, declared_output_tokens=None)
    return Arrival(seq=seq, tenant="a", service_class="standard", phase="steady", due_ns=due_ns, job=job)


def test_nobody_waits_for_an_answer() -> None:
    done = scene(*range(0, 300, 10), server=Server(delay_s=0.4)).run()
    assert done.outcomes == {"answered": 30}
    assert [record.due_ns for record in sorted(done.records, key=lambda r: r.seq)] == [
        at * MS for at in range(0, 300, 10)
    ]
    assert all(record.sent_ns >= record.due_ns for record in done.records)
    assert done.load.peak_in_flight == 30
    assert (done.load.issued, done.load.scheduled, done.load.in_flight) == (30, 30, 0)


def test_a_burst_in_one_instant_is_sent_whole() -> None:
    done = scene(*[50] * 500, server=Server(delay_s=0.01)).run()
    assert done.outcomes == {"answered": 500}


def test_retries_come_when_the_behaviour_says() -> None:
    server = Server(refusals=2, retry_after_s=0.05)
    done = scene(0, 10, server=server).run()
    assert done.outcomes == {"rejected": 4, "answered": 2}
    by_seq = {seq: [r for r in done.records if r.seq == seq] for seq in (0, 1)}
    for attempts in by_seq.values():
        assert [r.attempt for r in attempts] == [0, 1, 2]
        assert [r.final for r in attempts] == [False, False, True]
        assert attempts[1].due_ns == attempts[0].ended_ns + 50 * MS
        assert attempts[1].sent_ns >= attempts[1].due_ns
    assert done.load.issued == 2
    assert done.tally.counts["a"].retries == 4


def test_a_retry_beyond_the_horizon_is_not_made() -> None:
    done = scene(0, drain_s=0.1, server=Server(refusals=9, retry_after_s=5)).run()
    assert [(r.outcome, r.final) for r in done.records] == [(Outcome.REJECTED, True)]


def test_what_is_open_at_the_horizon_is_unfinished() -> None:
    done = scene(0, 100, 299, drain_s=0.05, server=Server(delay_s=60)).run()
    assert done.outcomes == {"unfinished": 3}
    assert all(r.final and r.ended_ns >= 340 * MS for r in done.records)
    assert done.load.in_flight == 0


def test_the_cap_turns_load_into_unsent_records() -> None:
    done = scene(0, 10, 20, 30, cap=2, server=Server(delay_s=0.2)).run()
    assert done.outcomes == {"answered": 2, "unsent": 2}
    assert done.reasons == {None: 2, "in-flight-cap": 2}
    assert (done.load.capped, done.load.issued) == (2, 2)


def test_a_stop_names_what_was_not_sent_and_waits_for_what_is_open() -> None:
    made = scene(0, 5, 200, 250, server=Server(delay_s=0.1))

    def stop() -> None:
        gevent.sleep(0.08)
        made.load.stop(1.0)

    made.run(stop)
    assert made.outcomes == {"answered": 2, "unsent": 2}
    unsent = [r for r in made.records if r.outcome is Outcome.UNSENT]
    assert [(r.seq, r.reason, r.ended_ns) for r in unsent] == [
        (2, "stopped-early", 200 * MS),
        (3, "stopped-early", 250 * MS),
    ]


def test_a_stop_ends_the_waiting_for_retries() -> None:
    made = scene(0, server=Server(refusals=9, retry_after_s=0.9))

    def stop() -> None:
        gevent.sleep(0.08)
        made.load.stop(1.0)

    made.run(stop)
    assert [(r.attempt, r.outcome, r.final) for r in made.records] == [
        (0, Outcome.REJECTED, False),
        (1, Outcome.UNSENT, True),
    ]


def test_a_stop_before_the_start_sends_nothing() -> None:
    made = scene(0, 10, users=2, server=Server())
    made.load.stop(0.0)
    made.run()
    assert made.outcomes == {"unsent": 2}
    assert made.server.starts == []


def test_closed_loop_users_wait_for_their_answers() -> None:
    done = scene(users=3, server=Server(delay_s=0.02)).run()
    assert set(done.outcomes) == {"answered"}
    assert len({record.seq for record in done.records}) == len(done.records) == done.load.scheduled
    for user in range(3):
        mine = sorted((r for r in done.records if r.seq % 3 == user), key=lambda r: r.due_ns)
        assert len(mine) >= 1
        for before, after in pairwise(mine):
            assert after.due_ns == before.ended_ns + 20 * MS
    assert done.load.peak_in_flight <= 3


def test_a_fault_of_our_own_is_no_fault_of_the_target(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Server):
        def call(self, arrival: Arrival, start: AttemptStart) -> Call:
            raise RuntimeError("a mistake in the generator")

    done = scene(0, 10, server=Broken()).run()
    assert done.outcomes == {"unsent": 2}
    assert done.reasons == {"load-generator-error": 2}
    assert "a mistake in the generator" in caplog.text
    assert (done.load.in_flight, done.load.issued, done.load.scheduled) == (0, 0, 2)


@pytest.mark.parametrize("ticker", [make_ticker(), SleepTicker()], ids=lambda one: type(one).__name__)
def test_tickers_never_wake_early_and_let_others_run(ticker: Any) -> None:
    others = gevent.spawn(gevent.sleep, 0.001)
    due_ns = time.monotonic_ns() + 20 * MS
    ticker.sleep_until(due_ns)
    assert time.monotonic_ns() >= due_ns
    assert others.dead
    ticker.sleep_until(due_ns - 5 * MS)
    ticker.close()


def test_no_more_is_sent_in_a_second_than_the_rate_that_is_allowed() -> None:
    server = Server(refusals=50)  # 10 requests that are tried again at once
    scene_ = scene(*range(0, 100, 10), drain_s=0.2, server=server)
    scene_.allow(25)
    done = scene_.run()
    assert 25 <= len(server.starts) <= 25 + 25 * 0.6 + 1
    held_back = [one for one in done.records if one.reason == "rate-cap"]
    assert held_back
    assert {one.outcome for one in held_back} == {Outcome.UNSENT}
    assert done.load.capped == 0, "that is of requests in flight, and tells of the target"
