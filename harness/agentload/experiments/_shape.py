"""The shape that a source reports, put together: expectations of measures and of their ratios."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from agentload.experiments import Column, Expectation, Found, Measures, Value
from agentload.model import Status


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
