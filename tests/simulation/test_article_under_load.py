"""The article's own configuration, word for word, under the loads of its rollout, in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from agentload import judge, profile
from agentload.model import Profile, Status
from agentload.simulate import simulate
from article import ARTICLE


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
        # (Not work-conserving: its floors of 35 units for absent classes stand free, as it asks for.)
        ("long-jobs", {"long-job", "weighted-share", "no-starvation", "bounded-queue"}),
        ("tenant-churn", {"rebalance", "idle-credit", "weighted-share", "no-starvation", "bounded-queue"}),
    ],
)
def test_long_jobs_and_changing_demand(tmp_path: Path, name: str, checks: set[str]) -> None:
    chosen = under_the_article(tmp_path, name)
    assert checks <= {spec.kind for spec in chosen.checks}
    assert not checks & set(not_passed(chosen))
