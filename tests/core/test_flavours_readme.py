"""What profiles/README.md says of flavours is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentload import flavours, targets

README = (Path(__file__).parents[2] / "profiles" / "README.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([a-z]+):` \| (.*) \|$", README, re.MULTILINE))


def test_it_names_every_flavour_and_every_key_that_one_brings() -> None:
    shown = set(re.findall(r"`([a-z-]+)`", ROWS["flavour"]))
    assert set(flavours.SEAM.names()) <= shown
    keys = {key for name in flavours.SEAM.names() for key in flavours.SEAM.get(name).model_fields}
    assert keys - ROWS.keys() == {"poll_s"}
    assert "`poll_s: " in ROWS["background"]


@pytest.mark.parametrize("name", ["jobs", "http"])
def test_its_examples_are_read_and_name_every_key(name: str, tmp_path: Path) -> None:
    example = max(re.findall(r"`(\{.*?\})`", ROWS[name]), key=len)
    (tmp_path / "gw.yaml").write_text(
        f"base_url: http://localhost\nflavour: {name}\npath: /x\n{name}: {example}\n"
    )
    api = targets.load(str(tmp_path / "gw.yaml"), {}).api
    section = getattr(api, name)
    assert set(type(section).model_fields) - section.model_fields_set <= {"input_tokens"}
