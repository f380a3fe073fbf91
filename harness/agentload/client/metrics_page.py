"""A target's own gauges, read off its metrics page: Prometheus' text format, or JSON. Pure.

https://prometheus.io/docs/instrumenting/exposition_formats/; the parser is prometheus-client's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from agentload.targets._metrics import Selector, selector

_BY_VALUE: Mapping[str, Callable[[Iterable[float]], float]] = {"oldest_age_s": max}
"""How several series of one value are put together; others are added up."""


def read_page(body: bytes, series: Mapping[str, str]) -> dict[str, float]:
    """The values of `series` (what each is called → where it is) that the page holds, others left out.

    Several series that match are added up; of ages the greatest counts. Raises ValueError for no page.
    """
    text = body.decode("utf-8")
    if text.lstrip().startswith(("{", "[")):
        page = _decoded(text)
        found = {name: list(_at(page, path.split("."))) for name, path in series.items()}
    else:
        meant = {name: _selector(text_of) for name, text_of in series.items()}
        found = _in_text(text, meant)
    return {name: _BY_VALUE.get(name, math.fsum)(values) for name, values in found.items() if values}


def _in_text(text: str, meant: Mapping[str, Selector | None]) -> dict[str, list[float]]:
    """Only the lines of these series are parsed: a page may have a hundred thousand others."""
    found: dict[str, list[float]] = {name: [] for name in meant}
    names = "|".join(re.escape(one.name) for one in meant.values() if one is not None)
    lines = re.findall(rf"^(?:{names})[{{ \t].*$", text, re.MULTILINE) if names else []
    for sample in _parsed("\n".join(lines) + "\n"):
        for name, one in meant.items():
            if one is not None and one.matches(sample.name, sample.labels):
                found[name] += _number(sample.value)
    return found


def _parsed(text: str) -> list[Any]:
    """The samples. A parser that stumbles over nonsense in its own way has found nonsense."""
    try:
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (ArithmeticError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"is no page of metrics: {type(error).__name__}") from None


def _number(value: Any) -> list[float]:
    """Of what is a number, and has a size; else nothing."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return []
    try:
        return [float(value)] if math.isfinite(value) else []
    except OverflowError:
        return []


@lru_cache
def _selector(text: str) -> Selector | None:
    """None for a path into JSON, on a page that is none."""
    try:
        return selector(text)
    except ValueError:
        return None


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def _at(value: Any, path: list[str]) -> Iterator[float]:
    """The number at a dotted path; a whole number names a place in a list, `*` all of a list or mapping."""
    if not path:
        yield from _number(value)
        return
    first, rest = path[0], path[1:]
    if isinstance(value, dict) and first in value:
        yield from _at(value[first], rest)
    elif isinstance(value, list) and first.isdecimal() and len(first) < 10 and int(first) < len(value):
        yield from _at(value[int(first)], rest)
    elif first == "*" and isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _at(one, rest)
