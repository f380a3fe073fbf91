"""How a value, its place and what a user wrote are named in a message."""

from __future__ import annotations

Path = tuple[str | int, ...]
"""A way through nested data: keys and indexes."""
MAX_MESSAGE = 1_000
"""Characters of what came out of a file, in a message."""


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


def on_one_line(text: str) -> str:
    """What a user wrote, for a message: as it is, unless it would break the line or have no end."""
    text = text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…"
    return text if text.isprintable() else repr(text)


def cut(text: str, length: int) -> str:
    """A text that came out of a file, for a message: on one line, and not without end."""
    text = text if len(text) <= length else f"{text[:length]}…"
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
