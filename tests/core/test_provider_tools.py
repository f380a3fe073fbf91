"""The fake tool: once per key, whatever its callers do."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fake_provider.budget import NS
from fake_provider.tools import ToolBody, ToolDesk, ToolRequest, ToolVisit


def request(key: str | None = "k", seconds: float = 1.0, **payload: Any) -> ToolRequest:
    body = ToolBody(seconds=seconds, side_effect=True, payload=payload)
    return ToolRequest(tool="save", key=key, body=body)


def play(desk: ToolDesk, visit: ToolVisit, now_ns: int) -> tuple[int, dict[str, Any]]:
    """Let time pass to the end of the call."""
    if visit.effect_due_ns is not None and visit.effect_due_ns <= now_ns:
        desk.effect(now_ns, visit)
    status, body = desk.answer(now_ns, visit)
    return status, json.loads(body)


def test_an_effect_comes_once_for_each_key() -> None:
    desk = ToolDesk()
    first = desk.arrive(0, request(ref=7))
    assert (first.effect_due_ns, first.answer_due_ns) == (NS, NS)
    joined = desk.arrive(NS // 2, request(ref=7))
    assert (joined.effect_due_ns, joined.answer_due_ns) == (None, NS)
    assert play(desk, first, NS)[1]["effect"]
    assert play(desk, joined, NS)[1] == {
        "tool": "save",
        "call": 2,
        "effect": False,
        "replayed": True,
        "ref": "7",
    }
    late = desk.arrive(5 * NS, request(ref=7))
    assert late.answer_due_ns == 5 * NS
    assert (desk.counts.calls, desk.counts.effects, desk.counts.duplicates) == (3, 1, 2)


def test_without_a_key_every_call_has_its_effect() -> None:
    desk = ToolDesk()
    for now_ns in (0, 5 * NS):
        visit = desk.arrive(now_ns, request(None, ref="a"))
        play(desk, visit, now_ns + NS)
    assert (desk.counts.effects, desk.counts.unkeyed, desk.counts.duplicates) == (2, 2, 0)
    assert [entry.ref for entry in desk.entries] == ["a", "a"]


def test_a_caller_that_leaves_does_not_stop_the_effect() -> None:
    desk = ToolDesk()
    visit = desk.arrive(0, request())
    desk.left(NS // 2, visit)
    assert visit.effect_due_ns == NS
    desk.effect(NS, visit)
    again = desk.arrive(2 * NS, request())
    assert again.replayed
    assert [(entry.ending, entry.effect_ns) for entry in desk.entries] == [("cancelled", NS), ("open", None)]


def test_it_fails_and_hangs_as_often_as_it_is_told() -> None:
    desk = ToolDesk()
    asked = request(fail_first=2, fail_status=503)
    assert [play(desk, desk.arrive(at * NS, asked), (at + 1) * NS)[0] for at in range(3)] == [503, 503, 200]
    assert (desk.counts.effects, desk.counts.failed) == (1, 2)
    hung = desk.arrive(0, request("h", hang=1))
    assert (hung.answer_due_ns, hung.effect_due_ns) == (None, NS)
    desk.effect(NS, hung)
    assert play(desk, desk.arrive(2 * NS, request("h", hang=1)), 2 * NS)[1]["replayed"]
    assert desk.arrive(0, request("for ever", hang=True)).answer_due_ns is None


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.booleans()), max_size=30))
def test_effects_are_keys_and_keyless_calls(calls: list[tuple[str | None, bool]]) -> None:
    desk, now_ns = ToolDesk(), 0
    for key, leaves in calls:
        visit = desk.arrive(now_ns, request(key))
        now_ns += NS
        if visit.effect_due_ns is not None:
            desk.effect(now_ns, visit)
        if leaves:
            desk.left(now_ns, visit)
        else:
            desk.answer(now_ns, visit)
    keys = {key for key, _ in calls if key is not None}
    assert desk.counts.effects == len(keys) + sum(key is None for key, _ in calls)
    assert desk.counts.calls == len(calls) == len(desk.entries)
