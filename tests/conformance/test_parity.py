"""The simulator against the real thing: the ASGI gateway and provider, in virtual time, without sockets.

Both are given the same plan, delays and timer grain. Then not only the counts but every field of every record
and of every ledger entry must be equal, to the nanosecond: whatever the simulator says, the real code does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
import pytest

import virtual_loop
from agentload import plan, profile, provider_records
from agentload.drivers.simulated.network import Timing
from agentload.drivers.simulated.recording import Recording
from agentload.model import NS, Outcome, Plan, Profile, Run
from in_memory import Stack

EVERYTHING_AT_ONCE = """
name: everything-at-once
about: Streams and plain answers, open and closed loops, retries, timeouts, deadlines, a fault every second.
phases:
  - {name: load, seconds: 12}
provider:
  slots: 12             # more than the gateway's: calls may come at the instant at which others are cancelled
  tokens_per_minute: 60000
  bucket_s: 2
  latency: {first_token_ms: 100, first_token_cv: 0.4, inter_token_ms: 10}
  faults:
    - {kind: error-rate, after_s: 1, seconds: 1, params: {rate: 0.5}}
    - {kind: error-in-stream, after_s: 2, seconds: 1}
    - {kind: truncate, after_s: 3, seconds: 1}
    - {kind: reset, after_s: 4, seconds: 0.5}
    - {kind: outage, after_s: 5, seconds: 0.5}
    - {kind: stall, after_s: 6, seconds: 1, tenant: 2}   # not of all: they would end at one instant
    - {kind: slow, after_s: 7, seconds: 1, params: {factor: 4}}
    - {kind: tpm-cut, after_s: 8, seconds: 1, params: {factor: 0.5}}
    - {kind: quota-exhausted, after_s: 10, seconds: 0.5}
gateway:
  upstream: {tokens_per_minute: 90000}
  pools:
    shared:
      slots: 8
      classes:
        standard: {max_queue: 12, max_wait_s: 2}
tenants:
  - name: streams
    arrivals: {kind: poisson, rate: 8}
    workload: {kind: chat, input_tokens: 40, max_tokens: 64, output_tokens: {min: 4, max: 60}, stream: true}
    client: {kind: openai-sdk, timeout_s: 0.5}
  - name: plain
    arrivals: {kind: poisson, rate: 10}
    workload: {kind: chat, input_tokens: 100, output_tokens: {min: 1, max: 24}, stream: 0.2}
    client: {kind: hammer, max_attempts: 3, timeout_s: 0.6}
  - name: hurried
    model: large
    arrivals: {kind: poisson, rate: 6}
    workload: {kind: chat, input_tokens: 13, max_tokens: 32, output_tokens: 20, stream: 0.5, deadline_s: 0.4}
    client: {kind: ignores}
  - name: loops
    users: 4
    workload: {kind: pareto, input_tokens: 24, max_tokens: 400, mean_output_tokens: 60, stream: 0.5}
    client: {kind: obeys}
drain_s: 3
checks: [status-codes]
"""
TIMING = Timing(piece_tokens=1, upstream_extra_ns=1_003)
"""Streams token by token, as the real provider sends them; and no client's next request comes at the very
instant at which the provider answers somebody else: either order would be right."""
COARSE = replace(TIMING, piece_tokens=Timing().piece_tokens)


def in_memory(patch: pytest.MonkeyPatch, chosen: Profile, drawn: Plan) -> Stack:
    """The real applications under the same plan."""
    run = drawn.seed % 65_535 + 1

    async def play(_: virtual_loop.VirtualLoop) -> Stack:
        stack = Stack(chosen, drawn, run, TIMING)
        await stack.play()
        return stack

    return virtual_loop.run(patch, play)


def assert_equal(run: Run, stack: Stack) -> None:
    by_attempt = {(record.seq, record.attempt): record for record in stack.records}
    assert {(record.seq, record.attempt) for record in run.records} == set(by_attempt)
    for record in run.records:
        assert record == by_attempt[record.seq, record.attempt]
    names = [tenant.name for tenant in run.profile.tenants]
    entries = [msgspec.to_builtins(entry) for entry in stack.ledger]
    real = provider_records.ledger_from_provider(entries, names, t0_ns=0)
    # In the end all clients leave at one instant: what starts then in the place of others is anybody's guess.
    end_ns = run.profile.duration_ns + round(run.profile.drain_s * NS)
    simulated = [entry for entry in run.ledger if entry.arrived_ns < end_ns]
    real = [entry for entry in real if entry.arrived_ns < end_ns]
    assert sorted(simulated, key=lambda e: e.call) == sorted(real, key=lambda e: e.call)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_every_record_and_every_ledger_entry_is_equal(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = profile.parse(EVERYTHING_AT_ONCE, "everything-at-once.yaml")
    drawn = plan.draw(chosen, seed)
    run = Recording(chosen, drawn, timing=TIMING).record()
    assert_equal(run, in_memory(monkeypatch, chosen, drawn))
    outcomes = Counter(record.outcome for record in run.records)
    assert set(outcomes) >= {
        Outcome.ANSWERED,
        Outcome.REJECTED,
        Outcome.EXPIRED,
        Outcome.FAILED,
        Outcome.ABANDONED,
    }
    assert {entry.status for entry in run.ledger} >= {0, 200, 429, 500, 503}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("steady", ["phases.steady.seconds=8"]),
        (
            "noisy-neighbor",
            ["phases.baseline.seconds=3", "phases.noise.seconds=3", "phases.recovery.seconds=4"],
        ),
        (
            "noisy-neighbor",
            [
                "gateway.policy=fifo",
                "phases.baseline.seconds=4",
                "phases.noise.seconds=4",
                "phases.recovery.seconds=3",
            ],
        ),
        ("weighted-fair", ["phases.small.seconds=3", "phases.heavy.seconds=4"]),
    ],
    ids=["steady", "noisy-neighbor", "noisy-neighbor-fifo", "weighted-fair"],
)
def test_bundled_profiles_are_equal(name: str, settings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = profile.load(profile.find(name), settings)
    drawn = plan.draw(chosen, 7)
    run = Recording(chosen, drawn, timing=TIMING).record()
    assert_equal(run, in_memory(monkeypatch, chosen, drawn))


def test_the_comparison_sees_a_microsecond(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = profile.load(profile.find("steady"), ["phases.steady.seconds=1"])
    drawn = plan.draw(chosen, 7)
    slower = replace(TIMING, one_way_ns=TIMING.one_way_ns + 1_000)
    with pytest.raises(AssertionError):
        assert_equal(Recording(chosen, drawn, timing=slower).record(), in_memory(monkeypatch, chosen, drawn))


def test_pieces_of_streams_change_nothing_but_the_number_of_events() -> None:
    chosen = profile.load(profile.find("steady"), ["phases.steady.seconds=8"])
    drawn = plan.draw(chosen, 7)
    fine, coarse = Recording(chosen, drawn, timing=TIMING), Recording(chosen, drawn, timing=COARSE)
    assert fine.record().records == coarse.record().records
    assert coarse.world.kernel.events < fine.world.kernel.events / 2


AT_THE_DOOR = """\
name: at-the-door
about: Budgets, limits of tenants, and retries that are not what they say; live and simulated alike.
phases:
  - {name: load, seconds: 8}
provider:
  slots: 6
  latency: {first_token_ms: 100, first_token_cv: 0.4, inter_token_ms: 10}
gateway:
  budgets: {run: {tokens: 600}}
  tenants:
    limited: {requests_per_minute: 240, tokens_per_minute: 12000, burst_s: 2}
  pools:
    shared:
      slots: 6
      classes:
        standard: {max_queue: 6, response_when_full: defer}
tenants:
  - name: limited
    arrivals: {kind: bursts, size: 12, every_s: 2, spread_s: 0.3}
    workload: {kind: chat, input_tokens: 24, max_tokens: 48, output_tokens: {min: 8, max: 24}, stream: 0.5}
    client: {kind: obeys, sends_key: true}
  - name: early
    arrivals: {kind: poisson, rate: 20}
    workload: {kind: chat, input_tokens: 24, max_tokens: 48, output_tokens: {min: 8, max: 24}}
    client: {kind: forgetful, gap_s: 0.2, max_attempts: 9}
  - name: runaway
    users: 3
    workload: {kind: chat, input_tokens: 24, max_tokens: 48, output_tokens: {min: 8, max: 24}}
    client: {kind: hammer, max_attempts: 2, sends_key: true}
drain_s: 3
checks: [status-codes]
"""


def test_what_is_asked_at_the_door_is_answered_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = profile.parse(AT_THE_DOOR, "at-the-door.yaml")
    drawn = plan.draw(chosen, 1)
    run = Recording(chosen, drawn, timing=TIMING).record()
    assert_equal(run, in_memory(monkeypatch, chosen, drawn))
    reasons = Counter(record.reason for record in run.records)
    assert set(reasons) >= {
        "admitted",
        "tenant_over_limit",
        "too_early",
        "budget_spent",
        "deferred_class_full",
    }
