"""The ramp and the knee: what a target carries, from curves with and without noise, queues and limits."""

from __future__ import annotations

import heapq
from collections import deque
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from agentload import calibration, plan, profile
from agentload.calibration import ramp
from agentload.calibration.decision import HEADROOM, MOST, Decision, TooSmallError, decide
from agentload.calibration.demand import Demand, demand_of
from agentload.calibration.knee import Carried, EndedBy, Step, carried
from agentload.caps import Caps
from agentload.errors import UsageError
from agentload.model import NS, Outcome, Profile, RequestRecord
from agentload.order import Options, prepare
from agentload.profile.scale import scaled

MS = 1_000_000
RATES = ramp.rates(1480.0)
SERVICE_S = 0.25


def step(rate: float, **changed: Any) -> Step:
    """A step that was carried, but for what is said otherwise."""
    whole = Step(rate=rate, seconds=1.0, sent=round(rate), answered=rate, p50_ms=250.0, late_ms=0.5)
    return msgspec.structs.replace(whole, **changed)


def curve(capacity: float, rates: tuple[float, ...] = RATES) -> list[Step]:
    """A target whose answers never come faster than `capacity`, and later and later beyond it."""
    over = [rate for rate in rates if rate > capacity]
    last = rates.index(over[1]) + 1 if len(over) > 1 else len(rates)
    return [
        step(rate, answered=min(rate, capacity), p50_ms=250 if rate <= capacity else 900)
        for rate in rates[:last]
    ]


# --------------------------------------------------------------------------- the knee


@pytest.mark.parametrize("capacity", [6.0, 26.0, 100.0, 333.0, 1000.0])
def test_a_clean_curve_tells_the_capacity(capacity: float) -> None:
    found = carried(curve(capacity))
    assert found.per_s == pytest.approx(capacity)
    assert found.ended_by is EndedBy.TARGET
    assert found.limit_per_s is None


def test_a_target_that_carries_every_step_carries_at_least_the_last() -> None:
    found = carried([step(rate) for rate in RATES])
    assert (found.per_s, found.ended_by) == (RATES[-1], EndedBy.TOP)


@pytest.mark.parametrize("seed", range(50))
def test_noise_moves_the_result_by_little(seed: int) -> None:
    random, capacity = Random(seed), 90.0
    noisy = [
        step(
            one.rate,
            answered=one.answered * random.uniform(0.93, 1.0),
            p50_ms=(one.p50_ms or 0) * random.uniform(0.8, 1.3),
            late_ms=random.uniform(0, 30),
        )
        for one in curve(capacity)
    ]
    assert carried(noisy).per_s == pytest.approx(capacity, rel=0.12)


def test_one_stall_of_the_machine_is_not_the_end() -> None:
    steps = curve(500.0)
    for spoilt in ({"late_ms": 400.0}, {"answered": 1.0}, {"p50_ms": 2_000.0}):
        steps[2] = step(steps[2].rate, **spoilt)
        assert carried(steps).per_s == pytest.approx(500.0)


def test_what_still_grows_beyond_the_knee_counts() -> None:
    """Latency that rises holds a step's answers back for a moment; a busy machine did this."""
    steps = [step(rate) for rate in (11, 22, 44)]
    steps += [step(87, answered=72.0, p50_ms=384.0), step(175, answered=130.0, p50_ms=427.0)]
    assert carried(steps).per_s == pytest.approx(101)


def test_a_late_generator_is_not_taken_for_a_slow_target() -> None:
    steps = [step(rate) for rate in RATES[:5]]
    steps += [step(rate, late_ms=300.0, answered=rate / 2, p50_ms=900.0) for rate in RATES[5:]]
    found = carried(steps)
    assert (found.per_s, found.ended_by) == (RATES[4], EndedBy.GENERATOR)


def test_errors_end_what_is_carried() -> None:
    steps = [step(rate) for rate in RATES[:3]]
    steps += [step(rate, failed=round(rate / 2)) for rate in RATES[3:5]]
    found = carried(steps)
    assert (found.per_s, found.ended_by) == (RATES[2], EndedBy.ERRORS)


def test_refusals_are_a_limit_and_not_the_end() -> None:
    def limited(rate: float) -> Step:
        return step(rate, answered=min(rate, 52.0), refused=max(0.0, rate - 52))

    found = carried([limited(rate) for rate in RATES])
    assert (found.per_s, found.ended_by) == (RATES[-1], EndedBy.TOP)
    assert found.limit_per_s == pytest.approx(52)


def test_the_burst_of_a_limit_is_not_the_limit() -> None:
    rates = RATES[2:6]
    answered = [46.0, 92.0, 130.0, 53.0]  # burst and rate; then the rate alone
    steps = [step(rate, answered=got, refused=rate - got) for rate, got in zip(rates, answered, strict=True)]
    assert carried(steps).limit_per_s == 53.0


def test_the_first_step_may_be_too_much_already() -> None:
    assert carried([step(12, answered=5.0, p50_ms=600.0)]).per_s == 5.0
    with pytest.raises(ValueError, match="at least one step"):
        carried([])


# --------------------------------------------------------------------------- queues, played


class Target:
    """c servers with a service time each (lognormal-ish), then the provider; first come, first served."""

    def __init__(self, servers: int, work_s: float, limit: float | None = None, burst: float = 20.0) -> None:
        self.servers, self.work_s, self.limit, self.burst = servers, work_s, limit, burst

    def answers(self, due_s: list[float], random: Random) -> list[tuple[float, Outcome]]:
        free = [0.0] * self.servers
        tokens, at = self.burst, 0.0
        found: list[tuple[float, Outcome]] = []
        for due in due_s:
            if self.limit is not None:
                tokens, at = min(self.burst, tokens + (due - at) * self.limit), due
                if tokens < 1:
                    found.append((due + 0.002, Outcome.REJECTED))
                    continue
                tokens -= 1
            begins = max(due, heapq.heappop(free))
            done = begins + self.work_s * random.uniform(0.6, 1.4)
            heapq.heappush(free, done)
            found.append((done + SERVICE_S * random.uniform(0.8, 1.2), Outcome.ANSWERED))
        return found


def played(target: Target, rates: tuple[float, ...] = RATES, seed: int = 1) -> Carried:
    """The whole loop: plan, queue, progress every half second, early end, records, steps, verdict."""
    random = Random(seed)
    chosen = ramp.profile_of(profile.load(profile.find("noisy-neighbor")), rates)
    due_s = [arrival.due_ns / NS for arrival in plan.draw(chosen, seed).arrivals]
    answers = target.answers(due_s, random)
    until_s = _ended(due_s, [at for at, _ in answers], rates)
    records = [
        _record(seq, due, *answer)
        for seq, (due, answer) in enumerate(zip(due_s, answers, strict=True))
        if until_s is None or due < until_s
    ]
    return carried(ramp.steps_of(records, rates, None if until_s is None else round(until_s * NS)))


def _ended(due_s: list[float], ended_s: list[float], rates: tuple[float, ...]) -> float | None:
    doubts: deque[bool] = deque([False], maxlen=2)
    for half in range(1, 2 * len(rates) + 1):
        at = half / 2
        issued = sum(due <= at for due in due_s)
        in_flight = issued - sum(ended <= at for ended in ended_s)
        seen = {"elapsed_s": at, "issued": issued, "in_flight": in_flight}
        doubts.append(ramp.hopeless(seen, rates, SERVICE_S))
        if all(doubts):
            return at
    return None


def _record(seq: int, due: float, ended: float, outcome: Outcome) -> RequestRecord:
    return RequestRecord(
        seq=seq,
        attempt=0,
        tenant="t",
        service_class="standard",
        phase="ramp",
        due_ns=round(due * NS),
        sent_ns=round(due * NS) + MS,
        ended_ns=round(ended * NS),
        outcome=outcome,
        final=True,
        first_due_ns=round(due * NS),
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("servers", "work_s"), [(1, 0.2), (1, 0.038), (1, 0.01), (4, 0.04), (8, 0.02), (1, 0.002)]
)
def test_the_capacity_of_a_queue_is_found(servers: int, work_s: float, seed: int) -> None:
    found = played(Target(servers, work_s), seed=seed)
    assert found.per_s == pytest.approx(servers / work_s, rel=0.2)
    assert found.ended_by is EndedBy.TARGET


def test_the_ramp_ends_before_a_slow_target_holds_more_than_a_few_seconds_of_work() -> None:
    found = played(Target(1, 0.038))
    sent = sum(one.sent for one in found.steps)
    seconds = sum(one.seconds for one in found.steps)
    assert seconds < 5.5
    assert sent - 26 * seconds < 4 * 26


def test_a_fast_target_is_ramped_to_the_top() -> None:
    found = played(Target(64, 0.001))
    assert (found.per_s, found.ended_by, found.limit_per_s) == (RATES[-1], EndedBy.TOP, None)


@pytest.mark.parametrize("seed", range(5))
def test_a_limiter_is_told_from_a_queue(seed: int) -> None:
    found = played(Target(64, 0.001, limit=52.0, burst=80.0), seed=seed)
    assert found.per_s == RATES[-1]
    assert found.limit_per_s == pytest.approx(52, rel=0.15)


# --------------------------------------------------------------------------- the ramp itself


def test_steps_double_and_are_eight_at_most() -> None:
    assert RATES == (11.5625, 23.125, 46.25, 92.5, 185.0, 370.0, 740.0, 1480.0)
    assert ramp.rates(100.0) == (6.25, 12.5, 25.0, 50.0, 100.0)
    assert ramp.rates(1e9)[-1] == ramp.MOST_PER_S
    assert len(ramp.rates(0.1)) == 2


def test_the_ramp_asks_in_the_names_of_the_tenants_and_nothing_of_ours_is_in_its_way() -> None:
    whole = profile.load(profile.find("isolation"))
    made = ramp.profile_of(whole, RATES)
    assert [(one.name, one.service_class) for one in made.tenants] == [
        (one.name, one.service_class) for one in whole.tenants
    ]
    assert made.provider.policy == "none"
    assert made.provider.slots is None
    assert {"standard", "premium", "contract"} == set(made.gateway.pools["calibration"].classes)
    assert min(pool.slots for pool in made.gateway.pools.values()) >= 10_000
    counts = [arrival.due_ns // NS for arrival in plan.draw(made, 1).arrivals]
    for place, rate in enumerate(RATES):
        assert counts.count(place) == pytest.approx(rate, abs=len(made.tenants))


def test_a_generator_far_behind_ends_the_ramp() -> None:
    assert ramp.hopeless({"elapsed_s": 4.0, "issued": 50, "in_flight": 0}, RATES, SERVICE_S)
    assert not ramp.hopeless({"elapsed_s": 4.0, "issued": 170, "in_flight": 40}, RATES, SERVICE_S)
    assert not ramp.hopeless({"elapsed_s": -0.4, "issued": 0, "in_flight": 0}, RATES, SERVICE_S)


# --------------------------------------------------------------------------- what is made of it


def demanded(name: str) -> tuple[Profile, Demand]:
    whole = profile.load(profile.find(name))
    return whole, demand_of(whole, plan.draw(whole, 1))


def decided(
    name: str, per_s: float, limit: float | None = None, ended_by: EndedBy = EndedBy.TARGET
) -> Decision:
    return decide(*demanded(name), Carried(per_s=per_s, ended_by=ended_by, limit_per_s=limit))


def test_what_profiles_ask_for() -> None:
    noisy, fair, storm = (demanded(name)[1] for name in ("noisy-neighbor", "weighted-fair", "retry-storm"))
    assert noisy.peak_per_s == pytest.approx(287, rel=0.06)
    assert noisy.capacity_per_s == pytest.approx(53.3, rel=0.01)
    assert fair.peak_per_s == pytest.approx(64, rel=0.1), "closed loops send what the provider can do"
    assert storm.capacity_per_s == pytest.approx(64, rel=0.06)


def test_the_busiest_moment_fits_into_what_is_carried_with_headroom() -> None:
    for per_s in (60.0, 150.0, 1000.0):
        found = decided("noisy-neighbor", per_s)
        assert found.factor * found.demand.peak_per_s <= HEADROOM * per_s * 1.02
        assert found.factor * found.demand.peak_per_s > HEADROOM * per_s * 0.8


def test_a_profile_that_fits_as_it_is_stays_as_it_is() -> None:
    peak = demanded("steady")[1].peak_per_s
    assert decided("steady", peak / HEADROOM).factor == 1.0
    assert decided("steady", 0.92 * peak / HEADROOM).factor == 1.0


def test_a_5000_per_second_target_is_not_asked_for_more_than_four_times_as_much() -> None:
    found = decided("noisy-neighbor", 5000.0, ended_by=EndedBy.TOP)
    assert found.factor == MOST
    assert "nothing is scaled by more than 4 unasked" in found.because
    assert "carries at least 5,000" in found.because
    assert decided("long-jobs", 5000.0).factor == 1.0


def test_a_26_per_second_target_gets_a_profile_it_can_carry() -> None:
    found = decided("noisy-neighbor", 26.0)
    assert found.factor == pytest.approx(HEADROOM * 26 / found.demand.peak_per_s, abs=0.001)
    assert scaled(demanded("noisy-neighbor")[0], found.factor).provider.slots == 6


def test_a_slower_one_gets_the_least_there_is_without_headroom() -> None:
    found = decided("noisy-neighbor", 20.0)
    assert found.factor == 1 / 16
    assert "0.0625 is the least" in found.because
    assert found.factor * found.demand.peak_per_s < 20


def test_where_slots_decide_they_stay_whole() -> None:
    found = decided("weighted-fair", 26.0)
    assert found.factor * 16 == pytest.approx(round(found.factor * 16))


def test_what_is_too_slow_for_a_profile_is_said_with_what_it_takes() -> None:
    with pytest.raises(TooSmallError) as raised:
        decided("noisy-neighbor", 10.0)
    text = str(raised.value)
    assert "noisy-neighbor would have to be scaled by 0.027" in text
    assert "three calls a second" in text
    assert "it takes a target that carries 18/s" in text
    assert raised.value.exit_code == 3


def test_a_limit_of_the_targets_own_gets_a_provider_of_its_size() -> None:
    found = decided("noisy-neighbor", 1480.0, limit=26.6)
    assert found.factor == pytest.approx(0.5, abs=0.02)
    assert "its limits are for a provider of that capacity" in found.because
    assert decided("noisy-neighbor", 100.0, limit=52.0).factor < 0.3, "it must carry the flood all the same"


def test_a_generator_that_could_do_no_more_is_said() -> None:
    assert (
        "this machine can send in time no more than 400"
        in decided("noisy-neighbor", 400.0, ended_by=EndedBy.GENERATOR).because
    )


def test_who_has_limits_of_its_own_is_told_what_they_must_fit() -> None:
    by_load = decided("noisy-neighbor", 60.0)
    assert f"takes {53.3 * by_load.factor:.2g}" in by_load.advice.replace(".64", ".6")
    assert "if the target has limits of its own, make them 0.16" in by_load.advice
    assert "the target lets 40/s through" in decided("noisy-neighbor", 60.0, limit=40.0).advice
    assert decided("noisy-neighbor", 1480.0, limit=26.6).advice == "", "the provider is of its size"
    assert decided("steady", 1000.0, ended_by=EndedBy.TOP).factor > 1
    assert decided("noisy-neighbor", 370.0).factor == 1
    assert decided("noisy-neighbor", 370.0).advice == ""


def test_a_busy_machine_is_said() -> None:
    found = decide(*demanded("noisy-neighbor"), Carried(per_s=60, ended_by=EndedBy.TARGET, waited=0.3))
    assert "on this busy machine (the load waited 30% of the time for a processor)" in found.because


def test_facts_are_plain() -> None:
    found = decided("noisy-neighbor", 26.0).facts()
    assert msgspec.json.decode(msgspec.json.encode(found)) == found
    assert found["carried"]["ended_by"] == "target"


@pytest.mark.parametrize(
    "given",
    [
        ("run", "steady", "--scale", "auto"),
        ("run", "--scale=auto", "steady"),
        ("run", "auto", "--scale", "auto"),
    ],
)
def test_the_command_line_of_the_report_has_the_factor(given: tuple[str, ...]) -> None:
    options = Options(profile="steady", scale="auto", command=given)
    decision = decided("steady", 30.0)
    quiet = calibration.Console(quiet=True)
    settled, prepared = calibration.apply(options, decision, quiet)
    words = " ".join(settled.command)
    assert settled.scale == f"{decision.factor:.6g}"
    assert words.replace("=", " ").count(f"--scale {settled.scale}") == 1
    assert words.count("auto") == (1 if given[1] == "auto" else 0)
    again = prepare(Options(profile="steady", scale=settled.scale))
    assert again.plan.fingerprint == prepared.plan.fingerprint
    assert prepared.scale is not None
    assert prepared.scale["asked"] == "auto"


# --------------------------------------------------------------------------- what is refused beforehand


def test_nothing_is_calibrated_with_somebody_elses_workers_or_provider(tmp_path: Path) -> None:
    quiet = calibration.Console(quiet=True)
    options = Options(profile="steady", scale="auto", expect_workers=2)
    with pytest.raises(UsageError, match="with --expect-workers say a factor"):
        calibration.settle(options, prepare(options), quiet)
    (tmp_path / "gateway.yaml").write_text("base_url: http://127.0.0.1:8080\nprovider: external\n")
    theirs = Options(profile="steady", scale="auto", target=str(tmp_path / "gateway.yaml"), allow_cost=True)
    with pytest.raises(UsageError, match="with somebody else's say a factor"):
        calibration.measure(theirs, prepare(theirs), [calibration.asked(prepare(theirs))], quiet)


def test_a_ramp_keeps_the_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    ramped: list[float] = []

    def seen(_o: Any, _p: Any, steps: tuple[float, ...], *_: Any) -> Carried:
        ramped.extend(steps)
        return Carried(per_s=1.0, ended_by=EndedBy.TOP)

    monkeypatch.setattr(calibration, "_ramped", seen)
    options = Options(profile="noisy-neighbor", scale="auto", caps=Caps(rate=200))
    prepared = prepare(options)
    calibration.measure(options, prepared, [calibration.asked(prepared)], calibration.Console(quiet=True))
    assert max(ramped) == 200
