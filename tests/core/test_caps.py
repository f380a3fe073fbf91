"""What a target may be asked to bear: refused beforehand where it is known, held back where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.caps import ELSEWHERE, HERE, MAX_ANSWER_BYTES, Allowance, Bucket, Caps, busiest_second
from agentload.cli.options import MaxAnswerOption, MaxConnectionsOption, MaxRateOption, MaxSecondsOption
from agentload.errors import UsageError
from agentload.model import NS, Arrival, Job
from agentload.order import Options, prepare
from own_users import written

LATE = st.lists(st.integers(0, 5 * NS), max_size=60)


def arrivals(due_ns: list[int]) -> list[Arrival]:
    job = Job(input_tokens=1, output_tokens=1, declared_output_tokens=1)
    return [
        Arrival(seq=seq, tenant="a", service_class="standard", phase="p", due_ns=at, job=job)
        for seq, at in enumerate(sorted(due_ns))
    ]


@given(LATE)
def test_the_busiest_second_is_that_with_most_in_it(due_ns: list[int]) -> None:
    most = max((sum(start <= at < start + NS for at in due_ns) for start in due_ns), default=0)
    found, at_ns = busiest_second(arrivals(due_ns))
    assert found == most
    assert sum(at_ns <= at < at_ns + NS for at in due_ns) == most


@given(LATE, st.integers(1, 20))
def test_no_second_and_a_bit_lets_more_through_than_two_seconds_worth(due_ns: list[int], rate: int) -> None:
    bucket = Bucket(rate)
    passed = [at for at in sorted(due_ns) if bucket.take(at)]
    for start in passed:
        assert sum(start <= at < start + NS for at in passed) <= 2 * rate


@given(LATE)
def test_what_was_planned_within_the_cap_is_never_held_back(due_ns: list[int]) -> None:
    bucket = Bucket(max(1, busiest_second(arrivals(due_ns))[0]))
    assert all(bucket.take(at) for at in sorted(due_ns))


def refused(tmp_path: Path, host: str = "127.0.0.1", **caps: float) -> tuple[str, ...]:
    target = f"http://{host}:9"
    options = Options(profile="noisy-neighbor", target=target, allow_hosts=(host,), caps=Caps(**caps))  # type: ignore[arg-type]
    with pytest.raises(UsageError) as raised:
        prepare(options)
    return raised.value.lines


def test_a_profile_that_wants_more_is_refused_with_the_mend(tmp_path: Path) -> None:
    [line] = refused(tmp_path, rate=100)
    assert line.startswith("noisy-neighbor: sends ")
    needed = int(line.rpartition("--max-rate ")[2].split()[0])
    assert "and the cap is 100: --max-rate" in line
    assert prepare(Options(profile="noisy-neighbor", target="http://127.0.0.1:9", caps=Caps(rate=needed)))
    assert "--max-seconds" in refused(tmp_path, seconds=10)[0]


def test_users_count_as_connections(tmp_path: Path) -> None:
    options = Options(profile="runaway-agent", target="http://127.0.0.1:9", caps=Caps(connections=5))
    with pytest.raises(UsageError, match="12 users are at work at once, and the cap is 5 connections"):
        prepare(options)


def test_users_of_own_code_count_as_connections_too(tmp_path: Path) -> None:
    options = Options(profile=str(written(tmp_path)), target="http://127.0.0.1:9", caps=Caps(connections=4))
    with pytest.raises(UsageError, match="5 users are at work at once, and the cap is 4 connections"):
        prepare(options)


def test_caps_are_low_where_others_may_suffer_and_a_user_may_say_otherwise() -> None:
    here = prepare(Options(profile="steady", target="http://127.0.0.1:9"))
    assert (here.caps, here.caps.rate) == (HERE, None)
    there = Options(profile="steady", target="http://gw.example:9", allow_hosts=("gw.example",))
    assert prepare(there).caps == ELSEWHERE
    said = Options(
        profile="steady", target="http://gw.example:9", allow_hosts=("gw.example",), caps=Caps(rate=7000)
    )
    assert prepare(said).caps == ELSEWHERE.but_for(Caps(rate=7000))


def test_the_help_says_what_holds_where_nothing_is_said() -> None:
    def help_of(option: Any) -> str:
        return str(option.__metadata__[0].help)

    said = [help_of(one) for one in (MaxRateOption, MaxConnectionsOption, MaxSecondsOption)]
    numbers = (ELSEWHERE.rate, ELSEWHERE.connections, ELSEWHERE.seconds)
    for words, number in zip(said, numbers, strict=True):
        assert f"else {number:,.0f}" in words
        assert words.endswith("beyond this machine, no cap on it.")
    assert f"({MAX_ANSWER_BYTES}), and never more" in help_of(MaxAnswerOption)
    assert MaxAnswerOption.__metadata__[0].max == MAX_ANSWER_BYTES


def test_a_look_at_the_target_needs_no_leave() -> None:
    options = Options(profile="noisy-neighbor", target="http://127.0.0.1:9", caps=Caps(rate=1), drives=False)
    assert prepare(options).caps.rate == 1


@given(LATE, st.lists(st.integers(0, 6 * NS), max_size=60), st.integers(1, 20), st.integers(0, 5))
def test_what_is_not_planned_gets_what_the_plan_leaves_of_any_second(
    planned_ns: list[int], others_ns: list[int], spare: int, of: int
) -> None:
    planned_ns = sorted(planned_ns)
    rate = busiest_second(arrivals(planned_ns))[0] + spare + of / 6
    allowance, passed = Allowance(rate, planned_ns), []
    for at, planned in sorted([(at, True) for at in planned_ns] + [(at, False) for at in others_ns]):
        if (allowance.plan if planned else allowance.take)(at):
            passed.append(at)
        else:
            assert not planned
            assert 0 < allowance.wait_ns(at) <= 1.02 * NS
    assert max((sum(start <= at < start + NS for at in passed) for start in passed), default=0) <= rate


@pytest.mark.parametrize("rate", [0.5, 1, 2.5, 40])
def test_whoever_waits_as_long_as_told_gets_all_that_is_allowed(rate: float) -> None:
    allowance, now_ns, passed = Allowance(rate), 0, 0
    while now_ns < 10 * NS:
        passed += allowance.take(now_ns)
        now_ns += max(1, allowance.wait_ns(now_ns))
    assert passed == {0.5: 5, 1: 10, 2.5: 20, 40: 400}[rate]


def test_what_was_let_go_counts_from_when_it_was_sent() -> None:
    allowance = Allowance(1)
    assert allowance.take(0)
    allowance.move(0, NS // 2)
    assert not allowance.take(NS + NS // 4)
    assert allowance.take(2 * NS)
