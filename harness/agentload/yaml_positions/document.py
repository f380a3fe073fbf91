"""A YAML document as plain data, with the place of everything in it and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentload.errors import ProfileError
from agentload.registry import did_you_mean
from agentload.yaml_positions.wording import MAX_MESSAGE, Path, cut, dotted, shown

MAX_PROBLEMS = 1_000
"""More are not told: they are one mistake, or no profile."""
_MAX_WHERE = 200


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
        where = f"{cut(dotted(self.path), _MAX_WHERE)}: " if self.path else ""
        return f"{self.place.label(file)}: {where}{cut(self.message, MAX_MESSAGE)}"


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
