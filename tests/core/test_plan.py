"""Plans: everything drawn from the seed, nothing from anything else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload import plan, profile
from agentload.model import NS, Arrival, Job, Plan, Profile

TEXT = """\
name: tiny
about: Two tenants, replayed.
phases:
  - {name: warm-up, seconds: 1, record: false}
  - {name: baseline, seconds: 4}
  - {name: noise, seconds: 4, replays: baseline}
  - {name: after, seconds: 2}
tenants:
  - {name: quiet, count: 2, arrivals: {kind: uniform, rate: 10}, workload: {kind: chat, stream: 0.5}}
  - {name: flood, during: [noise], arrivals: {kind: poisson, rate: 30}, workload: {kind: pareto}}
checks: [bounded-queue]
"""
LOOPS = """\
  - {name: agents, users: 3, think_s: 0.2, during: [warm-up, baseline, after], workload: {kind: chat}}
  - {name: batch, users: 2, workload: {kind: fixed}}
"""


def parsed(text: str = TEXT) -> Profile:
    return profile.parse(text, "p.yaml")


def with_loops() -> Profile:
    return parsed(TEXT.replace("checks:", LOOPS + "checks:"))


def demand(drawn: Plan) -> dict[str, list[tuple[str, int, Job]]]:
    found: dict[str, list[tuple[str, int, Job]]] = defaultdict(list)
    for arrival in drawn.arrivals:
        found[arrival.tenant].append((arrival.phase, arrival.due_ns, arrival.job))
    return found


def test_seq_is_the_order_of_due_times() -> None:
    arrivals = plan.draw(parsed(), 1).arrivals
    assert [a.seq for a in arrivals] == list(range(len(arrivals)))
    assert [a.due_ns for a in arrivals] == sorted(a.due_ns for a in arrivals)


def test_every_arrival_lies_in_its_phase_and_its_tenants_phases() -> None:
    chosen = parsed()
    for arrival in plan.draw(chosen, 1).arrivals:
        start, end = chosen.phase_window_ns(arrival.phase)
        assert start <= arrival.due_ns < end
        assert arrival.tenant != "flood" or arrival.phase == "noise"


def test_ties_go_by_tenant_order() -> None:
    text = TEXT.replace("{kind: uniform, rate: 10}", "{kind: bursts, size: 1, every_s: 1}")
    arrivals = plan.draw(parsed(text), 1).arrivals
    assert [a.tenant for a in arrivals if a.tenant != "flood"] == ["quiet-1", "quiet-2"] * 11


def test_a_replay_repeats_times_and_jobs_shifted() -> None:
    found = demand(plan.draw(parsed(), 1))
    for tenant in ("quiet-1", "quiet-2"):
        by_phase = {
            p: [(due, job) for phase, due, job in found[tenant] if phase == p] for p in ("baseline", "noise")
        }
        assert len(by_phase["noise"]) == 40
        assert [(due - 4 * NS, job) for due, job in by_phase["noise"]] == by_phase["baseline"]
    assert found["quiet-1"] != found["quiet-2"]


def test_a_replay_of_silence_is_silent() -> None:
    text = TEXT.replace("rate: 10", "rate: 0.01").replace("kind: poisson, rate: 30", "kind: uniform, rate: 1")
    assert {a.tenant for a in plan.draw(parsed(text), 1).arrivals} == {"flood"}


def test_the_same_seed_gives_the_same_plan_and_another_another() -> None:
    first = plan.draw(parsed(), 1)
    assert plan.draw(parsed(), 1) == first
    other = plan.draw(parsed(), 2)
    assert other.fingerprint != first.fingerprint
    assert len(other.arrivals) != len(first.arrivals)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**40), rate=st.floats(0.5, 40), position=st.integers(0, 2), loops=st.booleans())
def test_adding_a_tenant_leaves_the_others_as_they_were(
    seed: int, rate: float, position: int, loops: bool
) -> None:
    load = "users: 4" if loops else f"arrivals: {{kind: poisson, rate: {rate:.3f}}}"
    rows = TEXT.splitlines(keepends=True)
    rows.insert(8 + position, f"  - {{name: newcomer, {load}, workload: {{kind: chat}}}}\n")
    before = demand(plan.draw(parsed(), seed))
    after = demand(plan.draw(parsed("".join(rows)), seed))
    after.pop("newcomer", None)
    assert after == before


def test_lengthening_the_warm_up_only_shifts() -> None:
    before = demand(plan.draw(parsed(), 1))
    after = demand(plan.draw(parsed(TEXT.replace("seconds: 1,", "seconds: 3,")), 1))
    for tenant, drawn in before.items():
        kept = [(phase, due - 2 * NS, job) for phase, due, job in after[tenant] if phase != "warm-up"]
        assert kept == [one for one in drawn if one[0] != "warm-up"]


def test_fingerprints_cover_jobs_closed_loops_and_seed_but_not_checks() -> None:
    base = plan.draw(with_loops(), 1).fingerprint

    def print_of(old: str, new: str, seed: int = 1) -> str:
        text = TEXT.replace("checks:", LOOPS + "checks:")
        assert old in text
        return plan.draw(parsed(text.replace(old, new)), seed).fingerprint

    assert print_of("stream: 0.5", "stream: 0.6") != base
    assert print_of("users: 3", "users: 4") != base
    assert print_of("think_s: 0.2", "think_s: 0.3") != base
    assert print_of("{kind: fixed}", "{kind: fixed, output_tokens: 17}") != base
    assert print_of("after]", "after, noise]") != base
    assert print_of("name: tiny", "name: tiny", 2) != base
    assert print_of("users: 3", "users: 3, model: large") != base
    assert print_of("checks: [bounded-queue]", "checks: [status-codes]") == base
    assert print_of("users: 2,", "users: 2, client: hammer,") == base


def test_the_plan_is_the_same_in_every_process() -> None:
    code = (
        "import sys; from agentload import plan, profile\n"
        "p = profile.from_json(sys.stdin.read()); print(plan.draw(p, p.seed).fingerprint)"
    )
    chosen = with_loops()
    expected = plan.draw(chosen, chosen.seed).fingerprint
    for hash_seed in ("0", "1", "4711"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=profile.to_json(chosen),
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_shards_are_the_plan_without_overlap(n: int) -> None:
    drawn = plan.draw(parsed(), 1)
    shards = [plan.shard(drawn, index, n) for index in range(n)]
    together = sorted((a for shard in shards for a in shard), key=lambda a: a.seq)
    assert together == list(drawn.arrivals)
    assert all(a.seq % n == index for index, shard in enumerate(shards) for a in shard)


class TestClosedLoops:
    def loops(self) -> tuple[Plan, plan.ClosedLoops]:
        chosen = with_loops()
        drawn = plan.draw(chosen, 1)
        return drawn, plan.ClosedLoops(chosen, drawn)

    def test_users_are_numbered_over_all_tenants(self) -> None:
        drawn, loops = self.loops()
        assert drawn.closed_users == 5
        assert [(u.index, u.number, u.tenant.name) for u in loops.users] == [
            (0, 0, "agents"),
            (1, 1, "agents"),
            (2, 2, "agents"),
            (3, 0, "batch"),
            (4, 1, "batch"),
        ]

    def test_sequence_numbers_never_meet(self) -> None:
        drawn, loops = self.loops()
        seqs = [loops.arrival(user, k, 0).seq for k in range(4) for user in loops.users]
        assert seqs == list(range(len(drawn.arrivals), len(drawn.arrivals) + 20))

    def test_a_job_depends_on_user_and_number_alone(self) -> None:
        _, loops = self.loops()
        early, late = loops.arrival(loops.users[1], 3, 0), loops.arrival(loops.users[1], 3, 4 * NS)
        assert early.job == late.job
        assert (early.phase, late.phase) == ("warm-up", "baseline")
        jobs = [loops.arrival(loops.users[u], k, 0).job for u in range(3) for k in range(20)]
        assert len({(j.output_tokens, j.input_tokens) for j in jobs}) > 8

    def test_users_start_staggered_within_their_think_time(self) -> None:
        _, loops = self.loops()
        starts = [loops.first_due_ns(user) or 0 for user in loops.users]
        assert len(set(starts)) == 5
        assert all(0 <= start < 0.25 * NS for start in starts)

    def test_a_user_thinks_after_an_answer_and_pauses_after_a_failure(self) -> None:
        _, loops = self.loops()
        thinker, worker = loops.users[0], loops.users[3]
        assert loops.next_due_ns(thinker, NS, answered=True) == 1.2 * NS
        assert loops.next_due_ns(thinker, NS, answered=False) == 1.2 * NS
        assert loops.next_due_ns(worker, NS, answered=True) == NS
        assert loops.next_due_ns(worker, NS, answered=False) == 1.1 * NS

    def test_a_user_waits_for_its_tenants_next_phase(self) -> None:
        _, loops = self.loops()
        agent, batch = loops.users[0], loops.users[3]
        due = loops.next_due_ns(agent, 5 * NS, answered=True)
        assert due is not None
        assert 9 * NS <= due < 9.25 * NS
        assert loops.arrival(agent, 1, due).phase == "after"
        assert loops.next_due_ns(agent, 11 * NS, answered=True) is None
        assert loops.next_due_ns(batch, 6 * NS, answered=True) == 6 * NS
        assert loops.next_due_ns(batch, 11 * NS, answered=True) is None

    def test_a_tenant_without_a_phase_never_starts(self) -> None:
        chosen = with_loops()
        away = chosen.tenants[3].model_copy(update={"during": ("nowhere",)})
        chosen = chosen.model_copy(update={"tenants": (away,)})
        loops = plan.ClosedLoops(chosen, plan.draw(chosen, 1))
        assert loops.first_due_ns(loops.users[0]) is None


def test_arrivals_carry_their_tenants_class() -> None:
    text = TEXT.replace("name: flood,", "name: flood, class: batch,").replace(
        "tenants:\n", "gateway: {pools: {p: {classes: {standard: {}, batch: {}}}}}\ntenants:\n"
    )
    classes = {(a.tenant, a.service_class) for a in plan.draw(parsed(text), 1).arrivals}
    assert classes == {("quiet-1", "standard"), ("quiet-2", "standard"), ("flood", "batch")}
    assert isinstance(plan.draw(parsed(text), 1).arrivals[0], Arrival)


def test_a_tenants_model_is_what_all_its_requests_ask_for() -> None:
    text = TEXT.replace("checks:", LOOPS + "checks:").replace("users: 3,", "users: 3, model: large,")
    chosen = parsed(text.replace("- {name: flood,", "- {name: flood, model: small,"))
    drawn = plan.draw(chosen, 1)
    assert {(a.tenant == "flood", a.model) for a in drawn.arrivals} == {(True, "small"), (False, None)}
    loops = plan.ClosedLoops(chosen, drawn)
    asked = {loops.arrival(user, 0, 0).tenant: loops.arrival(user, 0, 0).model for user in loops.users}
    assert asked == {"agents": "large", "batch": None}


@pytest.mark.parametrize(
    ("name", "fingerprint"), [("noisy-neighbor", "46f29be40e17"), ("weighted-fair", "dfa45e51e267")]
)
def test_plans_are_still_those_that_they_were(name: str, fingerprint: str) -> None:
    """Of folders that others have, and of figures in documents: who changes a plan changes these, too."""
    assert plan.draw(profile.load(profile.find(name)), 1).fingerprint.startswith(fingerprint)
