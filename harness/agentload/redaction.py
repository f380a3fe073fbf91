"""Keeps secrets out of what is written down: keys come from the environment and must stay there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

BLANK = "***"
_SECRET_NAME = re.compile(
    r"(authorization|cookie|secret|password|credential|api[-_]?key|token|(^|[-_])key)$", re.IGNORECASE
)
_SECRET_TEXT = re.compile(
    r"""(bearer\s+|\bsk-)(?!\{)[^\s@'"]+ | (://[^/\s:@]*:)[^\s@/]+(?=@)""", re.IGNORECASE | re.VERBOSE
)
_PLACEHOLDERS = ("{env:", "{key}")
"""They name a variable, or whose key it is, instead of holding the value: worth keeping."""
_ONLY_WHOSE = re.compile(r"(bearer\s+)?\{tenant\}", re.IGNORECASE)
"""A tenant's name for its key, with nothing beside it that could be one: worth keeping, too."""


def without_secrets(value: object) -> object:
    """A copy in which what looks like a secret is `***`.

    That is: values (and the second of two strings in a pair) whose name sounds like one, bearer tokens,
    `sk-…` keys and passwords in URLs, anywhere in nested mappings and lists. `{env:NAME}`, `{key}` and a mere
    `{tenant}` stay.
    """
    if isinstance(value, Mapping):
        pairs = cast(Mapping[object, object], value)
        return {key: _named(str(key), inner) for key, inner in pairs.items()}
    if isinstance(value, list | tuple):
        items = cast(Sequence[object], value)
        if len(items) == 2 and all(isinstance(item, str) for item in items):
            return [without_secrets(items[0]), _named(str(items[0]), items[1])]
        return [without_secrets(item) for item in items]
    return _SECRET_TEXT.sub(rf"\1\2{BLANK}", value) if isinstance(value, str) else value


def sounds_secret(name: str) -> bool:
    """Whether the value of such a name (a header field's, say) is a secret, to judge by its name."""
    return _SECRET_NAME.search(name) is not None


def _named(name: str, value: object) -> object:
    kept = isinstance(value, str) and _holds_none(value)
    secret = isinstance(value, str) and value and _SECRET_NAME.search(name) and not kept
    return BLANK if secret else without_secrets(value)


def _holds_none(template: str) -> bool:
    """Whether what looks like a secret is where one is put in, and not one itself."""
    return any(name in template for name in _PLACEHOLDERS) or bool(_ONLY_WHOSE.fullmatch(template))
