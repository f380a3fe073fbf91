"""`--set KEY=VALUE` changes a profile before it is checked, and is named in what it breaks."""

from __future__ import annotations

import pytest

from agentload import profile
from agentload.errors import ProfileError
from agentload.model import Profile

TEXT = """\
name: tiny
about: A profile to be changed.
phases:
  - {name: calm, seconds: 2}
tenants:
  - {name: quiet, arrivals: {kind: uniform, rate: 5}, workload: {kind: chat}}
  - {name: flood, users: 3, workload: {kind: fixed}}
checks:
  - bounded-queue
  - victim-latency: {baseline: calm, noise: calm}
"""


def changed(*settings: str) -> Profile:
    return profile.parse(TEXT, "p.yaml", settings)


def refusal(*settings: str) -> list[str]:
    with pytest.raises(ProfileError) as raised:
        changed(*settings)
    return list(raised.value.lines)


def test_outermost_and_nested_keys() -> None:
    assert changed("seed=7").seed == 7
    assert changed("provider.slots=8").provider.slots == 8
    assert changed("provider.latency.first_token_ms=5").provider.latency.first_token_ms == 5
    assert changed("gateway.pools.shared.slots=3").gateway.pools["shared"].slots == 3


def test_what_a_profile_says_of_a_tenant_stays_when_the_gateway_is_told_more_of_it() -> None:
    told = changed("tenants.flood.weight=3", "gateway.tenants.flood={slots: 2}").gateway.tenants["flood"]
    assert (told.weight, told.service_class, told.slots) == (3, "standard", 2)
    assert changed("gateway.tenants.flood.weight=5").gateway.tenants["flood"].weight == 5


def test_list_elements_go_by_name_or_index() -> None:
    rate = "arrivals.rate=9.5"
    for setting in (f"tenants.quiet.{rate}", f"tenants.0.{rate}"):
        arrivals = changed(setting).tenants[0].arrivals
        assert arrivals is not None
        assert arrivals.params == {"rate": 9.5}
    assert changed("phases.calm.seconds=4").phases[0].seconds == 4


def test_checks_with_and_without_parameters() -> None:
    assert changed("checks.bounded-queue.max_depth=3").checks[0].params == {"max_depth": 3}
    params = changed("checks.victim-latency.max_ratio=4").checks[1].params
    assert params == {"baseline": "calm", "noise": "calm", "max_ratio": 4}


def test_values_are_yaml_and_the_last_one_wins() -> None:
    assert changed("tenants.flood.during=[calm]").tenants[1].during == ("calm",)
    assert changed("seed=2", "seed=1e3").seed == 1000
    assert changed("about='a: b'").about == "a: b"
    assert changed("about=a=b").about == "a=b"


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("provider.slots=x", "provider.slots: must be a whole number, got 'x'"),
        ("provider.slots=", "nothing"),
        ("sed=3", "sed: unknown key (did you mean 'seed'?)"),
        ("seed=", "seed: must be a whole number, got nothing"),
        ("seed.x=3", "seed: is required, so it has no 'x'"),
        ("tenants.flod.users=2", "tenants: nothing named 'flod' (did you mean 'flood'?)"),
        ("tenants.2.users=2", "tenants: nothing named '2' (known: quiet, flood)"),
        ("tenants.flood.users=0", "tenants[1].users: must be >= 1, got 0"),
        ("tenants.flood.weight=1e-308", "tenants[1].weight: must be at least 1e-06, got 1e-308"),
        ("gateway.retry.base_seconds=300", "gateway.retry: base_seconds 300 is more than max_seconds 120"),
        ("checks.bounded-queue.max_depth=-3", "checks[0].bounded-queue.max_depth: must be >= 0, got -3"),
        ("name.first=3", "name: holds 'tiny', so it has no 'first'"),
        ("seed=[1", "not a YAML value: did not find expected ',' or ']'"),
        ("seed=.inf", "must be a finite number, got .inf"),
        ("seed", "must be KEY=VALUE, such as provider.slots=8"),
        ("=3", "must be KEY=VALUE, such as provider.slots=8"),
        ("provider..slots=3", "must be KEY=VALUE, such as provider.slots=8"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(setting: str, line: str) -> None:
    if line == "nothing":
        assert changed(setting).provider.slots is None
    elif setting == "seed.x=3":
        assert refusal(setting) == ["--set seed.x=3: seed: must be a whole number, got a mapping"]
    else:
        [found] = refusal(setting)
        assert found.startswith(f"--set {setting}: ")
        assert found.endswith(line)


def test_mistakes_of_file_and_settings_together() -> None:
    with pytest.raises(ProfileError) as raised:
        profile.parse(
            TEXT.replace("rate: 5", "rate: 0"), "p.yaml", ["tenants.flood.users=0", "phases.calm.seconds=0"]
        )
    assert [line.split(": ")[0] for line in raised.value.lines] == [
        "p.yaml:6:51",
        "--set tenants.flood.users=0",
        "--set phases.calm.seconds=0",
    ]


def test_an_empty_file_stays_empty() -> None:
    with pytest.raises(ProfileError, match="is empty"):
        profile.parse("", "p.yaml", ["seed=3"])
