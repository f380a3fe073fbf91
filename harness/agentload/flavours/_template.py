"""A request's body with gaps in it: JSON whose texts hold `{prompt}`, `{max_tokens}` and the like."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from agentload.model import Arrival
from agentload.registry import did_you_mean

Values = Mapping[str, str | int | None]
KNOWN = ("prompt", "max_tokens", "model", "tenant", "class", "workflow")
_GAP = re.compile(r"\{([a-z_]+)\}")
_LEFT_OUT = object()


def check(body: dict[str, Any]) -> dict[str, Any]:
    """The body, if every gap is known and the prompt has one. Raises ValueError."""
    gaps = {name for text in _texts(body) for name in _GAP.findall(text)}
    for name in sorted(gaps - set(KNOWN)):
        known = " ".join(f"{{{one}}}" for one in KNOWN)
        raise ValueError(f"unknown placeholder {{{name}}}{did_you_mean(name, list(KNOWN))} (known: {known})")
    if "prompt" not in gaps:
        raise ValueError("must hold {prompt}: in the user's message, which tells whose request it is")
    return body


def fill(body: dict[str, Any], prompt: str, arrival: Arrival, model: str) -> dict[str, Any]:
    """The body of one request. A text that is nothing but `{max_tokens}` becomes the number; where the caller
    declares none, its field is left out."""
    values: Values = {
        "prompt": prompt,
        "max_tokens": arrival.job.declared_output_tokens,
        "model": model,
        "tenant": arrival.tenant,
        "class": arrival.service_class,
        "workflow": arrival.job.workflow,
    }
    return cast("dict[str, Any]", _filled(body, values))


def _filled(value: object, values: Values) -> object:
    if isinstance(value, dict):
        pairs = ((key, _filled(one, values)) for key, one in cast("dict[str, Any]", value).items())
        return {key: one for key, one in pairs if one is not _LEFT_OUT}
    if isinstance(value, list):
        return [one for item in value if (one := _filled(item, values)) is not _LEFT_OUT]
    return _said(value, values) if isinstance(value, str) else value


def _said(text: str, values: Values) -> object:
    whole = _GAP.fullmatch(text)
    if whole is not None:
        value = values[whole[1]]
        return _LEFT_OUT if value is None else value
    return _GAP.sub(lambda gap: str(values[gap[1]] if values[gap[1]] is not None else ""), text)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for one in cast("dict[str, Any]", value).values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value
