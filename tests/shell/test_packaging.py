"""The wheel and the editable install: what they bring, and what they must leave alone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHADOWED = ("profiles", "reports", "harness", "tests")


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(ROOT),
        cwd=folder,
    )
    return next(folder.glob("*.whl"))


@pytest.fixture
def somebodys_gateway(tmp_path: Path) -> Path:
    """A project that has packages of its own with the names of our folders."""
    for name in SHADOWED:
        package = tmp_path / "project" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"OWNER = 'their {name}'\n")
    return tmp_path / "project"


ASK = "; ".join(
    [
        f"import {', '.join(SHADOWED)}",
        f"assert all(m.OWNER.startswith('their ') for m in ({', '.join(SHADOWED)},))",
        "from agentload import profile",
        "assert 'noisy-neighbor' in profile.names(), profile.names()",
        "print(profile.load(profile.find('noisy-neighbor')).name)",
    ]
)


def test_the_wheel_has_two_top_level_names(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"agentload", "fake_provider"}


def test_the_wheel_works_beside_a_project_with_the_same_folder_names(
    wheel: Path, somebodys_gateway: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)  # what an installer does, without the scripts
    said = run(
        sys.executable, "-c", ASK, cwd=somebodys_gateway, PYTHONPATH=f"{site}{os.pathsep}{somebodys_gateway}"
    )
    assert said.strip() == "noisy-neighbor"
    where = run(
        sys.executable,
        "-c",
        "import agentload; print(agentload.__file__)",
        cwd=tmp_path,
        PYTHONPATH=str(site),
    )
    assert where.strip().startswith(str(site)), "the wheel's own code was run"


def test_the_editable_install_works_beside_a_project_with_the_same_folder_names(
    somebodys_gateway: Path,
) -> None:
    """The path order of an editable install: the checkout comes last, and its folders are no packages."""
    path = os.pathsep.join([str(somebodys_gateway), str(ROOT / "harness"), str(ROOT)])
    assert run(sys.executable, "-c", ASK, cwd=somebodys_gateway, PYTHONPATH=path).strip() == "noisy-neighbor"
    first = os.pathsep.join([str(ROOT / "harness"), str(ROOT), str(somebodys_gateway)])
    assert run(sys.executable, "-c", ASK, cwd=ROOT.parent, PYTHONPATH=first).strip() == "noisy-neighbor"
