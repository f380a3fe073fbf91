"""YAML with a place for every value, so that an error can say `file.yaml:14:9`.

PyYAML keeps the last of two equal keys and reads `yes` as true, `1:30` as 90, `017` as 15 and `1e6` as text.
Here scalars follow YAML 1.2's core schema: only `true` and `false` are booleans, and only decimal (also `1e6`
and `10_000`), `0x` and `0o` are numbers; everything else is text. Numbers without a size (`.inf`, `.nan`) are
refused.
"""

from __future__ import annotations

from agentload.yaml_positions.builder import scalar
from agentload.yaml_positions.document import MAX_PROBLEMS, Document, Place, Problem
from agentload.yaml_positions.reader import compose, read_text
from agentload.yaml_positions.wording import Path, dotted, on_one_line, shown

__all__ = [
    "MAX_PROBLEMS",
    "Document",
    "Path",
    "Place",
    "Problem",
    "compose",
    "dotted",
    "on_one_line",
    "read_text",
    "scalar",
    "shown",
]
