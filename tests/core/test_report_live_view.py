"""The views while a run goes on: cheap, never more than they are told, plain where there is no terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

import report_run
from agentload.drivers.collector import RECENT_NS
from agentload.model import NS
from agentload.report.live_view import (
    SHARES_OVER_S,
    LiveView,
    PlainView,
    RecentShares,
    plain_line,
    sparkline,
    view,
)

PROFILE = report_run.profile()


def progress(elapsed_s: float, **more: Any) -> dict[str, Any]:
    tenants = {
        "quiet-1": {
            "offered": 100,
            "answered": 90,
            "rejected": 0,
            "retries": 1,
            "in_flight": 2,
            "recent_p95_ms": 350.0,
        },
        "flood": {"offered": 4000, "answered": 800, "rejected": 2900, "retries": 0, "in_flight": 260},
    }
    return {
        "elapsed_s": elapsed_s,
        "phase": "noise",
        "scheduled": 4848,
        "issued": 4100,
        "in_flight": 262,
        "lateness_ms": {"p50": 0.4, "p99": 2.2},
        "tenants": tenants,
        "gateway": {"waiting": 250.0, "oldest_age_s": 4.2},
    } | more


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def console(width: int = 80, terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=terminal, record=True, highlight=False)


def lines_of(live: LiveView, width: int = 80) -> list[str]:
    plain = Console(file=io.StringIO(), width=width, record=True, highlight=False)
    plain.print(live.render())
    return plain.export_text().splitlines()


def test_the_picture_says_who_where_and_how() -> None:
    live = LiveView(PROFILE, console(), Clock())
    live.update(progress(20.0))
    out = lines_of(live)
    live.finish()
    assert "noisy-neighbor" in out[0]
    assert "noise" in out[0]
    assert "20/43 s" in out[0]
    assert "4,100/4,848 sent" in out[0]
    assert out[1] == "  share, p50, p95, p99: answers of the last 5 s; counts: of the whole run"
    row = next(line for line in out if "flood" in line)
    assert "2,900" in row
    assert any("waiting 250, oldest 4.20 s" in line for line in out)
    assert any("late p50 0.4 ms, p99 2.2 ms" in line for line in out)
    assert max(len(line.rstrip()) for line in out) <= 80
    assert not any("…" in line for line in out)


def test_percentiles_are_those_of_the_seconds_that_the_heading_says() -> None:
    assert SHARES_OVER_S * NS == RECENT_NS
    live = LiveView(PROFILE, console(), Clock())
    of_both = {"p50_ms": 900.0, "recent_p50_ms": 300.0, "p95_ms": 950.0, "recent_p95_ms": None}
    live.update(progress(20.0, tenants={"quiet-1": of_both, "old": {"p50_ms": 700.0}}))
    shown = "\n".join(lines_of(live))
    live.finish()
    assert "300 ms" in shown
    assert not any(f"{whole} ms" in shown for whole in (900, 950, 700))


def test_it_draws_at_most_four_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    live = LiveView(PROFILE, console(), clock)
    drawn: list[float] = []
    whole = live.render

    def counting() -> Any:
        drawn.append(clock.now_s)
        return whole()

    monkeypatch.setattr(live, "render", counting)
    for k in range(100):
        clock.now_s = k * 0.01
        live.update(progress(clock.now_s))
    live.finish()
    assert len(drawn) == 4
    assert all(later - earlier >= 0.25 for earlier, later in pairwise(drawn))


@pytest.mark.parametrize("make", [LiveView, PlainView])
def test_nothing_in_the_dict_is_needed(make: Callable[..., LiveView | PlainView]) -> None:
    shown = make(PROFILE, console())
    shown.update({})
    shown.update({"elapsed_s": -0.5})
    shown.update({"elapsed_s": 1.0, "tenants": {"stranger": {}}})
    shown.finish()
    shown.finish()


def test_updates_after_the_end_are_ignored() -> None:
    live = LiveView(PROFILE, console(), Clock())
    live.finish()
    live.update(progress(1.0))


def test_notes_stay_visible() -> None:
    live = LiveView(PROFILE, console(), Clock())
    live.update({"notes": ["worker 1 was lost: \x1b[31mkilled"]})
    live.update(progress(20.0))
    out = lines_of(live)
    live.finish()
    assert any("worker 1 was lost: \\x1b[31mkilled" in line for line in out)


def test_many_tenants_are_counted_and_few_keep_their_order() -> None:
    live = LiveView(PROFILE, console(), Clock())
    live.update(progress(1.0))
    names = [line.split()[0] for line in lines_of(live) if line.strip().startswith(("quiet", "flood"))]
    assert names == ["quiet-1", "flood"]
    live.update(progress(2.0, tenants={f"t{k}": {"offered": k} for k in range(500)}))
    out = lines_of(live)
    live.finish()
    assert any("… 490 more" in line for line in out)
    assert any("t499" in line for line in out)


def test_plain_lines_come_every_five_seconds_and_at_every_phase() -> None:
    out = console(terminal=False)
    plain = PlainView(PROFILE, out)
    for half in range(24):
        plain.update(progress(half / 2, phase="baseline" if half < 6 else "noise"))
    plain.update({"notes": ["the flood begins"]})
    plain.finish()
    lines = out.export_text().splitlines()
    assert [line.split(":")[0].split() for line in lines[:-1]] == [
        ["0.0", "s", "baseline"],
        ["3.0", "s", "noise"],
        ["8.0", "s", "noise"],
    ]
    assert lines[-1].strip() == "the flood begins"
    assert "4,100 sent, 262 in flight; answered 890, refused 2,900, retries 1; waiting 250" in lines[0]


def test_a_plain_line_leaves_out_what_is_nothing() -> None:
    calm = {
        "issued": 1_203,
        "in_flight": 12,
        "tenants": {"a": {"answered": 1_191, "rejected": 0, "retries": 0}},
    }
    calm |= {"elapsed_s": 15.0, "phase": "noise", "gateway": {"waiting": 0, "oldest_age_s": 0.0}}
    assert plain_line({**calm, "lateness_ms": {"p99": 0.4}}) == (
        "  15.0 s noise: 1,203 sent, 12 in flight; answered 1,191"
    )
    assert plain_line({**calm, "lateness_ms": {"p99": 12.0}}).endswith("answered 1,191; late p99 12 ms")


def test_the_console_decides_which_view() -> None:
    live = view(PROFILE, console(terminal=True))
    live.finish()
    assert isinstance(live, LiveView)
    assert isinstance(view(PROFILE, console(terminal=False)), PlainView)


def test_shares_are_of_the_last_seconds_and_fairness_knows_who_asked() -> None:
    shares = RecentShares({"a": 1.0, "b": 1.0})
    for second in range(21):
        answered_b = 100 * min(second, 10)
        tenants = {
            "a": {"offered": 10 * second, "answered": 10 * second},
            "b": {"offered": 100 * second, "answered": answered_b},
        }
        shares.add({"elapsed_s": float(second), "tenants": tenants})
    assert shares.answered == pytest.approx({"a": 1.0, "b": 0.0})
    assert shares.entitled == pytest.approx({"a": 0.5, "b": 0.5})


def test_sparklines() -> None:
    assert sparkline([0, 1, 2, 4]) == "▁▃▅█"
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([1], ascii_only=True) == "#"
