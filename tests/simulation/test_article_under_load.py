"""The article's own configuration, word for word, under the loads of its rollout, in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from agentload import judge, mutants, profile
from agentload.model import Profile, Status, Verdict
from agentload.simulate import simulate
from article import ARTICLE, CLASSES


def under_the_article(folder: Path, name: str) -> Profile:
    """A bundled profile whose gateway is configured as the article says."""
    document = yaml.safe_load(profile.find(name).read_text(encoding="utf-8"))
    document["gateway"] = yaml.safe_load(ARTICLE)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return profile.load(path)


def not_passed(chosen: Profile, policy: str | None = None) -> list[str]:
    """The checks that a run does not pass."""
    run = simulate(chosen, 1, policy=policy)
    return [verdict.check for verdict in judge.judge(run) if verdict.status is not Status.PASSED]


@pytest.mark.parametrize("name", ["noisy-neighbor", "weighted-fair"])
def test_tenants_are_safe_from_each_other(tmp_path: Path, name: str) -> None:
    chosen = under_the_article(tmp_path, name)
    assert not_passed(chosen) == []
    assert not_passed(chosen, "fifo") != [], "the same numbers, in one queue for all"


def test_batch_borrows_what_is_idle_and_gives_it_back(tmp_path: Path) -> None:
    assert not_passed(under_the_article(tmp_path, "priority-flood")) == []


@pytest.mark.parametrize(
    ("name", "checks"),
    [
        # Its floors of 35 units for absent classes stand free, as it asks for: no waste for work-conserving.
        ("long-jobs", {"long-job", "weighted-share", "work-conserving", "no-starvation", "bounded-queue"}),
        ("tenant-churn", {"rebalance", "idle-credit", "weighted-share", "no-starvation", "bounded-queue"}),
    ],
)
def test_long_jobs_and_changing_demand(tmp_path: Path, name: str, checks: set[str]) -> None:
    chosen = under_the_article(tmp_path, name)
    assert checks <= {spec.kind for spec in chosen.checks}
    assert not checks & set(not_passed(chosen))


def idleness(folder: Path, seed: int, mutant: str | None = None) -> Verdict:
    """What `work-conserving` says where the article's classes share the pool of `long-jobs`, of 7.02 units:
    its floors leave 65 % of them, and these are gone before the slots are."""
    document = yaml.safe_load(profile.find("long-jobs").read_text(encoding="utf-8"))
    pool = document["gateway"]["pools"]["shared"]
    pool["classes"] = {
        name: {"nominal_share": share, "min_units": pool["capacity_units"] * units / 100, "max_queue": queue}
        for name, (share, units, queue) in CLASSES.items()
    }
    path = folder / "narrow.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    run = simulate(profile.load(path), seed, parts=mutants.parts_of(mutant) if mutant else None)
    return next(verdict for verdict in judge.judge(run) if verdict.check == "work-conserving")


def test_slots_that_no_units_are_left_for_are_no_waste(tmp_path: Path) -> None:
    sound = idleness(tmp_path, 9)
    assert (sound.status, sound.measured) == (Status.PASSED, pytest.approx(0, abs=0.5))
    assert sound.details["waited_s"] > 20, "and there was enough to judge"


def test_where_units_bind_a_gateway_that_polls_is_noticed_all_the_same(tmp_path: Path) -> None:
    assert idleness(tmp_path, 1, "polls-for-free-slots").status is Status.FAILED
