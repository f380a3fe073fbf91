"""What a target declares that a run would misread is said before it starts, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload import order, profile
from agentload.report.text import limits_line
from fake_provider.config import ProviderConfig


def warned(tmp_path: Path, declares: str, name: str = "weighted-fair", provider: str = "") -> list[str]:
    file = tmp_path / "gateway.yaml"
    file.write_text(f"base_url: http://127.0.0.1:8080\ndeclares: {declares}\n{provider}")
    options = order.Options(profile=name, target=str(file), allow_cost=True)
    return [line for line in order.prepare(options).warnings if "cost real money" not in line]


THREE = "gold: {weight: 5}, silver: {weight: 3}, bronze: {weight: 1}"


@pytest.mark.parametrize(
    ("tenants", "unnamed"),
    [
        (f"tenants: {{{THREE}}}", "gold-heavy, silver-heavy, bronze-heavy of this profile are not named"),
        ("tenants: {gold: {weight: 5}}", "silver, bronze, gold-heavy, … of this profile are not named"),
        (
            f"tenants: {{{THREE}, gold-heavy: {{weight: 5}}, silver-heavy: {{weight: 3}}}}",
            "bronze-heavy of this profile is not named",
        ),
    ],
)
def test_who_is_left_out_beside_weights_is_named(tenants: str, unnamed: str, tmp_path: Path) -> None:
    [line] = warned(tmp_path, f"{{{tenants}}}")
    assert line == f"declares.tenants: {unnamed}: weight 1 is assumed"


@pytest.mark.parametrize(
    "declares",
    [
        "{tenants: {gold: {weight: 5}}, each_tenant: {weight: 1}}",
        "{tenants: {gold: {slots: 3}}}",
        "{fairness: tokens}",
        "profile",
        "{}",
    ],
)
def test_where_each_has_a_weight_or_none_nothing_is_said(declares: str, tmp_path: Path) -> None:
    assert warned(tmp_path, declares) == []


def test_a_profile_that_rests_on_no_weights_needs_none(tmp_path: Path) -> None:
    assert warned(tmp_path, "{tenants: {quiet: {weight: 2}}}", "noisy-neighbor") == []


@pytest.mark.parametrize(
    ("declares", "line"),
    [
        (
            "{slots: 33}",
            "the gateway's 33 slots are more than the provider's 32, so the provider will refuse calls "
            "with 503: lower declares.slots",
        ),
        ("{pools: {a: {slots: 20}, b: {slots: 13}}}", "lower declares.pools.a.slots, declares.pools.b.slots"),
        (
            "{upstream: {tokens_per_minute: 153601}}",
            "declares.upstream.tokens_per_minute: 153,601 is more than the provider's 153,600, so the "
            "provider will refuse calls with 429: lower it, or raise provider.tokens_per_minute",
        ),
    ],
)
def test_more_than_our_provider_takes_is_told(declares: str, line: str, tmp_path: Path) -> None:
    [said] = warned(tmp_path, declares, "noisy-neighbor")
    assert said.endswith(line)
    assert warned(tmp_path, declares, "noisy-neighbor", "provider: external\n") == [], "it is not ours"


@pytest.mark.parametrize(
    "declares",
    ["{slots: 32}", "{pools: {a: {}, b: {}}}", "{upstream: {tokens_per_minute: 153600}}", "profile"],
)
def test_what_fits_the_provider_is_no_matter(declares: str, tmp_path: Path) -> None:
    assert warned(tmp_path, declares, "noisy-neighbor") == []


def test_one_told_as_a_profile_that_does_not_fit_is_warned_of_as_the_bundled_one(
    tmp_path: Path,
) -> None:
    own = tmp_path / "own.yaml"
    text = profile.find("noisy-neighbor").read_text()
    assert "slots: 32 " in text
    own.write_text(text.replace("slots: 32 ", "slots: 31 ", 1).replace("name: noisy-neighbor", "name: own"))
    [line] = warned(tmp_path, "profile", str(own))
    assert line == profile.slots_beyond_provider(profile.load(own))


def test_what_the_provider_takes_in_one_line() -> None:
    assert limits_line(ProviderConfig(slots=16, tokens_per_minute=153_600, bucket_s=2)) == (
        "slots 16, 153,600 tokens/min, bucket 2 s"
    )
    assert limits_line(ProviderConfig(policy="none")) == "no bound of slots, no rate limit"
