"""What profiles/README.md says is so."""

from __future__ import annotations

import re

import pytest

from agentload import arrivals, behaviours, profile, workloads
from agentload.registry import Seam

README = (profile.bundled_folder() / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)


def test_its_examples_are_profiles() -> None:
    assert EXAMPLES
    for example in EXAMPLES:
        assert profile.parse(example, "README.md").name


def test_it_lists_every_bundled_profile() -> None:
    assert (
        sorted(re.findall(r"^\| `([a-z-]+)` \|", README.split("## The smallest")[0], re.MULTILINE))
        == profile.names()
    )


@pytest.mark.parametrize("seam", [arrivals.SEAM, workloads.SEAM, behaviours.SEAM], ids=lambda seam: seam.noun)
def test_it_names_every_kind(seam: Seam[object]) -> None:
    for name in seam.names():
        assert f"`{name}`" in README or f"kind: {name}," in README


def test_the_mistake_it_shows_is_the_one_that_is_reported() -> None:
    shown = re.search(r"`my-first.yaml:(\d+:\d+): ([^`]*)`", README)
    assert shown is not None
    with pytest.raises(profile.ProfileError) as raised:
        profile.parse(EXAMPLES[0].replace("rate: 5", "rate: -5"), "my-first.yaml")
    assert raised.value.lines == (f"my-first.yaml:{shown[1]}: {shown[2]}",)
