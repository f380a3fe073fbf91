"""Measures of several arms, and expectations of them: what a source reports, held against what was found.

An expectation is at least or at most a bound, with every seed; it names two arms whose exchange must make it
fail, so that none is made that holds whatever happens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from agentload.model import Status

Value = float | None
"""A measure: a number, +infinity for what never happened, None where there was too little to say."""
Measures = Mapping[str, Value]
"""By the names of the experiment's columns."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One measure of every arm."""

    name: str
    heading: str
    unit: str = ""


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the source says, and what was found here."""

    name: str
    status: Status
    measured: float | None
    """Of the seed that comes closest to breaking it; None when there was too little, or for +infinity."""
    relation: str
    """at most | at least"""
    bound: float
    published: str
    """The source's own figure, in words."""
    exchange: tuple[str, str]
    """Two arms whose exchange must make it fail."""
    unit: str = ""
    censored: bool = False
    """`measured` is +infinity."""


class Found:
    """The measures of all arms, seed by seed."""

    def __init__(self, by_seed: Sequence[Mapping[str, Measures]]) -> None:
        """`by_seed`: for each seed, arm → measures."""
        self.by_seed = by_seed

    @property
    def seeds(self) -> int:
        """How many seeds were played."""
        return len(self.by_seed)

    def values(self, arm: str, column: str) -> list[Value]:
        """One measure of one arm, a value for each seed."""
        return self.each(lambda one: one[arm][column])

    def each(self, of: Callable[[Mapping[str, Measures]], Value]) -> list[Value]:
        """Something computed for each seed from the measures of all arms."""
        return [of(one) for one in self.by_seed]

    def ratios(self, column: str, over: str, under: str) -> list[Value]:
        """A measure of arm `over` divided by that of arm `under`."""
        return self.each(lambda one: divided(one[over][column], one[under][column]))

    def exchanged(self, one: str, other: str) -> Found:
        """The same with two arms' measures exchanged: what must make an expectation fail."""
        return Found([{**seed, one: seed[other], other: seed[one]} for seed in self.by_seed])


class Shape:
    """Collects expectations in `expectations`. `against`: the arm whose exchange must make it fail."""

    def __init__(self, columns: Iterable[Column], found: Found) -> None:
        self.expectations: list[Expectation] = []
        self._columns = {column.name: column for column in columns}
        self._found = found

    def least(self, arm: str, column: str, bound: float, published: str, *, against: str) -> None:
        """A measure of an arm reaches the bound."""
        self._one(at_least, arm, column, bound, published, against)

    def most(self, arm: str, column: str, bound: float, published: str, *, against: str) -> None:
        """A measure of an arm does not exceed the bound."""
        self._one(at_most, arm, column, bound, published, against)

    def ratio_least(
        self, column: str, over: str, under: str, bound: float, published: str, *, against: str | None = None
    ) -> None:
        """A measure of arm `over` is at least `bound` times that of `under` (with which it is exchanged)."""
        self._ratio(at_least, column, (over, under), bound, published, against or under)

    def ratio_most(
        self, column: str, over: str, under: str, bound: float, published: str, *, against: str | None = None
    ) -> None:
        """A measure of arm `over` is at most `bound` times that of `under` (with which it is exchanged)."""
        self._ratio(at_most, column, (over, under), bound, published, against or under)

    def inside(
        self,
        relation: Callable[..., Expectation],
        arm: str,
        name: str,
        of: Callable[[Measures], Value],
        bound: float,
        published: str,
        *,
        against: str,
    ) -> None:
        """Something computed from the measures of one arm; `relation` is `at_least` or `at_most`."""
        values = self._found.each(lambda one: of(one[arm]))
        exchange = (arm, against)
        self.expectations.append(
            relation(f"{arm}: {name}", values, bound, published=published, exchange=exchange, unit="×")
        )

    def _one(
        self,
        relation: Callable[..., Expectation],
        arm: str,
        column: str,
        bound: float,
        published: str,
        against: str,
    ) -> None:
        shown = self._columns[column]
        values, exchange = self._found.values(arm, column), (arm, against)
        name = f"{arm}: {shown.heading}"
        self.expectations.append(
            relation(name, values, bound, published=published, exchange=exchange, unit=shown.unit)
        )

    def _ratio(
        self,
        relation: Callable[..., Expectation],
        column: str,
        arms: tuple[str, str],
        bound: float,
        published: str,
        against: str,
    ) -> None:
        over, under = arms
        values, exchange = self._found.ratios(column, over, under), (over, against)
        name = f"{over} ÷ {under}: {self._columns[column].heading}"
        self.expectations.append(
            relation(name, values, bound, published=published, exchange=exchange, unit="×")
        )


# --------------------------------------------------------------------------- one expectation


def at_least(
    name: str,
    values: Iterable[Value],
    bound: float,
    *,
    published: str,
    exchange: tuple[str, str],
    unit: str = "",
) -> Expectation:
    """Every value must reach the bound; the least of them is shown. Nothing to say: inconclusive."""
    known, complete = _known(values)
    worst = min(known, default=None)
    return _expectation(name, "at least", worst, bound, complete, published, exchange, unit)


def at_most(
    name: str,
    values: Iterable[Value],
    bound: float,
    *,
    published: str,
    exchange: tuple[str, str],
    unit: str = "",
) -> Expectation:
    """No value may exceed the bound; the largest of them is shown. Nothing to say: inconclusive."""
    known, complete = _known(values)
    worst = max(known, default=None)
    return _expectation(name, "at most", worst, bound, complete, published, exchange, unit)


def _known(values: Iterable[Value]) -> tuple[list[float], bool]:
    listed = list(values)
    known = [value for value in listed if value is not None]
    return known, bool(known) and len(known) == len(listed)


def _expectation(
    name: str,
    relation: str,
    worst: float | None,
    bound: float,
    complete: bool,
    published: str,
    exchange: tuple[str, str],
    unit: str,
) -> Expectation:
    kept = worst is not None and (worst >= bound if relation == "at least" else worst <= bound)
    if worst is not None and not kept:
        status = Status.FAILED  # what is missing could only add to it
    else:
        status = Status.PASSED if complete else Status.INCONCLUSIVE
    endless = worst is not None and math.isinf(worst)
    return Expectation(
        name=name,
        status=status,
        measured=None if endless else worst,
        relation=relation,
        bound=bound,
        published=published,
        exchange=exchange,
        unit=unit,
        censored=endless,
    )


def divided(over: Value, under: Value) -> Value:
    """A ratio, where a measure may be missing, infinite or nothing."""
    if over is None or under is None:
        return None
    if under == 0:
        return None if over == 0 else math.inf
    return None if math.isinf(over) and math.isinf(under) else over / under
