"""From composed YAML nodes to plain data, with bounds, and scalars as YAML 1.2 has them."""

from __future__ import annotations

import re
from typing import Any

import yaml

from agentload.errors import ProfileError
from agentload.yaml_positions.document import Document, Place, Problem
from agentload.yaml_positions.wording import Path

MAX_BYTES = 1_000_000
"""In a file."""
MAX_DEPTH = 32
"""Levels of nesting."""
_MAX_NODES = 200_000
_MAX_NUMBER = 10**15
_MAX_TEXT = 4 * MAX_BYTES
"""Characters in all keys and values: an alias says a long text again in two bytes."""
_MAX_KEY = 200
"""Characters in a key: every problem below it says it again."""
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*")
_PREFIXED = re.compile(r"[-+]?0(x[0-9a-fA-F]+|o[0-7]+)")
_DECIMAL = re.compile(r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_SIZELESS = re.compile(r"[-+]?\.inf|\.nan", re.IGNORECASE)
_QUOTED = frozenset("'\"|>")
_CORE_TAGS = frozenset("tag:yaml.org,2002:" + t for t in ("str", "int", "float", "bool", "null", "timestamp"))
_IMPLICIT_TAGS = frozenset({"tag:yaml.org,2002:value", "tag:yaml.org,2002:merge"})


class Builder:
    """Walks the composed nodes once, filling the document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._nodes = 0
        self._characters = 0

    def build(self, node: yaml.Node, path: Path) -> Any:
        """The node's value; its place is noted under `path`."""
        self._document.places[path] = _start(node)
        self._count(node)
        if len(path) > MAX_DEPTH:  # also where an alias that contains itself ends
            raise self._too_much(node)
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [self.build(child, (*path, index)) for index, child in enumerate(node.value)]
        return self._scalar(node, path)

    def _count(self, node: yaml.Node) -> None:
        """Count a key or value each time it is looked at: here a bomb of aliases ends, also a merged one."""
        self._nodes += 1
        if isinstance(node, yaml.ScalarNode):
            self._characters += len(node.value)
        if self._nodes > _MAX_NODES or self._characters > _MAX_TEXT:
            raise self._too_much(node)

    def _too_much(self, node: yaml.Node) -> ProfileError:
        return ProfileError(
            f"{self._document.file}:{node.start_mark.line + 1}: nested deeper than {MAX_DEPTH} levels, "
            f"or more than {_MAX_NODES} values or {_MAX_TEXT} characters (aliases count each time)"
        )

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        built: dict[str, Any] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            self._count(key)
            if key.tag == "tag:yaml.org,2002:merge":
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
            elif not isinstance(key, yaml.ScalarNode):
                self._complain(_start(key), path, "a key must be text")
            elif len(key.value) > _MAX_KEY:
                self._complain(_start(key), path, f"a key has more than {_MAX_KEY} characters")
            elif key.value in built:
                first = self._document.keys[(*path, key.value)].line
                self._complain(_start(key), (*path, key.value), f"duplicate key (first on line {first})")
            else:
                self._document.keys[(*path, key.value)] = _start(key)
                built[key.value] = self.build(value, (*path, key.value))
        for defaults in merged:
            self._merge(defaults, path, built)
        return built

    def _merge(self, node: yaml.Node, path: Path, built: dict[str, Any]) -> None:
        """`<<: *defaults`: keys written out win over merged ones, earlier ones over later ones."""
        if not isinstance(node, yaml.MappingNode):
            self._complain(_start(node), path, "<< must be followed by a mapping")
            return
        self._count(node)
        for key, value in node.value:
            self._count(key)
            if isinstance(key, yaml.ScalarNode) and len(key.value) > _MAX_KEY:
                self._complain(_start(key), path, f"a key has more than {_MAX_KEY} characters")
            elif isinstance(key, yaml.ScalarNode) and key.value not in built:
                self._document.keys[(*path, key.value)] = _start(key)
                built[key.value] = self.build(value, (*path, key.value))

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        if not isinstance(node, yaml.ScalarNode) or node.tag not in _CORE_TAGS | _IMPLICIT_TAGS:
            self._unreadable(node, path, f"the tag {node.tag[:60]} is not supported")
            return None
        text: str = node.value
        if _NO_TEXT.search(text):
            self._unreadable(node, path, "holds characters that are no text")
            return None
        if node.style in _QUOTED:
            return text
        try:
            return scalar(text)
        except ValueError as error:
            self._unreadable(node, path, str(error))
            return None

    def _unreadable(self, node: yaml.Node, path: Path, message: str) -> None:
        self._complain(_start(node), path, message)
        self._document.unreadable.add(path)

    def _complain(self, place: Place, path: Path, message: str) -> None:
        self._document.problems.append(Problem(place, path, message))


def _start(node: yaml.Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


def scalar(text: str) -> Any:
    """A plain (unquoted) scalar's value. Raises ValueError for a number without a size."""
    if text.lower() in ("", "~", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _SIZELESS.fullmatch(text):
        raise ValueError(f"must be a finite number, got {text}")
    return _number(text)


def _number(text: str) -> int | float | str:
    """An int or float where the text is one (whole numbers written like `1e6` are ints), else the text."""
    if _PREFIXED.fullmatch(text):
        return _sized(int(text, 0), text)
    if not _DECIMAL.fullmatch(text):
        return text
    plain = text.replace("_", "")
    if _INTEGER.fullmatch(text) and len(plain) < 300:
        return _sized(int(plain), text)
    number = _sized(float(plain), text)
    return int(number) if "." not in plain and number == int(number) else number


def _sized(number: int | float, text: str) -> int | float:
    if not abs(number) <= _MAX_NUMBER:
        raise ValueError(f"must be a number up to 1e15, got {text[:40]}")
    return number
