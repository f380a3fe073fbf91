"""What fake_provider/README.md says is so: every route, policy, fault, setting, option and field is named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel
from starlette.routing import Route

import fake_provider
from fake_provider import faults, plugins, policies
from fake_provider.__main__ import _parser
from fake_provider.app import build
from fake_provider.config import FaultSpec, LatencyConfig, ProviderConfig
from fake_provider.core import Provider
from fake_provider.host import Host
from fake_provider.ledger import Counts, Ending, Entry

README = (Path(fake_provider.__file__).parent / "README.md").read_text(encoding="utf-8")
CODE = re.findall(r"`([^`]+)`", README)
NAMED = set(CODE) | {word for code in CODE for word in re.split(r"[^a-zA-Z0-9_.-]+", code)}


def rows(heading: str) -> dict[str, str]:
    """First cell → the whole row, of the tables below a heading."""
    section = README.split(f"## {heading}")[1].split("\n## ")[0]
    found = re.findall(r"^(\| (.+?) \|.*)$", section, re.MULTILINE)
    return {first.strip("`"): row for row, first in found if first.startswith("`")}


def routes() -> Iterator[str]:
    """`POST /v1/messages` and so on, as the application has them."""
    for route in build(Host(Provider(ProviderConfig()))).routes:
        assert isinstance(route, Route)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            yield f"{method} {re.sub(r':[a-z]+}', '}', route.path)}"


def test_it_names_every_route_and_no_other() -> None:
    real = {route for route in routes() if not route.endswith(" /{path}")}
    shown = {code for code in CODE if re.match(r"(GET|POST|DELETE|PUT) /", code)}
    assert shown == real


def test_it_names_every_policy_and_no_other() -> None:
    assert set(rows("Limits")) - {"policy"} == set(get_args(ProviderConfig.model_fields["policy"].annotation))
    assert set(rows("Limits")) - {"policy"} == set(plugins.names(policies.__name__))


def test_it_names_every_fault_with_its_parameters_and_no_other() -> None:
    shown = rows("Faults")
    assert set(shown) == set(faults.kinds())
    for kind, row in shown.items():
        own = set(faults.of_kind(kind).model_fields) - set(faults.Fault.model_fields)
        cell = row.split("|")[2]
        assert set(re.findall(r"`([a-z_]+)`", cell)) == own, kind


@pytest.mark.parametrize("model", [ProviderConfig, LatencyConfig, FaultSpec], ids=lambda m: m.__name__)
def test_it_names_every_setting(model: type[BaseModel]) -> None:
    prefix = "latency." if model is LatencyConfig else ""
    names = {f"{prefix}{name}" for name in model.model_fields} - {"latency"}
    assert names - NAMED == set()


def test_it_names_every_option_and_no_other() -> None:
    options = {option for action in _parser()._actions for option in action.option_strings}
    shown = set(re.findall(r"`(--[a-z-]+)`", README))
    assert shown == {option for option in options if option.startswith("--")} - {"--help"}


def test_it_names_every_field_of_the_ledger() -> None:
    assert set(Entry.__struct_fields__) - NAMED == set()
    assert set(Counts.__struct_fields__) - NAMED == set()
    assert {str(ending) for ending in Ending} - NAMED == set()
