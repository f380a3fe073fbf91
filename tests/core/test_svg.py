"""The SVG writer: escaping, numbers, scales, paths."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.report import svg


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=30))
@settings(max_examples=50)
def test_text_and_attributes_come_out_as_they_went_in(text: str) -> None:
    drawn = svg.element("text", text, class_=text)
    parsed = ElementTree.fromstring(drawn)
    assert (parsed.text or "") == text
    assert parsed.get("class") == text


def test_elements() -> None:
    assert svg.element("line", x1=0, x2=1.5, stroke_width=None) == '<line x1="0" x2="1.5"/>'
    assert svg.element("g", svg.element("a"), "<b>") == "<g><a/>&lt;b&gt;</g>"


@pytest.mark.parametrize(
    ("value", "written"), [(1.0, "1"), (0.125, "0.12"), (1e-9, "0"), (7, "7"), (math.inf, "0"), ("x", "x")]
)
def test_numbers_are_short(value: svg.Value, written: str) -> None:
    assert svg.number(value) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "0"), (0.25, "0.25"), (950, "950"), (1200, "1.2k"), (384_000, "384k"), (1.5e6, "1.5M")],
)
def test_short_numbers(value: float, written: str) -> None:
    assert svg.short(value) == written


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
@settings(max_examples=50)
def test_linear_ticks_are_round_few_and_inside(low: float, width: float) -> None:
    scale = svg.Linear(low, low + width)
    values = [value for value, _ in scale.ticks()]
    assert 1 <= len(values) <= 7
    assert all(scale.low - 1e-6 * width <= value <= scale.high + 1e-6 * width for value in values)
    assert values == sorted(values)


def test_scales_map_their_ends_and_clamp() -> None:
    for scale in (svg.Linear(10, 20), svg.Log(10, 20)):
        assert scale.at(10) == 0
        assert scale.at(20) == pytest.approx(1)
        assert scale.at(5) == 0
        assert scale.at(1000) == 1
    assert svg.Log(1, 100).at(10) == pytest.approx(0.5)


def test_a_scale_without_width_still_works() -> None:
    assert svg.Linear(5, 5).at(5) == 0
    assert svg.Log(0, 0).at(0) == 0


def test_log_ticks() -> None:
    assert [label for _, label in svg.Log(0.5, 2000).ticks()] == ["1", "10", "100", "1k"]
    assert [value for value, _ in svg.Log(90, 600).ticks()] == [100, 200, 500]


def test_the_axis_of_nines() -> None:
    scale = svg.Nines(0.999)
    assert [label for _, label in scale.ticks()] == ["0%", "50%", "90%", "99%", "99.9%"]
    assert [label for _, label in svg.Nines(0.9811).ticks()] == ["0%", "50%", "90%", "98.1%"], "few samples"
    assert [label for _, label in svg.Nines(0.92).ticks()] == ["0%", "50%", "90%"], "no room for another"
    assert scale.at(0.9) == pytest.approx(1 / 3)
    assert scale.at(0.99) == pytest.approx(2 / 3)
    assert scale.at(1) == 1


def test_a_line_breaks_where_there_is_nothing() -> None:
    assert svg.line([(0, 0), (0.5, 1), None, (1, 0.5)]) == "M0 1000L500 0M1000 500"
    assert svg.line([]) == ""


def test_steps_hold_each_value_to_the_next_edge() -> None:
    assert svg.steps([0, 0.5, 1], [0, 1]) == "M0 1000H500V0H1000"
    assert svg.steps([0, 0.25, 0.5, 1], [0, None, 1]) == "M0 1000H250M500 0H1000"


def test_a_plot_is_well_formed_and_says_what_it_shows() -> None:
    plot = svg.Plot(svg.Linear(0, 10), svg.Linear(0, 1))
    plot.band(0, 5, "band0", "<phase>")
    plot.path(svg.line(plot.points([0, 5, 10], [0, None, 1])), "s0")
    plot.path("", "s1")
    plot.rule(0.5, "limit", "limit")
    plot.mark(2, "here & now")
    picture = ElementTree.fromstring(plot.render("the finding", "plot-1"))
    assert picture.get("role") == "img"
    assert picture.get("aria-label") == "the finding"
    assert len(picture.findall(".//path")) == 1
    assert "<phase>" in [text.text for text in picture.findall(".//text")]
    assert picture.find(".//g[@id='plot-1']") is not None


def test_showing_a_plot_again_refers_to_it() -> None:
    again = ElementTree.fromstring(svg.again("plot-1", "finding", svg.element("line")))
    use = again.find("use")
    assert use is not None
    assert use.get("href") == "#plot-1"
    assert again.find("line") is not None
