"""Keys that came from the environment, kept out of what is copied from a target's answers. Pure.

A gateway under test may say anything, also the key that it was sent: in Retry-After, in the reason of a
refusal, in the body of an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from agentload.redaction import BLANK

MIN_LENGTH = 4
"""Shorter values are no secrets, and would blank half of every message."""
MAX_REMEMBERED = 1_000
_VARIABLE = re.compile(r"\{env:((?:[A-Za-z0-9_]|\{tenant\})+)\}")
_SCHEMES = {"basic", "bearer", "digest", "token"}
_TENANT = "{tenant}"
_ANY_TENANT = "[A-Z0-9_]*"
"""What a tenant's name becomes within the name of a variable."""


class Redactor:
    """`redactor(text)`: the text with every secret in it blanked, also in other capitals."""

    def __init__(self, secrets: Iterable[str]) -> None:
        long_enough = {secret.strip().lower() for secret in secrets if len(secret.strip()) >= MIN_LENGTH}
        self._secrets = sorted(long_enough, key=lambda secret: (-len(secret), secret))
        self._remembered: dict[str, str] = {}
        """Answers repeat themselves."""

    def __call__(self, text: str) -> str:
        if not self._secrets or not text:
            return text
        known = self._remembered.get(text)
        if known is None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            known = self._remembered[text] = self._blanked(text)
        return known

    def _blanked(self, text: str) -> str:
        lower = text.lower()
        for secret in self._secrets:
            if secret in lower:
                text = re.sub(re.escape(secret), BLANK, text, flags=re.IGNORECASE)
                lower = text.lower()
        return text


def secrets(templates: Iterable[str], environment: Mapping[str, str]) -> Iterator[str]:
    """The values of all variables that the templates may name, for whatever tenant; and their parts, as of
    `Bearer KEY` in one variable."""
    for name in {name for text in templates for name in _VARIABLE.findall(text)}:
        pattern = re.compile(_ANY_TENANT.join(map(re.escape, name.split(_TENANT))))
        for variable, value in environment.items():
            if pattern.fullmatch(variable):
                yield value
                yield from (part for part in value.split() if part.lower() not in _SCHEMES)
