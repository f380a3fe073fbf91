"""Where something stands in a JSON document: `result.choices.0.message.content`."""

from __future__ import annotations

from typing import Any, cast

_MOST_STEPS = 32
_MOST = 10**18
"""Larger numbers are not put into words."""


def place(text: str) -> str:
    """The text, if it is a place: keys and indexes with dots between them. Raises ValueError."""
    steps = text.split(".")
    if not all(steps) or len(steps) > _MOST_STEPS:
        raise ValueError("must be a place in the answer such as choices.0.message.content")
    return text


def at(data: object, place: str) -> object:
    """What stands there; None where nothing does. An index may count from the end (`-1`)."""
    for step in place.split("."):
        if isinstance(data, dict):
            data = cast("dict[str, Any]", data).get(step)
        elif isinstance(data, list):
            data = _item(data, step)
        else:
            return None
    return data


def text_at(data: object, place: str) -> str | None:
    """The same as text: words as they are, numbers and truth values as JSON writes them."""
    value = at(data, place)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) > _MOST:
        return None
    return str(value) if isinstance(value, str | int | float) else None


def count_at(data: object, place: str) -> int | None:
    """The same as a whole number."""
    value = at(data, place)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number_at(data: object, place: str) -> float | None:
    """The same as a finite number."""
    value = at(data, place)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST
    return float(value) if is_number and isinstance(value, int | float) else None


def _item(items: list[Any], step: str) -> object:
    digits = step.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 7):
        return None
    index = int(step)
    return items[index] if -len(items) <= index < len(items) else None
