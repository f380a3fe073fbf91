"""Which series of a gateway's own metrics mean what. Pure; `client.metrics_page` reads a page by it.

A series is named as in Prometheus, `name{label="value",other=~"re.*"}`, or, in a JSON page, by a dotted path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import msgspec
from pydantic import Field, field_validator, model_validator

from agentload.model import Noun
from agentload.targets._urls import is_path, split_url

GAUGES = {"waiting": "waiting", "queue_age_s": "oldest_age_s", "in_flight": "in_flight"}
"""A key of `metrics:` → what the value is called in a sample, as those of the bundled gateway are."""
_KEYS = {value: key for key, value in GAUGES.items()}
_NAME = r"[A-Za-z_:][A-Za-z0-9_:]*"
_MATCHER = rf'({_NAME})\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"'
_SELECTOR = re.compile(rf"({_NAME})\s*(?:\{{\s*((?:{_MATCHER}\s*,?\s*)*)\}})?")
_STEP = r"(?:[A-Za-z0-9_-]+|\*)"
_DOTTED = re.compile(rf"{_STEP}(?:\.{_STEP})*")


def values_named(target: Mapping[str, Any]) -> frozenset[str] | None:
    """What the file of this target (`Target.to_dict`) says may be read of it, named as in samples: its gauges
    and its process's memory. None: the bundled gateway, which shows all that there is."""
    if "host" not in target:
        return None
    page: Mapping[str, Any] = target.get("metrics") or {}
    return frozenset(page.get("series", ())) | ({"resident_bytes"} if target.get("process") else set[str]())


def key_of(value: str) -> str:
    """The key of `metrics:` that names a value of a sample; others (a process's memory) as they are."""
    return _KEYS.get(value, value)


class Matcher(NamedTuple):
    """One condition on a label."""

    label: str
    operator: str
    value: str

    def holds(self, labels: dict[str, str]) -> bool:
        """A label that is not there is empty, as Prometheus has it."""
        has = labels.get(self.label, "")
        same = has == self.value if self.operator in ("=", "!=") else bool(re.fullmatch(self.value, has))
        return same is (self.operator[0] == "=")


class Selector(NamedTuple):
    """Which series are meant."""

    name: str
    matchers: tuple[Matcher, ...] = ()

    def matches(self, name: str, labels: dict[str, str]) -> bool:
        """Whether a series is one of them."""
        return name == self.name and all(matcher.holds(labels) for matcher in self.matchers)


def selector(text: str) -> Selector:
    """Raises ValueError for what names no series."""
    found = _SELECTOR.fullmatch(text.strip())
    if found is None:
        raise ValueError('must be a series such as name{label="value"}, or a dotted path into JSON')
    said = re.findall(_MATCHER, found[2] or "")
    matchers = tuple(Matcher(label, operator, _unescaped(value)) for label, operator, value in said)
    for matcher in matchers:
        _check_pattern(matcher)
    return Selector(found[1], matchers)


class MetricsSection(Noun):
    """`metrics:` of a target file."""

    url: str
    waiting: str | None = Field(default=None, min_length=1)
    queue_age_s: str | None = Field(default=None, min_length=1)
    in_flight: str | None = Field(default=None, min_length=1)

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        if is_path(url):
            return url
        if "://" not in url:
            raise ValueError("must be a path such as /metrics, or a whole URL")
        split_url(url)
        return url

    @field_validator("waiting", "queue_age_s", "in_flight")
    @classmethod
    def _is_series(cls, series: str | None) -> str | None:
        if series is not None and not _DOTTED.fullmatch(series):
            selector(series)
        return series

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.series():
            raise ValueError("needs a series for at least one of waiting, queue_age_s and in_flight")
        return self

    def page(self, root: str) -> MetricsPage:
        """As a target at that URL means it."""
        url = self.url if "://" in self.url else f"{root}{self.url}"
        return MetricsPage(url=url, series=self.series())

    def series(self) -> dict[str, str]:
        """By what the value is called in a sample."""
        said = {GAUGES[key]: getattr(self, key) for key in GAUGES}
        return {name: text for name, text in said.items() if text is not None}


class MetricsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Where they are, and which is which."""

    url: str
    """Whole."""
    series: dict[str, str]
    """What a value is called in a sample → its series, as written."""


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def _check_pattern(matcher: Matcher) -> None:
    if matcher.operator.endswith("~"):
        try:
            re.compile(matcher.value)
        except re.error as error:
            raise ValueError(
                f"{matcher.label}{matcher.operator}: is no regular expression: {error}"
            ) from None
