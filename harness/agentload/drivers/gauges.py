"""Where a run's samples come from: the bundled gateway's own page, or what a target file names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

from agentload.client.metrics_page import read_page
from agentload.drivers.plain_call import Line
from agentload.drivers.probe import MIB, Bounds
from agentload.errors import UnreachableError
from agentload.targets import Target
from agentload.targets._metrics import key_of
from agentload.targets._urls import split_url

BOUNDS = Bounds(2.0, 8 * MIB)
"""A page of a large Envoy has some megabytes."""


class Reading(NamedTuple):
    """What a gauge says."""

    values: dict[str, float]
    at_ns: int | None = None
    """When it was so, on this host's monotonic clock; None where it does not say."""


class Gauge(Protocol):
    """Anything that can be read again and again."""

    where: str
    """Its URL, as messages of `read` say it; empty where it has none."""
    names: Sequence[str]
    """Values that every reading should hold."""

    def read(self) -> Reading:
        """Raises ValueError or UnreachableError for what is no reading."""
        ...

    def close(self) -> None: ...


class OwnGauge:
    """`GET /debug/queue` of the bundled gateway: a flat JSON object, dated by its `now_ns`."""

    names: Sequence[str] = ()

    def __init__(self, url: str) -> None:
        self.where = url
        self._line, self._path = Line(url, "the gateway"), _path(url)

    def read(self) -> Reading:
        """Raises as `Gauge.read`."""
        reply = self._line.call("GET", self._path, bounds=BOUNDS)
        if reply.status != 200:
            raise UnreachableError(f"the gateway at {self.where}: answers {reply.status}")
        return _own_reading(reply.body)

    def close(self) -> None:
        self._line.close()


class PageGauge:
    """The series of a target's own metrics page."""

    def __init__(self, target: Target) -> None:
        """Of a target that has `metrics`."""
        assert target.metrics is not None
        self._series: Mapping[str, str] = target.metrics.series
        self.names: Sequence[str] = tuple(self._series)
        self.where = url = target.metrics.url
        self._line, self._path = Line(url, "the target's metrics", target.trust), _path(url)

    def read(self) -> Reading:
        """Raises as `Gauge.read`."""
        reply = self._line.call("GET", self._path, bounds=BOUNDS)
        if reply.status != 200:
            raise UnreachableError(f"the target's metrics at {self.where}: {_answered(reply.status)}")
        return Reading(read_page(reply.body, self._series))

    def close(self) -> None:
        self._line.close()


class NoGauge:
    """A target of which only the process is known."""

    where = ""
    names: Sequence[str] = ()

    def read(self) -> Reading:
        """Nothing, always."""
        return Reading({})

    def close(self) -> None: ...


def gauge_of(target: Target) -> Gauge:
    """Of somebody's gateway."""
    return NoGauge() if target.metrics is None else PageGauge(target)


def own_page(target: Target) -> dict[str, float]:
    """What its metrics page says, once; nothing of a target without. Raises UnreachableError."""
    if target.metrics is None:
        return {}
    gauge = PageGauge(target)
    try:
        return gauge.read().values
    except ValueError:
        raise UnreachableError(f"{target.metrics.url}: is neither Prometheus text nor JSON") from None
    finally:
        gauge.close()


def missing_series(target: Target) -> list[str]:
    """What the target's file names and its page does not hold, in lines. Raises UnreachableError."""
    if target.metrics is None:
        return []
    found = own_page(target)
    return [
        f"{target.metrics.url} holds no {series} ({key_of(name)}): checks that need it will be inconclusive"
        for name, series in target.metrics.series.items()
        if name not in found
    ]


def _own_reading(body: bytes) -> Reading:
    try:
        said = json.loads(body)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    if not isinstance(said, dict):
        raise ValueError("is no mapping")
    fields = cast("dict[str, Any]", said)
    dated = "now_ns" in fields
    at_ns = fields.pop("now_ns", None)
    if dated and not isinstance(at_ns, int):
        raise ValueError("now_ns is no number")
    numbers = {name: value for name, value in fields.items() if type(value) in (int, float)}
    return Reading({name: float(value) for name, value in numbers.items()}, at_ns)


def _path(url: str) -> str:
    return split_url(url).path or "/"


def _answered(status: int) -> str:
    if status in (401, 403):
        return f"answers {status}: they must be open to agentload"
    return f"answers {status}"
