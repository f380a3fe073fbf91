"""What profiles/README.md says is so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from agentload import arrivals, behaviours, profile, workloads
from agentload.gateway import config_file
from agentload.gateway.settings import GatewaySettings
from agentload.registry import Seam
from agentload.scheduler.config import GatewayConfig
from agentload.targets._declares import Declares, QueuePromise, TenantPromise, UpstreamPromise
from fake_provider.config import ProviderConfig

README = (profile.bundled_folder() / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)


def test_its_examples_are_profiles() -> None:
    assert EXAMPLES
    for example in EXAMPLES:
        assert profile.parse(example, "README.md").name


def test_it_lists_every_bundled_profile() -> None:
    assert (
        sorted(re.findall(r"^\| `([a-z-]+)` \|", README.split("## The smallest")[0], re.MULTILINE))
        == profile.names()
    )


@pytest.mark.parametrize("seam", [arrivals.SEAM, workloads.SEAM, behaviours.SEAM], ids=lambda seam: seam.noun)
def test_it_names_every_kind(seam: Seam[object]) -> None:
    for name in seam.names():
        assert f"`{name}`" in README or f"kind: {name}," in README


def test_the_mistake_it_shows_is_the_one_that_is_reported() -> None:
    shown = re.search(r"`my-first.yaml:(\d+:\d+): ([^`]*)`", README)
    assert shown is not None
    with pytest.raises(profile.ProfileError) as raised:
        profile.parse(EXAMPLES[0].replace("rate: 5", "rate: -5"), "my-first.yaml")
    assert raised.value.lines == (f"my-first.yaml:{shown[1]}: {shown[2]}",)


# --------------------------------------------------------------------------- the tables of keys


def table(heading: str) -> dict[str, str]:
    """Key → default, of the tables below a heading."""
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([A-Za-z0-9_.]+)` \| .* \| (.*) \|$", section, re.MULTILINE))


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and default of every field; P, C and T stand for names."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        inner = [a for a in (field.annotation, *get_args(field.annotation)) if isinstance(a, type)]
        models = [a for a in inner if issubclass(a, BaseModel) and a.__name__ != "FaultSpec"]
        if models:
            letter = {
                "pools": ".P",
                "classes": ".C",
                "tenants": ".T",
                "prices": ".M",
                "models": ".M",
                "model_limits": ".M",
            }.get(name, "")
            yield from fields(models[0], f"{key}{letter}.")
        else:
            yield key, field.get_default(call_default_factory=True)


def agree(shown: dict[str, str], real: dict[str, Any]) -> None:
    assert list(shown) == list(real)
    for key, default in real.items():
        if default is None or default is PydanticUndefined or "`provider`" in shown[key]:
            continue  # said in words
        if default == ():
            assert shown[key] == "[]"
        elif isinstance(default, tuple):
            assert shown[key] == f"[{', '.join(default)}]"
        elif isinstance(default, str):
            assert shown[key] == default
        else:
            assert json.loads(shown[key]) == default, key


def test_it_has_every_key_of_the_provider() -> None:
    agree(table("The provider's keys"), dict(fields(ProviderConfig)))


def test_it_has_every_key_of_the_gateway() -> None:
    real = {**dict(fields(GatewayConfig)), **dict(fields(GatewaySettings, "server."))}
    agree(table("The gateway's keys"), real)


def test_it_has_every_key_that_a_target_may_declare() -> None:
    shown = set(table("What a target declares"))
    nested = {"tenants": TenantPromise, "queue": QueuePromise, "upstream": UpstreamPromise}
    real = {
        f"{name}{'.T' if name == 'tenants' else ''}.{key}" if key else name
        for name in Declares.model_fields
        for key in (nested[name].model_fields if name in nested else ("",))
    }
    assert shown == real


def test_its_gateway_file_can_be_served() -> None:
    (example,) = re.findall(r"```yaml gateway\n(.*?)```", README, re.DOTALL)
    config, settings = config_file.parse(example, "gateway.yaml")
    assert config_file.tenant_keys(config, {"ALICE_KEY": "k"}) == {"k": "alice"}
    assert settings.drain_s == 5
