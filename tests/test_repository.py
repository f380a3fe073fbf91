"""The repository tests itself: its arrows, its README, its packaging rules."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentload import catalogue, checks, experiments, profile
from agentload.errors import ExitCode, UsageError
from agentload.scheduler import policies
from named_tests import problem

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PURE_PACKAGES = (
    "scheduler", "checks", "arrivals", "workloads", "behaviours", "gateway_faults", "drivers/simulated",
    "mutants", "evidence", "client", "experiments", "flavours",
    "gateway/dialects", "model",
)  # fmt: skip
PURE_MODULES = (
    "clock_alignment", "plan", "judge", "faults", "extensive", "profile/scale", "profile/stretch",
    "profile/capacity",
    "calibration/knee", "calibration/ramp", "calibration/demand", "calibration/decision",
    "selftest/matrix", "gateway/lifecycle", "gateway/under_way",
    "gateway/core", "gateway/envelope", "gateway/answers", "gateway/meters", "gateway/usage",
    "gateway/protocol", "gateway/failures", "gateway/comeback", "gateway/rate_limit_fields",
    "gateway/patience", "gateway/headers", "gateway/reply", "gateway/readiness", "gateway/settings",
    "gateway/jobs/model", "gateway/jobs/states", "gateway/jobs/store", "gateway/jobs/protocol",
    "gateway/books", "gateway/boundaries", "gateway/histogram", "gateway/job_figures",
    "gateway/tenant_labels", "gateway/prices", "gateway/log_lines",
    "gateway/jobs/stores/memory", "gateway/jobs/lifecycle", "gateway/jobs/core",
    "gateway/jobs/front", "gateway/jobs/desk", "gateway/jobs/lanes", "gateway/jobs/gate", "gateway/jobs/eta",
    "gateway/jobs/ends", "gateway/jobs/reader", "gateway/jobs/registry", "gateway/jobs/views",
    "gateway/jobs/figures", "gateway/jobs/counters", "gateway/jobs/wishes", "gateway/jobs/calls",
    "gateway/jobs/underway", "gateway/jobs/news", "gateway/jobs/phase", "gateway/jobs/delivery",
    "gateway/jobs/turns", "gateway/jobs/leases", "gateway/jobs/batches", "gateway/jobs/at_work",
)  # fmt: skip
PURE_PROVIDER = (
    "words",
    "marker",
    "budget",
    "reply",
    "ledger",
    "core",
    "openai",
    "openai_common",
    "openai_responses",
    "anthropic",
    "wire",
    "tools",
)
SLOW = {"locust", "gevent", "starlette", "uvicorn", "httpx", "aiohttp"}
IMPURE = SLOW | {"asyncio", "socket", "time", "threading"}


def pure_files() -> list[Path]:
    package = ROOT / "harness" / "agentload"
    files = [path for name in PURE_PACKAGES for path in sorted((package / name).rglob("*.py"))]
    files += [package / f"{name}.py" for name in PURE_MODULES]
    files += [ROOT / "fake_provider" / f"{name}.py" for name in PURE_PROVIDER]
    return files + sorted((ROOT / "fake_provider" / "faults").glob("*.py"))


@pytest.mark.parametrize("path", pure_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_pure_modules_import_no_clock_no_loop_and_no_socket(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.split(".")[0])
    assert not imported & IMPURE


def test_only_drivers_import_locust_or_gevent() -> None:
    offenders = [
        path.name
        for path in (ROOT / "harness" / "agentload").rglob("*.py")
        if re.search(r"^\s*(from|import) (locust|gevent)\b", path.read_text(encoding="utf-8"), re.MULTILINE)
        and path.parent.name != "drivers"
    ]
    assert offenders == []


@pytest.mark.parametrize("folder", ["harness", "profiles", "reports", "tests"])
def test_plain_folders_shadow_nobodys_packages(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()


def test_no_import_happens_at_help_that_costs_a_second() -> None:
    code = (
        "import sys; sys.argv = ['agentload', '--help']\n"
        "from agentload.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print(sorted({SLOW} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr.strip() == "[]"
    assert "run" in done.stdout


def test_the_readme_names_every_command() -> None:
    from agentload.cli import app

    for command in app.registered_commands:
        name = command.name or (command.callback.__name__ if command.callback else "")
        assert f"agentload {name}" in README, f"README does not show `agentload {name}`"


def test_the_readme_names_every_profile_check_and_experiment() -> None:
    for name in [*profile.names(), *checks.SEAM.names(), *experiments.SEAM.names()]:
        assert f"`{name}`" in README, f"README does not name `{name}`"


def test_the_readme_names_every_policy() -> None:
    for name in policies.SEAM.names():
        assert f"`{name}`" in README, f"README does not name `{name}`"


def test_the_readme_names_every_option_of_run() -> None:
    import typer.main

    from agentload.cli import app

    run = typer.main.get_group(app).commands["run"]  # type: ignore[attr-defined]
    for option in (name for parameter in run.params for name in parameter.opts if name.startswith("--")):
        assert f"`{option}" in README, f"README does not name {option}"


def test_readme_and_help_name_every_kind_of_thing_there_is_to_list() -> None:
    from agentload.cli import app

    with pytest.raises(UsageError) as raised:
        catalogue.lines("zzzzzzzz")
    kinds = re.findall(r"[a-z]+", str(raised.value).split("known:")[1])
    assert len(kinds) > 5
    [row] = re.findall(r"^\| `agentload list \[(.*)\]`", README, re.MULTILINE)
    assert sorted(row.split("\\|")) == kinds
    help_text = CliRunner().invoke(app, ["list", "--help"]).output
    for kind in kinds:
        assert kind in help_text


def test_no_commands_summary_is_cut_short_at_80_columns() -> None:
    from agentload.cli import app

    shown = CliRunner().invoke(app, ["--help"], terminal_width=80).output
    assert "worker" in shown
    assert "..." not in shown.split("Commands:")[1]


@pytest.mark.parametrize("code", list(ExitCode), ids=lambda code: code.name)
def test_the_readme_documents_every_exit_code(code: ExitCode) -> None:
    assert re.search(rf"^\| {int(code)} \|", README, re.MULTILINE)


def test_the_readmes_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert f"make {target}" in README
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_ci_runs_the_readmes_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_version_is_said_once() -> None:
    from agentload import __version__

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_dependency_is_justified_in_the_architecture_page() -> None:
    page = (ROOT / "harness" / "ARCHITECTURE.md").read_text(encoding="utf-8").lower()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for requirement in project["dependencies"]:
        name = re.split(r"[<>=\[ ]", requirement)[0].lower()
        assert f"`{name}`" in page, f"ARCHITECTURE.md does not say what {name} is for"


def test_no_file_tells_of_one_persons_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    here = Path(__file__).name
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.name == here or path.suffix in (".png", ".hlog") or not path.is_file():
            continue
        found = re.search(r"(?<![\w.])/(home|root|work|Users)/\w+", path.read_text(encoding="utf-8"))
        assert not found, f"{name} names {found.group(0) if found else ''}"


def test_nothing_lies_at_the_top_that_does_not_belong_there() -> None:
    """A server that a test starts in the wrong folder leaves its log and its pid."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    assert {name.partition("/")[0] for name in listed.stdout.splitlines()} == {
        ".ci", ".gitignore", "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "bench", "fake_provider",
        "harness", "profiles", "pyproject.toml", "reports", "tests",
    }  # fmt: skip


def article_rows() -> list[list[str]]:
    """The cells of the rows of "The article, step by step"."""
    page = (ROOT / "harness" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    _, _, section = page.partition("\n## The article, step by step\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if set(row[0]) != {"-"} and row[1] != "done by"]


def test_the_articles_steps_and_checklist_are_all_there() -> None:
    rows = article_rows()
    steps = [row[0].split()[0] for row in rows[:12]]
    assert steps == [str(number) for number in range(1, 13)]
    assert len(rows) == 12 + 13
    assert len({row[0] for row in rows}) == len(rows)


@pytest.mark.parametrize("row", article_rows(), ids=lambda row: row[0])
def test_what_shows_a_line_of_the_article_exists(row: list[str]) -> None:
    _, done_by, shown_by, outside = row
    for name in re.findall(r"`([\w/]+(?:\.py|\.yaml|/))`", done_by):
        assert (ROOT / "harness" / "agentload" / name).exists() or (ROOT / name).exists(), name
    tests = re.findall(r"`([^`]+)`", shown_by)
    assert tests
    assert [found for found in map(problem, tests) if found is not None] == []
    profile_name, check = re.findall(r"`([^`]+)`", outside)
    wanted = profile.load(profile.find(profile_name)).checks
    assert check in [spec.kind for spec in wanted], f"{profile_name} does not use {check}"
