"""`agentload locustfile`: the file that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentload import locustfile
from agentload.cli import app
from agentload.errors import UsageError
from agentload.order import Options
from own_users import PROFILE, written

ABOUT = "about: Planned tenants beside users of somebody's own Locust file."


def planned_only(about: str = ABOUT) -> str:
    before, _, after = PROFILE.partition("  - name: own\n")
    return before.replace(ABOUT, about) + after[after.index("checks:") :]


def test_it_is_python_that_says_whose_plan_it_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, planned_only())
    options = Options(profile="homegrown.yaml", seed=4, settings=("drain_s=2",), provider_port=19_123)
    text = locustfile.write(options, None)
    assert text is not None
    compile(text, "f.py", "exec")
    [call] = [line for line in text.splitlines() if line.startswith("Plan, Schedule = ")]
    profile, more = repr(str(tmp_path / "homegrown.yaml")), "settings=('drain_s=2',), provider_port=19123"
    assert call == f"Plan, Schedule = under_locust(profile={profile}, seed=4, {more})"
    assert "its share of 60 planned requests" in text
    assert "shorter than the plan (3 s) decides nothing" in text


def test_a_bundled_profile_keeps_its_name() -> None:
    shown = CliRunner().invoke(app, ["locustfile", "steady"]).output
    assert shown.endswith("Plan, Schedule = under_locust(profile='steady')\n")


def test_what_a_profile_says_of_itself_cannot_end_the_docstring(tmp_path: Path) -> None:
    path = written(tmp_path, planned_only('about: "x\\"\\"\\"; import os; os.abort()\\\\"'))
    text = locustfile.write(Options(profile=str(path)), None)
    assert text is not None
    compile(text, "f.py", "exec")
    assert text.count('"""') == 2


def test_nothing_is_overwritten_and_what_would_not_run_is_refused(tmp_path: Path) -> None:
    path, file = written(tmp_path, planned_only()), tmp_path / "file.py"
    assert locustfile.write(Options(profile=str(path)), file) is None
    assert "under_locust(" in file.read_text()
    with pytest.raises(UsageError, match="exists already"):
        locustfile.write(Options(profile=str(path)), file)
    with pytest.raises(UsageError, match="no profile named"):
        locustfile.write(Options(profile="nobodys"), tmp_path / "other.py")
    assert not (tmp_path / "other.py").exists()
