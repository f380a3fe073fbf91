"""What a profile becomes: tenants spelt out, a gateway that knows them, and the same again in a worker."""

from __future__ import annotations

import pytest

from agentload import arrivals, profile
from agentload.model import Profile

TEXT = """\
name: tiny
about: Everything that is filled in.
phases:
  - {name: warm-up, seconds: 3, record: false}
  - {name: baseline, seconds: 20}
  - {name: noise, seconds: 20, replays: baseline}
  - {name: after, seconds: 5}
provider: {tokens_per_minute: 6000, bucket_s: 2, slots: 4}
gateway:
  upstream: {margin: 0.1}
  pools: {shared: {classes: {standard: {}, premium: {}}}}
  tenants: {special: {class: premium, weight: 9}}
tenants:
  - {name: quiet, count: 2, weight: 3, arrivals: {kind: uniform, rate: 5}, workload: {kind: chat}}
  - name: special
    workload: fixed
    client: {kind: obeys, max_attempts: 2}
    during: [noise]
    users: 3
    think_s: 0.5
checks:
  - bounded-queue
  - no-starvation:
"""


def parsed(text: str = TEXT) -> Profile:
    return profile.parse(text, "p.yaml")


def test_a_count_becomes_so_many_tenants() -> None:
    assert [(t.name, t.group, t.weight) for t in parsed().tenants] == [
        ("quiet-1", "quiet", 3),
        ("quiet-2", "quiet", 3),
        ("special", "special", 1),
    ]
    assert [t.name for t in parsed().tenants_named("quiet")] == ["quiet-1", "quiet-2"]
    assert [t.name for t in parsed(TEXT.replace("count: 2", "count: 1")).tenants] == ["quiet", "special"]


def test_the_gateway_knows_tenants_and_limits_unless_told_otherwise() -> None:
    gateway = parsed().gateway
    assert gateway.upstream.tokens_per_minute == 6000
    assert gateway.upstream.bucket_s == 2
    assert gateway.upstream.margin == 0.1
    assert gateway.tenants["quiet-2"].weight == 3
    assert gateway.tenants["special"].weight == 9
    assert gateway.tenants["special"].service_class == "premium"
    told = parsed(TEXT.replace("{margin: 0.1}", "{tokens_per_minute: 99, bucket_s: 60}")).gateway
    assert told.upstream.tokens_per_minute == 99
    assert told.upstream.bucket_s == 60


def test_defaults_and_short_forms() -> None:
    tenants = parsed().tenants
    assert tenants[0].client.kind == "no-retry"
    assert tenants[2].workload.kind == "fixed"
    assert tenants[2].client.params == {"max_attempts": 2}
    assert tenants[2].during == ("noise",)
    assert [(c.kind, c.params) for c in parsed().checks] == [("bounded-queue", {}), ("no-starvation", {})]


def test_a_worker_gets_the_same_profile() -> None:
    assert profile.from_json(profile.to_json(parsed())) == parsed()


def seconds(shortened: Profile) -> list[float]:
    return [phase.seconds for phase in shortened.phases]


def test_quick_halves_but_keeps_72_samples_and_equal_replays() -> None:
    # 5/s × 20 s = 100 samples; 72 need 14.4 s. Of `after` nobody had 72 anyway.
    assert seconds(profile.quick(parsed())) == [3, 14.4, 14.4, 2.5]


def test_quick_halves_what_has_samples_enough() -> None:
    assert seconds(profile.quick(parsed(TEXT.replace("rate: 5", "rate: 50")))) == [3, 10, 10, 2.5]


def test_quick_lengthens_a_replayed_phase_as_its_replay_needs() -> None:
    text = TEXT.replace("users: 3\n    think_s: 0.5", "arrivals: {kind: poisson, rate: 4}")
    assert seconds(profile.quick(parsed(text))) == [3, 18, 18, 2.5]


def test_quick_never_lengthens() -> None:
    text = TEXT.replace("seconds: 20", "seconds: 0.05").replace("seconds: 5", "seconds: 0.03")
    assert seconds(profile.quick(parsed(text))) == [3, 0.05, 0.05, 0.03]


@pytest.mark.parametrize("name", profile.names())
def test_bundled_profiles_are_valid_and_named_like_their_files(name: str) -> None:
    loaded = profile.load(profile.find(name))
    assert loaded.name == name
    assert loaded.about.endswith(".")
    assert profile.from_json(profile.to_json(loaded)) == loaded
    assert loaded.duration_ns <= 75_000_000_000


def test_the_noisy_neighbor_is_decidable() -> None:
    noisy = profile.load(profile.find("noisy-neighbor"))
    for shape in (noisy, profile.quick(noisy)):
        windows = {phase.name: phase.seconds for phase in shape.phases}
        quiet = shape.tenants_named("quiet")[0].arrivals
        flood = shape.tenants_named("flood")[0].arrivals
        assert quiet is not None
        assert flood is not None
        assert (arrivals.make(quiet).mean_count(windows["baseline"]) or 0) >= 72
        assert windows["baseline"] == windows["noise"]
        # 48 tokens are charged a call; the flood alone offers five times what the provider takes.
        assert noisy.provider.tokens_per_minute is not None
        capacity = noisy.provider.tokens_per_minute / 60 / 48
        assert flood.params["rate"] == pytest.approx(5 * capacity, rel=0.01)
        assert 3 * quiet.params["rate"] < capacity / 2


def test_a_pool_that_does_not_say_has_the_providers_slots() -> None:
    assert {name: pool.slots for name, pool in parsed().gateway.pools.items()} == {"shared": 4}
    said = parsed(TEXT.replace("{shared: {", "{shared: {slots: 9, ")).gateway.pools
    assert said["shared"].slots == 9
    without = TEXT.replace(", slots: 4", "")
    assert parsed(without).gateway.pools["shared"].slots == 16, "the provider has no bound"
    no_pools = TEXT.replace("  pools: {shared: {classes: {standard: {}, premium: {}}}}\n", "").replace(
        "  tenants: {special: {class: premium, weight: 9}}\n", ""
    )
    assert [pool.slots for pool in parsed(no_pools).gateway.pools.values()] == [4]


@pytest.mark.parametrize(
    ("first", "slots", "expected"),
    [("slots: 3, ", 8, (3, 5)), ("", 8, (4, 4)), ("slots: 9, ", 8, (9, 1)), ("", 1, (1, 1))],
)
def test_pools_share_what_is_left(first: str, slots: int, expected: tuple[int, int]) -> None:
    pools = f"{{a: {{{first}classes: {{standard: {{}}}}}}, b: {{classes: {{premium: {{}}}}}}}}"
    text = TEXT.replace("{shared: {classes: {standard: {}, premium: {}}}}", pools)
    made = parsed(text.replace("slots: 4}", f"slots: {slots}}}")).gateway.pools
    assert tuple(pool.slots for pool in made.values()) == expected


def test_more_slots_than_the_providers_are_warned_of() -> None:
    assert profile.slots_beyond_provider(parsed()) is None
    told = parsed(TEXT.replace("{shared: {", "{shared: {slots: 9, "))
    assert "9 slots are more than the provider's 4" in str(profile.slots_beyond_provider(told))
    queues = parsed(
        TEXT.replace("{shared: {", "{shared: {slots: 9, ").replace("slots: 4}", "slots: 4, overflow: queue}")
    )
    assert profile.slots_beyond_provider(queues) is None, "such a provider refuses nobody"


@pytest.mark.parametrize("name", profile.names())
def test_no_bundled_profiles_gateway_has_more_slots_than_its_provider(name: str) -> None:
    assert profile.slots_beyond_provider(profile.load(profile.find(name))) is None
