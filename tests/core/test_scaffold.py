"""`agentload init`: files that can be used as they are, and nothing overwritten."""

from __future__ import annotations

import ast
from pathlib import Path, PurePosixPath

import pytest
import yaml

from agentload import scaffold, targets
from agentload.errors import UsageError
from agentload.scaffold import PRESETS, WORKFLOW, init, render

EVERY = pytest.mark.parametrize("preset", PRESETS)


@EVERY
def test_the_target_file_is_one(preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(init(preset, tmp_path, port=8123, provider_port=9123))
    monkeypatch.chdir(tmp_path)
    target = targets.load("target.yaml", {})
    assert (target.port, target.path, target.provider.listens) == (
        8123,
        "/v1/chat/completions",
        "127.0.0.1:9123",
    )
    target.check_tenants([("quiet-1", "standard")])
    assert dict(target.standing_headers("quiet-1", "standard", "", 0))["Authorization"] == "Bearer quiet-1"


@EVERY
def test_the_workflow_starts_the_gateway_and_gates_it(preset: str) -> None:
    workflow = yaml.safe_load(render(preset)[WORKFLOW])
    steps = [step.get("run", "") for step in workflow["jobs"]["gate"]["steps"]]
    [gate] = [step for step in steps if "agentload gate --profiles" in step]
    assert "--target target.yaml" in gate
    assert PRESETS[preset].start.split()[0] in gate


@EVERY
def test_no_placeholder_is_left(preset: str) -> None:
    for path, text in render(preset, 8123, 9123).items():
        for name in ("PORT", "PROVIDER_PORT", "ABOUT", "HEADERS", "INSTALL", "START"):
            assert f"@{name}@" not in text, path


@pytest.mark.parametrize(
    ("preset", "config"),
    [
        ("nginx", "nginx.conf"),
        ("haproxy", "haproxy.cfg"),
        ("envoy", "envoy.yaml"),
        ("litellm", "litellm.yaml"),
    ],
)
def test_a_gateway_of_a_preset_calls_our_provider(preset: str, config: str) -> None:
    text = render(preset, 8123, 9123)[PurePosixPath(config)]
    assert "9123" in text
    assert "8123" in text
    assert "0.0.0.0" not in text, "loopback only"


def test_the_configurations_are_what_they_say() -> None:
    assert yaml.safe_load(render("envoy")[PurePosixPath("envoy.yaml")])["static_resources"]
    assert yaml.safe_load(render("litellm")[PurePosixPath("litellm.yaml")])["model_list"]
    ast.parse(render("litellm")[PurePosixPath("tenants.py")])


@pytest.mark.parametrize("there", ["target.yaml", "nginx.conf", str(WORKFLOW)])
def test_nothing_is_overwritten_and_then_nothing_is_written(there: str, tmp_path: Path) -> None:
    mine = tmp_path / there
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(UsageError, match=f"exists already: .*{mine.name}"):
        list(init("nginx", tmp_path))
    assert mine.read_text() == "mine"
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [mine]


def test_a_link_that_leads_nowhere_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "target.yaml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="exists already"):
        list(init("plain", tmp_path))
    assert not (tmp_path / "elsewhere").exists()


def test_an_unknown_preset_is_one_line() -> None:
    with pytest.raises(UsageError) as raised:
        render("apache")
    assert raised.value.lines == ("--preset apache: unknown; one of plain, nginx, haproxy, envoy, litellm",)


def test_every_preset_folder_has_an_entry() -> None:
    folders = {one.name for one in (Path(scaffold.__file__).parent / "presets").iterdir() if one.is_dir()}
    assert folders == set(PRESETS) - {"plain"}
