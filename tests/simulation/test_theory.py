"""The simulator against what can be worked out without it: queueing theory, token buckets, fair queueing.

Waits are compared twice. The whole world (client, gateway with one slot, provider) must give every single
customer the wait of Lindley's recursion, to the nanosecond. And that recursion must give the waits of the
theory within 1 %. To see 1 % takes a million customers and more (the mean wait of n customers at load 0.5 has
a standard error of 5.4/sqrt(n) for M/M/1), which the recursion serves in a second and the world in minutes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from random import Random

import pytest

from agentload import profile
from agentload.behaviours.no_retry import NoRetry
from agentload.drivers.simulated.client import Demand
from agentload.drivers.simulated.network import Timing
from agentload.drivers.simulated.world import Sinks, World
from agentload.model import NS, Arrival, Job, RequestRecord, Run, Sample
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig
from agentload.simulate import simulate
from fake_provider.config import LatencyConfig, ProviderConfig
from fake_provider.ledger import Entry

EXACT = Timing(one_way_ns=0, timer_grain_ns=1, sample_ns=10_000_000)
STEP_NS = 100_000
"""A token takes 0.1 ms; a customer with 1,001 tokens is served in 100 ms."""
MEAN_TOKENS = 1_000
CUSTOMERS = 2_500


# --------------------------------------------------------------------------- one server


def tokens(random: Random, law: str) -> int:
    """Service, in tokens after the first (which takes no time): constant (D) or exponential (M)."""
    return MEAN_TOKENS if law == "D" else round(random.expovariate(1 / MEAN_TOKENS))


def customers(n: int, load: float, law: str, seed: int) -> Iterator[tuple[int, int]]:
    """(arrival, service) in nanoseconds; Poisson arrivals."""
    random, at = Random(seed), 0.0
    for _ in range(n):
        at += random.expovariate(load / (MEAN_TOKENS * STEP_NS))
        yield round(at), tokens(random, law) * STEP_NS


def lindley(of: Iterator[tuple[int, int]]) -> Iterator[int]:
    """Each customer's wait: max(0, the last one's wait + service - time between their arrivals)."""
    free_ns = 0
    for arrival_ns, service_ns in of:
        wait_ns = max(0, free_ns - arrival_ns)
        free_ns = arrival_ns + wait_ns + service_ns
        yield wait_ns


def one_server(of: Sequence[tuple[int, int]]) -> tuple[list[Entry], list[RequestRecord], list[Sample]]:
    """The world with a single slot at the gateway, an unlimited queue, and one tenant."""
    pool = PoolConfig(
        slots=1,
        tenant_slots=1,
        capacity_units=1_000,
        classes={"standard": ClassConfig(max_queue=10**6, tenant_max_queue=10**6, max_wait_s=10**6)},
    )
    arrivals = [
        Arrival(
            seq=seq,
            tenant="a",
            service_class="standard",
            phase="load",
            due_ns=due_ns,
            job=Job(input_tokens=24, output_tokens=1 + service_ns // STEP_NS, declared_output_tokens=None),
        )
        for seq, (due_ns, service_ns) in enumerate(of)
    ]
    demand = Demand(
        arrivals=arrivals,
        behaviours={"a": NoRetry(timeout_s=3_600)},
        places={"a": 0},
        seed=1,
        horizon_ns=of[-1][0] + 3_600 * NS,
    )
    entries, records, samples = list[Entry](), list[RequestRecord](), list[Sample]()
    latency = LatencyConfig(first_token_ms=0, inter_token_ms=STEP_NS / 1e6)
    world = World(
        GatewayConfig(pools={"one": pool}),
        ProviderConfig(latency=latency),
        demand,
        sinks=Sinks(record=records.append, sample=samples.append, call=entries.append),
        timing=EXACT,
    )
    world.run()
    return sorted(entries, key=lambda e: e.seq or 0), records, samples


@pytest.mark.parametrize("law", ["M", "D"])
def test_every_customer_waits_as_lindley_says_and_length_is_rate_times_time(law: str) -> None:
    of = list(customers(CUSTOMERS, 0.7, law, seed=1))
    entries, records, samples = one_server(of)
    waits = [(entry.started_ns or 0) - due_ns for entry, (due_ns, _) in zip(entries, of, strict=True)]
    assert waits == list(lindley(iter(of)))
    assert max(waits) > NS // 2  # there was a queue worth the name
    # Little's law, with the gateway's own gauge on one side and the clients' records on the other.
    until_ns = of[-1][0]
    seen = [s.values["waiting"] + s.values["in_flight"] for s in samples if s.at_ns <= until_ns]
    times = [min(record.ended_ns, until_ns) - record.due_ns for record in records]
    assert sum(seen) / len(seen) == pytest.approx(sum(times) / until_ns, rel=0.01)


@pytest.mark.parametrize(("law", "expected"), [("M", 1.0), ("D", 0.5)])
def test_lindleys_waits_are_those_of_the_theory(law: str, expected: float) -> None:
    """At load 0.5 the mean wait is 1 service time for M/M/1 and 0.5 for M/D/1 (Pollaczek and Khinchine)."""
    n = 1_500_000
    mean = sum(lindley(customers(n, 0.5, law, seed=1))) / n
    assert mean / (MEAN_TOKENS * STEP_NS) == pytest.approx(expected, rel=0.01)


# --------------------------------------------------------------------------- token bucket


def highest_level(run: Run, tokens_per_s: float) -> float:
    """Of a leaky bucket that is filled by what the provider is offered: the burst that all windows need."""
    level, at_ns, highest = 0.0, 0, 0.0
    for call in sorted(run.ledger, key=lambda c: c.arrived_ns):
        level = max(0.0, level - (call.arrived_ns - at_ns) / NS * tokens_per_s) + call.charged_tokens
        at_ns, highest = call.arrived_ns, max(highest, level)
    return highest


def test_no_window_is_offered_more_than_burst_and_rate() -> None:
    run = simulate(profile.load(profile.find("noisy-neighbor")), 1)
    config, margin = run.profile.provider, run.profile.gateway.upstream.margin
    assert config.tokens_per_minute is not None
    rate = config.tokens_per_minute / 60
    kept = 1 - margin
    # The gateway keeps its margin off rate and burst alike, and messages take equally long: exact.
    assert highest_level(run, kept * rate) <= kept * rate * config.bucket_s + 1e-6
    # And it leaves nothing on the table: under the flood the bucket is drained to the last call.
    assert highest_level(run, kept * rate) > kept * rate * config.bucket_s - 48


# --------------------------------------------------------------------------- fair queueing


@cache
def weighted_fair(policy: str) -> Run:
    return simulate(profile.load(profile.find("weighted-fair")), 1, policy=policy)


def widest_gap(run: Run, phase: str, tenants: Sequence[str]) -> dict[tuple[str, str], float]:
    """Over all windows of the phase: how far the service per weight of two tenants drew apart."""
    weights = {tenant.name: tenant.weight for tenant in run.profile.tenants}
    start_ns, end_ns = run.profile.phase_window_ns(phase)
    served, low, high = (
        defaultdict[str, float](float),
        dict[tuple[str, str], float](),
        dict[tuple[str, str], float](),
    )
    for call in sorted(run.ledger, key=lambda c: c.started_ns or 0):
        if (
            call.tenant in tenants
            and call.started_ns is not None
            and start_ns + NS <= call.started_ns < end_ns
        ):
            served[call.tenant] += (call.input_tokens + call.output_tokens) / weights[call.tenant]
            for pair in combinations(tenants, 2):
                apart = served[pair[0]] - served[pair[1]]
                low[pair] = min(apart, low.get(pair, 0.0))
                high[pair] = max(apart, high.get(pair, 0.0))
    return {pair: high[pair] - low[pair] for pair in low}


def sfq_bound(run: Run, pair: tuple[str, str]) -> float:
    """(C + 1) (cmax_i / w_i + cmax_j / w_j), with C calls in service (Goyal 1996; Jin, Chase, Kaur 2004)."""
    weights = {tenant.name: tenant.weight for tenant in run.profile.tenants}
    largest = [max(c.input_tokens + c.output_tokens for c in run.ledger if c.tenant == name) for name in pair]
    slots = next(iter(run.profile.gateway.pools.values())).slots
    return (slots + 1) * sum(cost / weights[name] for cost, name in zip(largest, pair, strict=True))


@pytest.mark.parametrize(
    ("phase", "tenants"),
    [("small", ("gold", "silver", "bronze")), ("heavy", ("gold-heavy", "silver-heavy", "bronze-heavy"))],
)
def test_backlogged_tenants_never_draw_apart_by_more_than_the_bound(
    phase: str, tenants: tuple[str, ...]
) -> None:
    fair, naive = weighted_fair("sfq"), weighted_fair("fifo")
    assert all(gap <= sfq_bound(fair, pair) for pair, gap in widest_gap(fair, phase, tenants).items())
    assert any(gap > sfq_bound(naive, pair) for pair, gap in widest_gap(naive, phase, tenants).items())
