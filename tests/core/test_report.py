"""The formats together: all are found, all are written, and one that fails loses only itself."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

import report_run
from agentload import report
from agentload.conclusion import conclude
from agentload.errors import ExitCode, UsageError
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.model import Status
from agentload.registry import PLUGINS_VARIABLE
from agentload.report import SEAM, Result, write_all
from agentload.rundir import RunDir

FILES = {"report.json", "report.html", "junit.xml", "summary.md"}


def test_every_file_of_the_package_is_a_format_or_serves_one() -> None:
    assert {SEAM.get(name).filename for name in SEAM.names()} == FILES


def test_all_formats_are_written(tmp_path: Path) -> None:
    warnings: list[str] = []
    paths = write_all(report_run.result(), tmp_path, warnings.append).paths
    assert {path.name for path in paths} == FILES == {path.name for path in tmp_path.iterdir()}
    assert warnings == []
    assert all(path.stat().st_size > 500 for path in paths)


def test_an_empty_run_can_be_reported(tmp_path: Path) -> None:
    warnings: list[str] = []
    result = Result.of(RunBuilder(profile()).run(), [], Status.INCONCLUSIVE)
    assert len(write_all(result, tmp_path, warnings.append).paths) == len(FILES)
    assert warnings == []


def test_a_report_that_fails_loses_only_itself(tmp_path: Path) -> None:
    spoilt = msgspec.structs.replace(
        report_run.result(), summary=report_run.result().summary | {"spectrum": 5}
    )
    warnings: list[str] = []
    paths, lost = write_all(spoilt, tmp_path, warnings.append)
    assert lost is None
    assert {path.name for path in paths} == FILES - {"report.html"}
    assert len(warnings) == 1
    assert "report 'html' could not be made" in warnings[0]


def test_a_run_that_passed_and_could_not_leave_its_reports_has_not_passed(tmp_path: Path) -> None:
    said = StringIO()
    console = Console(file=said, width=80)
    assert conclude(RunDir(tmp_path), console, recorded=report_run.run()).exit_code == ExitCode.PASSED
    (tmp_path / "junit.xml").unlink()
    (tmp_path / "junit.xml" / "in-the-way").mkdir(parents=True)
    assert conclude(RunDir(tmp_path), console, recorded=report_run.run()).exit_code == ExitCode.INCONCLUSIVE
    last = said.getvalue().splitlines()[-1]
    assert last.startswith(f"not all reports could be written: {tmp_path}/junit.xml: cannot be written")


def test_a_plug_in_adds_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "one_word.py").write_text(
        "from agentload.report import Report\n"
        "class OneWord(Report):\n"
        "    filename = 'word.txt'\n"
        "    def render(self, result):\n"
        "        return result.summary['verdict'].encode()\n"
    )
    monkeypatch.setenv(PLUGINS_VARIABLE, str(tmp_path))
    (tmp_path / "out").mkdir()
    write_all(report_run.result(), tmp_path / "out")
    assert (tmp_path / "out" / "word.txt").read_text() == "passed"


def test_helpers_are_no_formats() -> None:
    with pytest.raises(UsageError, match="no report named 'svg'"):
        SEAM.get("svg")


def test_every_helper_exists() -> None:
    """A helper that was renamed would turn into a broken format, or hide a new one."""
    here = {path.stem.replace("_", "-") for path in Path(report.__file__).parent.glob("*.py")}
    assert type(SEAM).helpers <= here  # type: ignore[attr-defined]
