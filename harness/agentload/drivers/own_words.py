"""What a target says in an answer, for people: without its keys, on one line, and not much of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from agentload.drivers.probe import Reply
from agentload.redaction import without_secrets
from agentload.targets import Target

_MOST_WORDS, _MOST_PLACE = 80, 160
_PLACES = ("message", "detail", "error", "title", "msg")
"""Where APIs put a sentence for people, in an object or in one below `error`."""


def said(target: Target, reply: Reply) -> str:
    """`"No API key provided"`, as its JSON has it; empty where no sentence is where APIs put them."""
    words = _sentence(reply.fields)
    return f'"{_shown(target, words, _MOST_WORDS)}"' if words else ""


def place(target: Target, reply: Reply) -> str:
    """Where the answer points to; empty where it does not."""
    return _shown(target, reply.location, _MOST_PLACE)


def _shown(target: Target, text: str, most: int) -> str:
    """Keys go first: a key that is cut in two would not be known any more."""
    line = " ".join(str(without_secrets(target.redactor()(text))).split())
    visible = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line[: most + 1])
    return visible if len(visible) <= most else f"{visible[:most]}…"


def _sentence(answer: Mapping[str, Any]) -> str:
    error = answer.get("error")
    below = cast("Mapping[str, Any]", error) if isinstance(error, dict) else {}
    found = (one.get(name) for one in (below, answer) for name in _PLACES)
    return next((text for text in found if isinstance(text, str) and text.strip()), "")
