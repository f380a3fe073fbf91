"""Profiles go by name or path; a wrong one is answered with what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload import profile
from agentload.errors import UsageError
from agentload.registry import PLUGINS_VARIABLE


def test_bundled_profiles_are_found_by_name() -> None:
    assert {"noisy-neighbor", "weighted-fair", "steady"} <= set(profile.names())
    assert profile.find("steady") == profile.bundled_folder() / "steady.yaml"


def test_an_unknown_name() -> None:
    with pytest.raises(
        UsageError, match=r"^no profile named 'noisy-neigbour' \(did you mean 'noisy-neighbor'\?\)$"
    ):
        profile.find("noisy-neigbour")


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("")
    Path("bare").write_text("")
    assert profile.find("mine.yaml") == Path("mine.yaml")
    assert profile.find(str(tmp_path / "bare")) == tmp_path / "bare"
    assert profile.find("bare") == Path("bare")
    with pytest.raises(UsageError, match=r"^min.yaml: no such file \(did you mean 'mine.yaml'\?\)$"):
        profile.find("min.yaml")
    with pytest.raises(UsageError, match=r"^/no/where.yaml: no such file$"):
        profile.find("/no/where.yaml")


def test_a_folder_of_that_name_does_not_hide_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("steady").mkdir()
    assert profile.find("steady").name == "steady.yaml"


def test_plugged_in_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "ours.yml").write_text("")
    monkeypatch.setenv(PLUGINS_VARIABLE, str(tmp_path))
    assert profile.find("ours") == tmp_path / "profiles" / "ours.yml"
    (tmp_path / "profiles" / "steady.yaml").write_text("")
    with pytest.raises(UsageError, match=r"the profile 'steady' exists already in "):
        profile.names()
