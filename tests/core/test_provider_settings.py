"""Settings from a file and the command line, and what a person is told when they are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fake_provider.settings import SettingsError, load, validated


def test_a_yaml_file_changed_by_settings(tmp_path: Path) -> None:
    file = tmp_path / "provider.yaml"
    file.write_text("slots: 4\nlatency:\n  first_token_ms: 50\n")
    config = load(file, ["slots=8", "latency.inter_token_ms=2.5", "models=[a, b]", "tokens_per_minute=1e5"])
    assert (config.slots, config.models, config.tokens_per_minute) == (8, ("a", "b"), 100_000)
    assert (config.latency.first_token_ms, config.latency.inter_token_ms) == (50, 2.5)


def test_a_json_file_and_an_empty_one(tmp_path: Path) -> None:
    file = tmp_path / "provider.json"
    file.write_text(json.dumps({"slots": 3}))
    assert load(file).slots == 3
    file.write_text("")
    assert load(file) == load(None)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("slots=0", "--set: slots: should be greater than or equal to 1, got 0"),
        ("slot=4", "--set: slot: no such setting (did you mean 'slots'?)"),
        (
            "latency.first_tokn_ms=4",
            "--set: latency.first_tokn_ms: no such setting (did you mean 'latency.first_token_ms'?)",
        ),
        ("slots", "--set slots: write key=value, such as --set slots=16"),
        ("seed.x=1", None),
        ("slots=[", "--set slots=[: the value is not YAML"),
    ],
)
def test_a_wrong_setting_is_explained_in_one_line(setting: str, told: str | None) -> None:
    with pytest.raises(SettingsError) as caught:
        load(None, [setting])
    assert "\n" not in str(caught.value)
    if told is not None:
        assert str(caught.value) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("slots: [", "{file}:2: "),
        ("- 1", "{file}: must hold settings (key: value), not a list"),
        (
            "slots: many",
            "{file}: slots: should be a valid integer, unable to parse string as an integer, got 'many'",
        ),
        ("slots: 0\nseed: x", "{file}: slots: should be greater than or equal to 1, got 0; seed: "),
    ],
)
def test_a_wrong_file_is_explained_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text + "\n")
    with pytest.raises(SettingsError) as caught:
        load(file)
    assert str(caught.value).startswith(told.format(file=file))
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load(tmp_path / "none.yaml")
    file = tmp_path / "binary.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="not a text file"):
        load(file)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(SettingsError, match=r"^here: faults\.0\.kind: is missing$"):
        validated({"faults": [{}]}, "here")
