"""`agentload init`: files that can be used as they are, and nothing overwritten."""

from __future__ import annotations

import ast
import shlex
import shutil
import subprocess
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


def typed(preset: str, out: Path) -> list[str]:
    """The commands that `init` prints."""
    return [line.strip() for line in init(preset, out, 8123, 9123) if line.startswith("  ")]


@EVERY
def test_what_it_says_to_type_next_is_of_files_that_are_there(preset: str, tmp_path: Path) -> None:
    folder = tmp_path / "my gateway"
    commands = typed(preset, folder)
    assert commands[-2:] == [
        f"agentload doctor --target '{folder}'/target.yaml",
        f"agentload run noisy-neighbor --target '{folder}'/target.yaml",
    ]
    words = [word for command in commands for word in shlex.split(command)]
    named = [Path(word) for word in words if word.startswith(str(tmp_path))]
    assert len(named) == (2 if preset == "plain" else 3)
    assert all(path.exists() for path in named)
    assert not any("@" in word for word in words)


def test_the_presets_own_command_is_the_one_to_type_from_elsewhere(tmp_path: Path) -> None:
    for preset, kind in PRESETS.items():
        assert bool(kind.steps) == (preset != "plain")
        if kind.steps:
            assert kind.steps[-1].replace("@DIR@/", "").replace("@DIR@", '"$PWD"') == kind.start


@pytest.mark.parametrize(("preset", "check"), [("nginx", ["-t", "-q"]), ("haproxy", ["-c", "-q"])])
def test_a_gateway_reads_its_configuration_by_that_command(
    preset: str, check: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(preset) is None:
        pytest.skip(f"no {preset} here")
    monkeypatch.chdir(tmp_path)
    command = shlex.split(typed(preset, Path("a gateway"))[0])
    subprocess.run([*command, *check], check=True, timeout=60)


def test_the_gateway_keeps_its_terminal(tmp_path: Path) -> None:
    said = list(init("haproxy", tmp_path / "h"))
    assert "next, the gateway; it stays in the foreground (^C ends it):" in said
    assert "then, in a second terminal:" in said
    yours = list(init("plain", tmp_path / "p", 8123, 9123))
    assert "next, your gateway: at http://127.0.0.1:8123, its upstream http://127.0.0.1:9123/v1" in yours


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
