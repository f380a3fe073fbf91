"""YAML with a place for every value, so that an error can say `file.yaml:14:9`.

PyYAML keeps the last of two equal keys and reads `yes` as true, `1:30` as 90, `017` as 15 and `1e6` as text.
Here scalars follow YAML 1.2's core schema: only `true` and `false` are booleans, and only decimal (also `1e6`
and `10_000`), `0x` and `0o` are numbers; everything else is text. Numbers without a size (`.inf`, `.nan`) are
refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from agentload.errors import ProfileError
from agentload.registry import did_you_mean
from fake_provider.named_file import read_whole

Path = tuple[str | int, ...]
"""A way through nested data: keys and indexes."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_BYTES = 1_000_000
_MAX_DEPTH = 32
_MAX_NODES = 200_000
_MAX_NUMBER = 10**15
_MAX_TEXT = 4 * _MAX_BYTES
"""Characters in all keys and values: an alias says a long text again in two bytes."""
_MAX_KEY = 200
"""Characters in a key: every problem below it says it again."""
MAX_PROBLEMS = 1_000
"""More are not told: they are one mistake, or no profile."""
_MAX_MESSAGE = 1_000
_MAX_WHERE = 200
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*")
_PREFIXED = re.compile(r"[-+]?0(x[0-9a-fA-F]+|o[0-7]+)")
_DECIMAL = re.compile(r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_SIZELESS = re.compile(r"[-+]?\.inf|\.nan", re.IGNORECASE)
_QUOTED = frozenset("'\"|>")
_CORE_TAGS = frozenset("tag:yaml.org,2002:" + t for t in ("str", "int", "float", "bool", "null", "timestamp"))
_IMPLICIT_TAGS = frozenset({"tag:yaml.org,2002:value", "tag:yaml.org,2002:merge"})


class Place(NamedTuple):
    """Where a value was written: a line and column of the file (from 1), or a `--set` option."""

    line: int
    column: int
    option: str | None = None

    def label(self, file: str) -> str:
        """`file.yaml:14:9`, or the option itself."""
        return f"{file}:{self.line}:{self.column}" if self.option is None else self.option


class Problem(NamedTuple):
    """One thing that is wrong, ordered as in the file (options last)."""

    place: Place
    path: Path
    message: str

    def line(self, file: str) -> str:
        """The problem as users read it: `file.yaml:14:9: tenants[1].weight: must be > 0, got -2`."""
        where = f"{_cut(dotted(self.path), _MAX_WHERE)}: " if self.path else ""
        return f"{self.place.label(file)}: {where}{_cut(self.message, _MAX_MESSAGE)}"


@dataclass
class Document:
    """A YAML document as plain data, with the place of every value and key, and the problems found so far."""

    file: str
    data: Any = None
    places: dict[Path, Place] = field(default_factory=dict[Path, Place])
    keys: dict[Path, Place] = field(default_factory=dict[Path, Place])
    problems: list[Problem] = field(default_factory=list[Problem])
    unreadable: set[Path] = field(default_factory=set[Path])
    """Where something is written that is no value: it has been complained of, and reads as nothing."""

    def get(self, path: Path) -> Any:
        """The value at a path, or None when there is none."""
        value = self.data
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def place(self, path: Path) -> Place:
        """The place of the value, or of the nearest thing around it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(1, 1))

    def complain(self, path: Path, message: str, *, at_key: bool = False) -> None:
        """Note a problem with the value (or the key) at a path; not of a value that could not be read."""
        if path in self.unreadable and not at_key:
            return
        place = self.keys.get(path) if at_key else None
        self.problems.append(Problem(place or self.place(path), path, message))

    @property
    def is_hopeless(self) -> bool:
        """So many problems have been found that no more need to be looked for."""
        return len(self.problems) >= MAX_PROBLEMS

    def raise_problems(self) -> None:
        """Raise ProfileError with one line per problem (the first 1,000), in file order, if any."""
        if self.problems:
            ordered = sorted(dict.fromkeys(self.problems), key=_in_file_order)
            lines = [problem.line(self.file) for problem in ordered[:MAX_PROBLEMS]]
            if self.is_hopeless:
                lines.append(f"{self.file}: there may be more: only {MAX_PROBLEMS} problems are told")
            raise ProfileError(*lines)

    def set(self, option: str, keys: Sequence[str], value: Any) -> None:
        """Put a value at a dotted path; list elements are named by their `name`, only key, or index."""
        place = Place(1 + max((p.line for p in self.places.values()), default=0), 1, option)
        parent = self.data
        path: Path = ()
        for key in keys[:-1]:
            parent, path = self._step(parent, path, key, place)
            if parent is None:
                return
        self._assign(parent, path, keys[-1], value, place)

    def _step(self, parent: Any, path: Path, key: str, place: Place) -> tuple[Any, Path]:
        """Go one key down, making a mapping where there is nothing yet; (None, path) after a problem."""
        part = self._part(parent, path, key, place)
        if part is None:
            return None, path
        if isinstance(parent, dict) and parent.get(part) is None:
            parent[part] = {}
            self.places[(*path, part)] = self.keys[(*path, part)] = place
        # A list of checks holds bare names and `name: {parameters}`: both are stepped into by that name.
        if isinstance(parent, list) and isinstance(parent[part], str):
            parent[part] = {parent[part]: {}}
            self.places[(*path, part, key)] = self.place((*path, part))
        child = parent[part]
        if isinstance(child, dict) and list(child) == [key] and not isinstance(child[key], str):
            return self._step(child, (*path, part), key, place)
        return child, (*path, part)

    def _part(self, parent: Any, path: Path, key: str, place: Place) -> Any:
        """The key or index that `key` means, None after a problem."""
        if isinstance(parent, dict):
            return key
        if not isinstance(parent, list):
            self.problems.append(Problem(place, path, f"holds {shown(parent)}, so it has no '{key}'"))
            return None
        names = [_name_of(element) for element in parent]
        if key in names:
            return names.index(key)
        if key.isdecimal() and len(key) < 10 and int(key) < len(parent):
            return int(key)
        known = [name for name in names if name]
        self.problems.append(Problem(place, path, f"nothing named '{key}'{did_you_mean(key, known)}"))
        return None

    def _assign(self, parent: Any, path: Path, key: str, value: Any, place: Place) -> None:
        part = self._part(parent, path, key, place)
        if part is None:
            return
        parent[part] = value
        target = (*path, part)
        for index in (self.places, self.keys):
            for known in [p for p in index if p[: len(target)] == target]:
                del index[known]
            index[target] = place


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a small UTF-8 file, or of a pipe that ends soon. Raises ProfileError, one line, else."""
    try:
        raw = read_whole(path, _MAX_BYTES)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        raise ProfileError(f"{str(path)!r}: is no file name") from None
    if b"\0" in raw:
        raise ProfileError(f"{path}: is a binary file, not YAML")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ProfileError(f"{path}:{line}: is not UTF-8 text") from None


def compose(text: str, file: str) -> Document:
    """Read one YAML document. Problems with single values are noted in the document.

    Raises ProfileError for what is not YAML at all.
    """
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        problem = _cut(str(error.problem or error.context), _MAX_MESSAGE)
        raise ProfileError(
            f"{file}:{_mark(error)}: YAML syntax: {problem}{_syntax_hint(error, text)}"
        ) from None
    except yaml.YAMLError as error:
        reason = getattr(error, "reason", None) or str(error).splitlines()[0]
        raise ProfileError(f"{file}: not YAML: {_cut(str(reason), _MAX_MESSAGE)}") from None
    except UnicodeError:
        raise ProfileError(f"{file}: not YAML: holds (or spells out in a tag) what is no character") from None
    except RecursionError:
        raise ProfileError(f"{file}: nested deeper than {_MAX_DEPTH} levels") from None
    document = Document(file)
    if node is not None:
        document.data = _Builder(document).build(node, ())
    return document


def scalar(text: str) -> Any:
    """A plain (unquoted) scalar's value. Raises ValueError for a number without a size."""
    if text.lower() in ("", "~", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _SIZELESS.fullmatch(text):
        raise ValueError(f"must be a finite number, got {text}")
    return _number(text)


def on_one_line(text: str) -> str:
    """What a user wrote, for a message: as it is, unless it would break the line or have no end."""
    text = text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"
    return text if text.isprintable() else repr(text)


def _cut(text: str, length: int) -> str:
    """A text that came out of a file, for a message: on one line, and not without end."""
    text = text if len(text) <= length else f"{text[:length]}…"
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def shown(value: object) -> str:
    """A value as a person would name it in a message."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}...'"


def dotted(path: Path) -> str:
    """`("tenants", 1, "weight")` as `tenants[1].weight`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


class _Builder:
    """Walks the composed nodes once, filling the document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._nodes = 0
        self._characters = 0

    def build(self, node: yaml.Node, path: Path) -> Any:
        """The node's value; its place is noted under `path`."""
        self._document.places[path] = _start(node)
        self._count(node)
        if len(path) > _MAX_DEPTH:  # also where an alias that contains itself ends
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
            f"{self._document.file}:{node.start_mark.line + 1}: nested deeper than {_MAX_DEPTH} levels, "
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


def _start(node: yaml.Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


def _mark(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"{mark.line + 1}:{mark.column + 1}" if mark else "1"


def _syntax_hint(error: yaml.MarkedYAMLError, text: str) -> str:
    """What is usually wrong there: libyaml names what it could not go on with."""
    mark = error.problem_mark or error.context_mark
    if mark is not None and text.split("\n")[mark.line : mark.line + 1]:
        line = text.split("\n")[mark.line]
        if "\t" in line[: len(line) - len(line.lstrip())]:
            return " (a tab: indent with spaces)"
    if "mapping values are not allowed" in str(error.problem):
        return " (is this line indented as the one above?)"
    return ""


def _name_of(element: object) -> str | None:
    """How `--set` names a list element: a bare name, its `name`, or the only key of a mapping."""
    if isinstance(element, str):
        return element
    if not isinstance(element, dict):
        return None
    name = element.get("name", next(iter(element)) if len(element) == 1 else None)
    return name if isinstance(name, str) else None


def _in_file_order(problem: Problem) -> tuple[bool, int, int, str]:
    place = problem.place
    return place.option is not None, place.line, place.column, dotted(problem.path)
