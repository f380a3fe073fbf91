"""What the README says of sizing is what the simulation says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from agentload import judge, profile
from agentload.model import Status
from agentload.simulate import simulate

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(
    r"^\$ agentload simulate (\S+) (--set .*?)\s*# (fails|passes): (\S+) ([0-9.]+) ", README, re.M
)


def test_it_shows_one_size_that_fails_and_one_that_passes() -> None:
    assert [said for _, _, said, _, _ in EXAMPLES] == ["fails", "passes"]


@pytest.mark.parametrize(("name", "options", "said", "check", "measured"), EXAMPLES, ids=["fails", "passes"])
def test_its_sizes_do_what_it_says(name: str, options: str, said: str, check: str, measured: str) -> None:
    chosen = profile.load(profile.find(name), [word for word in shlex.split(options) if word != "--set"])
    run = simulate(chosen, chosen.seed)
    verdicts = {verdict.check: verdict for verdict in judge.judge(run)}
    failed = {name for name, verdict in verdicts.items() if verdict.status is Status.FAILED}
    assert failed == ({check} if said == "fails" else set())
    assert verdicts[check].measured == pytest.approx(float(measured), abs=0.05)
    assert (profile.slots_beyond_provider(chosen) is not None) == (said == "fails")
