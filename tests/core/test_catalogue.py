"""What is printed about plug-ins that cannot be used, and about markers."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from agentload import catalogue, plan, profile, rundir
from agentload.errors import UsageError
from agentload.registry import PLUGINS_VARIABLE, did_you_mean
from agentload.rundir import RunDir
from fake_provider.marker import Marker, encode

HALF_A_CHECK = """
from agentload.checks import Check
from agentload.model import Run, Verdict

class HalfDone(Check):
    '''Passes when it is finished.'''

    def judge(self, run: Run) -> Verdict:
        raise NotImplementedError
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(PLUGINS_VARIABLE, str(tmp_path))
    return tmp_path


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("what", "file", "text", "said"),
    [
        (
            "checks",
            "checks/half_done.py",
            HALF_A_CHECK,
            "found 0; HalfDone does not define counterexample, example, too_few",
        ),
        ("checks", "checks/half_done.py", "import nonsense_that_is_nowhere\n", "ModuleNotFoundError"),
        ("faults", "faults/half_done.py", "nothing = 1\n", "must define exactly one Fault, found 0"),
        ("profiles", "profiles/half-done.yaml", "name: half-done\n", "about: is required"),
    ],
)
def test_one_bad_plug_in_hides_none_of_the_others(
    plugins: Path, what: str, file: str, text: str, said: str
) -> None:
    usual = list(catalogue.lines(what))
    put(plugins, file, text)
    listed = list(catalogue.lines(what))
    assert len(listed) == len(usual) + 1
    (bad,) = [line for line in listed if line.startswith("half-done ")]
    assert "CANNOT BE USED" in bad
    assert said in bad
    assert not any("CANNOT BE USED" in line for line in listed if line != bad)


def test_markers_are_read_line_by_line() -> None:
    texts = [f"log {encode(Marker(7, 1, seq, 0, 16))} end" for seq in (3, 4)]
    assert list(catalogue.marker_lines([texts[0], "nothing here", texts[1]])) == [
        "run 7  tenant 1  seq 3  attempt 0  wanted output 16 tokens",
        "run 7  tenant 1  seq 4  attempt 0  wanted output 16 tokens",
    ]
    with pytest.raises(UsageError, match="no valid marker"):
        list(catalogue.marker_lines(["nothing", "at all"]))


def test_a_run_folder_names_the_tenant(tmp_path: Path) -> None:
    chosen = profile.load(profile.find("steady"))
    folder = RunDir.create("steady", datetime.now(), out=tmp_path / "run")
    folder.write_manifest(rundir.manifest_of(chosen, plan.draw(chosen, 1), "live", datetime.now()))
    texts = [encode(Marker(7, tenant, 3, 0, 16)) for tenant in (1, 99)]
    named, stranger = catalogue.marker_lines(texts, folder.path)
    assert f"tenant {chosen.tenants[1].name} " in named
    assert "tenant 99 " in stranger
    with pytest.raises(UsageError, match="no such folder"):
        list(catalogue.marker_lines(texts, tmp_path / "nowhere"))


def test_a_profile_shows_slots_that_do_not_fit() -> None:
    fitting = list(catalogue.profile_lines("steady", None, ()))
    assert "slots        provider 32, gateway shared 32" in fitting
    noisy = list(catalogue.profile_lines("noisy-neighbor", None, ()))
    assert "provider     slots 32, 153,600 tokens/min, bucket 2 s" in noisy
    assert not any(line.startswith("warning") for line in fitting)
    shown = list(catalogue.profile_lines("steady", None, ("provider.slots=8",)))
    assert any(line.startswith("warning") and "gateway.pools.shared.slots" in line for line in shown)


def test_a_check_that_is_asked_twice_is_shown_twice() -> None:
    shown = list(catalogue.profile_lines("priority-flood", None, ()))
    asked = [line.split(None, 1)[1] for line in shown if line.strip().startswith("class-borrow")]
    assert asked == [
        "classes [batch], phase alone",
        "classes [batch, standard], phase gone",
    ]


def test_a_part_of_a_name_is_enough_for_a_suggestion() -> None:
    known = ["bounded-queue", "class-floor", "eta-honest"]
    assert did_you_mean("eta", known) == " (did you mean 'eta-honest'?)"
    assert did_you_mean("zzz", known) == " (known: bounded-queue, class-floor, eta-honest)"


def test_lines_too_wide_for_the_terminal_are_folded_under_their_second_column() -> None:
    lines = ["short   fits", "a-name  one two three four five six seven-eight"]
    assert list(catalogue.fitted(lines, 30)) == [
        "short   fits",
        "a-name  one two three four",
        "        five six seven-eight",
    ]
    assert list(catalogue.fitted(["  one two three four five six"], 24)) == [
        "  one two three four",
        "  five six",
    ]
    assert list(catalogue.fitted(lines, None)) == lines
    assert list(catalogue.fitted(lines, 12)) == lines


def test_a_profile_is_shown_as_large_as_it_would_be_and_how_far_that_goes() -> None:
    shown = "\n".join(catalogue.profile_lines("herd", None, ()))
    assert "scale        from 0.5 to 1,000 (the busiest of so few returns in 100 ms may be chance)" in shown
    half = "\n".join(catalogue.profile_lines("herd", None, (), "0.5"))
    assert "scale        0.5, phases 2 × as long; can be from 0.5 to 1,000 (the busiest of so" in half
    assert "slots        provider 16, gateway shared 16" in half
    with pytest.raises(UsageError, match="here is none: say a factor"):
        list(catalogue.profile_lines("herd", None, (), "auto"))
