"""A small SVG writer: elements, paths, scales and plots that stretch with the page while their text does not.

Nothing here reads a file or a clock; every text is escaped on its way in. A plot is one `<svg>` without a
viewBox whose labels sit at percentages; its curves live in a nested `<svg>` that stretches
(`preserveAspectRatio="none"`) under strokes that do not scale. So one picture serves a phone, a desktop and
paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from markupsafe import Markup, escape

SPAN = 1000
"""Width and height of the stretched coordinate system: integers, so that paths stay short."""

Value = str | int | float | None
Point = tuple[float, float]


def element(name: str, *children: str | Markup, **attributes: Value) -> Markup:
    """One element. `stroke_width` becomes `stroke-width`, `class_` becomes `class`; None leaves one out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup(f"<{name}{written}>{inside}</{name}>") if inside else Markup(f"<{name}{written}/>")


def number(value: Value) -> str:
    """A number with at most two decimals and no trailing zeros; text as it is."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"
    return str(value)


def short(value: float) -> str:
    """A number for an axis: 950, 1.2k, 384k, 1.5M; three figures at most."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


# --------------------------------------------------------------------------- scales


class Scale(Protocol):
    """Maps a value to 0..1 along an axis, and says where the ticks go."""

    def at(self, value: float) -> float:
        """The fraction of the axis, 0..1; values outside are clamped."""
        ...

    def ticks(self) -> list[tuple[float, str]]:
        """(value, label), ascending."""
        ...


def clamp(fraction: float) -> float:
    """Into 0..1."""
    return min(1.0, max(0.0, fraction))


Label = Callable[[float], str]


class Linear:
    """A linear axis from `low` to `high` with round ticks."""

    def __init__(self, low: float, high: float, label: Label = short, ticks: int = 5) -> None:
        self.low, self.high = low, high if high > low else low + 1
        self.label, self.count = label, ticks

    def at(self, value: float) -> float:
        return clamp((value - self.low) / (self.high - self.low))

    def ticks(self) -> list[tuple[float, str]]:
        step = nice_step((self.high - self.low) / self.count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [(k * step, self.label(k * step)) for k in range(first, last + 1)]


class Log:
    """A logarithmic axis over positive values, ticks at 1, 10, 100 … (on short axes 2 and 5 between them)."""

    def __init__(self, low: float, high: float, label: Label = short) -> None:
        self.low = low if low > 0 else 1e-9
        self.high = high if high > self.low else self.low * 10
        self.label = label

    def at(self, value: float) -> float:
        if value <= self.low:
            return 0.0
        return clamp(math.log(value / self.low) / math.log(self.high / self.low))

    def ticks(self) -> list[tuple[float, str]]:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        between = (1, 2, 5) if math.log10(self.high / self.low) < 2.5 else (1,)
        values = [step * 10.0**decade for decade in decades for step in between]
        fits = [v for v in values if self.low * (1 - 1e-9) <= v <= self.high * (1 + 1e-9)]
        return [(v, self.label(v)) for v in fits]


ROOM_FOR_A_LABEL = 0.2
"""Of a narrow axis."""


class Nines:
    """The percentile axis of HdrHistogram plots: 0 %, 90 %, 99 %, 99.9 % … at equal distances."""

    def __init__(self, deepest: float) -> None:
        """`deepest` is the highest share shown, e.g. 0.99; one decade of nines at least."""
        self.decades = max(1.0, -math.log10(max(1e-9, 1 - min(deepest, 1 - 1e-9))))

    def at(self, value: float) -> float:
        if value >= 1:
            return 1.0
        return clamp(-math.log10(1 - max(0.0, value)) / self.decades)

    def ticks(self) -> list[tuple[float, str]]:
        shares = [0.0, 0.5, *(1 - 10.0**-k for k in range(1, math.floor(self.decades + 1e-9) + 1))]
        ends = 1 - 10.0**-self.decades
        # Few samples end the axis far beyond the last nine: where, is said there.
        shares += [ends] if 1 - self.at(shares[-1]) > ROOM_FOR_A_LABEL else []
        digits = max(0, math.ceil(self.decades - 1e-9) - 1)
        return [
            (share, f"{math.floor(share * 10 ** (digits + 2) + 1e-6) / 10**digits:.6g}%") for share in shares
        ]


def nice_step(rough: float) -> float:
    """The smallest of 1, 2, 5 × 10ⁿ that is not below `rough`."""
    if rough <= 0 or not math.isfinite(rough):
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * (1 - 1e-9))


# --------------------------------------------------------------------------- paths


def line(points: Iterable[Point | None]) -> str:
    """Path data through points given as fractions (y upwards); None breaks the line."""
    written: list[str] = []
    pen = "M"
    for point in points:
        if point is None:
            pen = "M"
            continue
        x, y = _xy(*point)
        written.append(f"{pen}{x} {y}")
        pen = "L"
    return "".join(written)


def steps(edges: Sequence[float], heights: Sequence[float | None]) -> str:
    """Path data of values that hold from one edge to the next (one more than heights); None leaves a gap."""
    written: list[str] = []
    held = False
    for left, right, height in zip(edges, edges[1:], heights, strict=False):
        if height is None:
            held = False
            continue
        x, y = _xy(left, height)
        written.append(f"V{y}" if held else f"M{x} {y}")
        written.append(f"H{_xy(right, height)[0]}")
        held = True
    return "".join(written)


def _xy(x: float, y: float) -> tuple[int, int]:
    return round(clamp(x) * SPAN), round((1 - clamp(y)) * SPAN)


def percent(fraction: float) -> str:
    """A coordinate as a percentage."""
    return f"{number(100 * clamp(fraction))}%"


# --------------------------------------------------------------------------- plots


class Plot:
    """One pair of axes. Draw into it, then `render`.

    Style sheets must address what is inside by its own classes (`curve`, `label`, `band`, `rule`,
    `grid-line`), never through an ancestor: behind a `<use>` there is none.
    """

    def __init__(self, x: Scale, y: Scale) -> None:
        self.x, self.y = x, y
        self._behind: list[Markup] = []
        self._curves: list[Markup] = []
        self._above: list[Markup] = []

    def path(self, data: str, class_: str) -> None:
        """A curve, from `line` or `steps`."""
        if data:
            self._curves.append(element("path", d=data, class_=f"curve {class_}"))

    def band(self, start: float, end: float, class_: str, label: str = "", label_class: str = "") -> None:
        """A stretch of the x axis, drawn behind, with its name at the top."""
        left, right = self.x.at(start), self.x.at(end)
        self._behind.append(
            element(
                "rect",
                x=percent(left),
                y=0,
                width=percent(right - left),
                height="100%",
                class_=f"band {class_}",
            )
        )
        if label:
            self._above.append(
                element("text", label, x=percent(left), dx=4, y=-6, class_=f"label {label_class}".rstrip())
            )

    def note(self, at: float, label: str) -> None:
        """A word inside the axes, at the top, from an x value on."""
        if label:
            x = percent(self.x.at(at))
            self._above.append(element("text", label, x=x, dx=4, y=12, class_="label strong wide-only"))

    def rule(self, value: float, class_: str, label: str = "") -> None:
        """A horizontal line at a y value (a limit, an entitlement), named at its right end."""
        y = percent(1 - self.y.at(value))
        self._above.append(element("line", x1="0", x2="100%", y1=y, y2=y, class_=f"rule {class_}"))
        if label:
            self._above.append(
                element("text", label, x="100%", dx=-4, y=y, dy=-4, text_anchor="end", class_="label strong")
            )

    def mark(self, value: float, label: str, class_: str = "mark") -> None:
        """A vertical line at an x value, with a tooltip."""
        x = percent(self.x.at(value))
        self._above.append(
            element("line", element("title", label), x1=x, x2=x, y1="0", y2="100%", class_=class_)
        )

    def points(self, x_values: Iterable[float], y_values: Iterable[float | None]) -> list[Point | None]:
        """Data to fractions; None stays None."""
        return [
            None if y is None else (self.x.at(x), self.y.at(y))
            for x, y in zip(x_values, y_values, strict=False)
        ]

    def body(self, id_: str | None = None) -> Markup:
        """Everything inside the picture, as one group that `<use>` can show again."""
        stretched = element(
            "svg",
            *self._curves,
            viewBox=f"0 0 {SPAN} {SPAN}",
            preserveAspectRatio="none",
            width="100%",
            height="100%",
            class_="curves",
        )
        return element("g", *self._behind, *self._grid(), stretched, *self._above, id=id_)

    def render(self, finding: str, id_: str | None = None) -> Markup:
        """The picture; `finding` is what a screen reader says."""
        return picture(self.body(id_), finding)

    def _grid(self) -> list[Markup]:
        drawn: list[Markup] = []
        for value, label in self.y.ticks():
            y = percent(1 - self.y.at(value))
            drawn.append(element("line", x1="0", x2="100%", y1=y, y2=y, class_="grid-line"))
            drawn.append(element("text", label, x=-6, y=y, dy="0.32em", text_anchor="end", class_="label"))
        for value, label in self.x.ticks():
            x = percent(self.x.at(value))
            anchor = "end" if self.x.at(value) > 0.98 else "middle"  # on a phone there is no more page
            drawn.append(element("line", x1=x, x2=x, y1="100%", y2="100%", class_="grid-line"))
            drawn.append(
                element("text", label, x=x, y="100%", dy="1.4em", text_anchor=anchor, class_="label")
            )
        return drawn


def picture(body: Markup, finding: str, class_: str = "plot") -> Markup:
    """An `<svg role="img">` around a body."""
    return element("svg", body, class_=class_, role="img", aria_label=finding)


def again(id_: str, finding: str, *above: Markup) -> Markup:
    """The picture whose body has that id, shown once more with something drawn over it."""
    return picture(Markup("").join((element("use", href=f"#{id_}"), *above)), finding)
