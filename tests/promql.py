"""As much of PromQL as the alert rules use, so that they can be played without a Prometheus.

Instant vectors and numbers; `rate` and `increase` without extrapolation, which only matters for short series.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TypeAlias

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = dict[Labels, float]
Value: TypeAlias = Vector | float
_TOKEN = re.compile(r'\s*(\[\d+[smh]\]|\d+(?:\.\d+)?|[a-zA-Z_][a-zA-Z0-9_]*|"[^"]*"|!=|==|=~|[(){},=<>*/])')
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    "!=": operator.ne,
    "==": operator.eq,
}


class Series:
    """What was scraped, by name and labels: (second, value)."""

    def __init__(self) -> None:
        self.points: dict[tuple[str, Labels], list[tuple[float, float]]] = {}

    def add(self, at_s: float, name: str, labels: dict[str, str], value: float) -> None:
        self.points.setdefault((name, frozenset(labels.items())), []).append((at_s, value))

    def at(self, expression: str, at_s: float) -> Value:
        """The value of an expression at an instant."""
        return _Reader(self, at_s, _TOKEN.findall(expression)).comparison()


class _Reader:
    def __init__(self, series: Series, at_s: float, tokens: list[str]) -> None:
        self._series, self._at_s, self._tokens = series, at_s, tokens

    def comparison(self) -> Value:
        left = self._product()
        while self._tokens and self._tokens[0] in _COMPARE:
            keep = _COMPARE[self._tokens.pop(0)]
            right = self._product()
            assert isinstance(left, dict)
            left = {
                labels: value
                for labels, value in left.items()
                if (other := right.get(labels) if isinstance(right, dict) else right) is not None
                and keep(value, other)
            }
        return left

    def _product(self) -> Value:
        left = self._atom()
        while self._tokens and self._tokens[0] in "*/":
            sign = self._tokens.pop(0)
            left = _combined(left, self._atom(), operator.mul if sign == "*" else _divided)
        return left

    def _atom(self) -> Value:
        token = self._tokens.pop(0)
        if token[0].isdigit():
            return float(token)
        if token == "(":
            inner = self.comparison()
            self._expect(")")
            return inner
        if token in ("sum", "max"):
            return self._aggregate(sum if token == "sum" else max)
        if token in ("rate", "increase"):
            self._expect("(")
            name, wanted = self._selector(self._tokens.pop(0))
            span = self._tokens.pop(0)
            self._expect(")")
            over_s = int(span[1:-2]) * _SECONDS[span[-2]]
            grown = {key: _grown(points, self._at_s, over_s) for key, points in self._matching(name, wanted)}
            return {key: n / over_s if token == "rate" else n for key, n in grown.items()}
        name, wanted = self._selector(token)
        return {key: points[-1][1] for key, points in self._matching(name, wanted) if points}

    def _aggregate(self, how: Callable[[list[float]], float]) -> Vector:
        by: list[str] = []
        if self._tokens[0] == "by":
            self._tokens.pop(0)
            self._expect("(")
            while (token := self._tokens.pop(0)) != ")":
                by += [] if token == "," else [token]
        self._expect("(")
        inner = self.comparison()
        self._expect(")")
        assert isinstance(inner, dict)
        groups: dict[Labels, list[float]] = {}
        for labels, value in inner.items():
            groups.setdefault(frozenset((k, v) for k, v in labels if k in by), []).append(value)
        return {labels: how(values) for labels, values in groups.items()}

    def _selector(self, name: str) -> tuple[str, dict[str, str]]:
        wanted: dict[str, str] = {}
        if self._tokens and self._tokens[0] == "{":
            self._tokens.pop(0)
            while (token := self._tokens.pop(0)) != "}":
                if token != ",":
                    self._expect("=")
                    wanted[token] = self._tokens.pop(0).strip('"')
        return name, wanted

    def _matching(self, name: str, wanted: dict[str, str]) -> list[tuple[Labels, list[tuple[float, float]]]]:
        return [
            (labels, [point for point in points if point[0] <= self._at_s])
            for (known, labels), points in self._series.points.items()
            if known == name and wanted.items() <= dict(labels).items()
        ]

    def _expect(self, token: str) -> None:
        got = self._tokens.pop(0)
        assert got == token, f"expected {token}, got {got}"


def _divided(left: float, right: float) -> float:
    return left / right if right else float("nan")


def _combined(left: Value, right: Value, how: Callable[[float, float], float]) -> Value:
    if isinstance(left, dict) and isinstance(right, dict):
        return {labels: how(value, right[labels]) for labels, value in left.items() if labels in right}
    if isinstance(left, dict):
        assert not isinstance(right, dict)
        return {labels: how(value, right) for labels, value in left.items()}
    if isinstance(right, dict):
        return {labels: how(left, value) for labels, value in right.items()}
    return how(left, right)


def _grown(points: list[tuple[float, float]], at_s: float, over_s: float) -> float:
    within = [value for second, value in points if second > at_s - over_s]
    return within[-1] - within[0] if within else 0.0


def firing(series: Series, expression: str, for_s: float, instants: list[float]) -> list[float]:
    """The instants at which an alert fires: its expression has held since `for_s` before."""
    since: dict[Labels, float] = {}
    fires: list[float] = []
    for at_s in instants:
        found = series.at(expression, at_s)
        assert isinstance(found, dict)
        since = {labels: since.get(labels, at_s) for labels in found}
        if any(at_s - start >= for_s for start in since.values()):
            fires.append(at_s)
    return fires
