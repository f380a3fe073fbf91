"""Populations: which program a logical request has is a draw of its own, live and simulated alike."""

from __future__ import annotations

from collections import Counter

import pytest

from agentload import behaviours, profile
from agentload.client.logical import LogicalRequest
from agentload.model import Arrival, Job, Tenant

TEXT = """\
name: mixed
about: A population.
phases: [{name: load, seconds: 5}]
tenants:
  - name: app
    arrivals: {kind: poisson, rate: 5}
    workload: {kind: chat}
    CLIENT
checks: [bounded-queue]
"""
POPULATION = """clients:
      - {share: 0.25, kind: hammer, max_attempts: 4, timeout_s: 3}
      - {share: 0.5, kind: openai-sdk, retry_budget: 0.1}
      - {share: 0.25, kind: quitter, leave_s: 2}"""


def tenant(client: str = POPULATION) -> Tenant:
    return profile.parse(TEXT.replace("CLIENT", client), "mixed.yaml").tenants[0]


def arrival(seq: int) -> Arrival:
    job = Job(input_tokens=24, output_tokens=8, declared_output_tokens=None)
    return Arrival(seq=seq, tenant="app", service_class="standard", phase="load", due_ns=0, job=job)


def programs(seed: int, seqs: range) -> list[str]:
    mixed = tenant()
    return [behaviours.client_of(mixed, seed, seq).kind for seq in seqs]


def test_shares_are_kept_and_draws_belong_to_requests() -> None:
    drawn = programs(1, range(20_000))
    counts = Counter(drawn)
    assert counts["openai-sdk"] == pytest.approx(10_000, abs=300)
    assert counts["hammer"] == pytest.approx(5_000, abs=250)
    assert drawn[100:200] == programs(1, range(100, 200))
    assert drawn[:1000] != programs(2, range(1000))


def test_the_draws_do_not_change_from_version_to_version() -> None:
    assert "".join(kind[0] for kind in programs(1, range(24))) == "qhhqooohoooooqhhhhohqqqh"


def test_a_request_is_handled_by_the_program_that_was_drawn_for_it() -> None:
    mixed = tenant()
    behaviour = behaviours.of(mixed)
    timeouts = {"hammer": 3, "openai-sdk": 600, "quitter": 60}
    for seq in range(50):
        start = LogicalRequest(arrival(seq), behaviour, seed=7).start(0)
        kind = behaviours.client_of(mixed, 7, seq).kind
        assert start.timeout_at_ns == timeouts[kind] * 10**9
        assert (start.leave_at_ns is not None) == (kind == "quitter")


def test_the_requests_of_one_program_share_its_budget() -> None:
    behaviour = behaviours.of(tenant("clients: [{share: 1, kind: hammer, retry_budget: 0.01}]"))
    members = [behaviour.for_request(1, arrival(seq)) for seq in range(2)]
    assert members[0].may_retry()
    assert not members[1].may_retry()


def test_a_single_client_is_what_it_was() -> None:
    single = tenant("client: {kind: hammer, max_attempts: 4}")
    assert single.clients == ()
    assert behaviours.client_of(single, 1, 9) == single.client
    made = behaviours.of(single)
    assert made == behaviours.make(single.client)
    assert made.for_request(1, arrival(9)) is made


def test_the_most_frequent_one_stands_for_all_where_one_is_asked_for() -> None:
    assert tenant().client.kind == "openai-sdk"


def test_a_population_survives_the_way_to_a_worker() -> None:
    whole = profile.parse(TEXT.replace("CLIENT", POPULATION), "mixed.yaml")
    assert profile.from_json(profile.to_json(whole)) == whole


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        (
            "clients: [{share: 0.5, kind: hammer}]",
            "8:14: tenants[0].clients: the shares must add up to 1, got 0.5",
        ),
        (
            "clients: [{share: 1, kind: hamer}]",
            "8:32: tenants[0].clients[0].kind: no behaviour named 'hamer' (did you mean 'hammer'?)",
        ),
        ("clients: [{kind: hammer}]", "8:15: tenants[0].clients[0].share: is required"),
        (
            "clients: [{share: 2, kind: hammer, tries: 3}]",
            "8:23: tenants[0].clients[0].share: must be <= 1, got 2",
        ),
        (
            "clients: {kind: hammer}",
            "8:14: tenants[0].clients: must be a list such as [{share: 1, kind: openai-sdk}]",
        ),
        (
            "client: hammer\n    clients: [{share: 1, kind: obeys}]",
            "9:14: tenants[0].clients: has a client already: write one of the two",
        ),
    ],
)
def test_what_is_wrong_with_a_population_is_said_where_it_is(written: str, complaint: str) -> None:
    with pytest.raises(profile.ProfileError) as raised:
        tenant(written)
    assert f"mixed.yaml:{complaint}" in raised.value.lines
