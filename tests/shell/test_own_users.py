"""What users of somebody's own code send by Locust's clients is held to the caps; streams end when read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SCENES = Path(__file__).parents[1] / "own_users_scenes.py"
STEP_MS, TOKENS = 30, 4
"""As in the scenes."""


def played(*scenes: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """By client, in a process of its own, as locust patches it."""
    command = [sys.executable, str(SCENES), *scenes]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    by_kind: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert list(by_kind) == ["plain", "fast"]
    return by_kind.items()


def test_only_the_target_this_machine_and_what_is_allowed_is_called() -> None:
    for _, found in played("hosts", "prepared"):
        refused = "is neither the target nor allowed"
        allow = f"other.example {refused}: load it only if it is yours, with --allow-host other.example"
        away = f"the target redirects to other.example, which {refused}"
        assert found["hosts"] == {
            "heard": [None, None, None, allow, away],
            "came": 4,  # one, a redirect with where it leads to, and one that leads elsewhere
            "outcomes": [["answered", None]] * 3 + [["failed", "redirect-elsewhere"]],
            "told": [
                f"own: 1 × refused: other.example {refused} (--allow-host other.example)",
                "own: 1 × no redirect to other.example followed (--allow-host other.example)",
            ],
            "open": 0,
        }
        assert found["prepared"]["inner"] == allow
        assert found["prepared"]["proxied"] == allow.replace("other.", "proxy.")
        assert found["prepared"]["came"] == 0


def test_no_more_in_any_second_and_no_more_connections_and_what_waits_for_it_is_told() -> None:
    for kind, found in played("rate", "connections", "sent_again"):
        rate, connections = found["rate"], found["connections"]
        assert rate["busiest"] <= 20
        assert rate["as_many"]
        assert rate["slowest_ms"] < 500, "what waits is no latency of the target's"
        [line] = rate["told"]
        assert line.endswith("s in all, for --max-rate: the load was the cap's, not the code's")
        assert connections["peak"] == [3, 3]
        assert connections["at_once"] <= 3, "they were sent when they had waited"
        assert connections["came"] == 12
        assert connections["outcomes"] == ["answered"]
        assert 150 <= connections["slowest_ms"] < 290
        [line] = connections["told"]
        assert line.endswith("s in all, for --max-connections: the load was the cap's, not the code's")
        assert connections["after"] == [0, 3]
        assert connections["given_way"] == 3, "idle ones are closed for the planned load's"
        assert connections["gone"] == [1, 0], "they end with their users"
        assert found["sent_again"] == {"came": 4 if kind == "fast" else 1, "records": 1}


def test_nothing_after_the_end_and_no_endless_answer_and_a_with_block_that_raises_has_its_record() -> None:
    for _, found in played("end", "long_answer", "with_blocks"):
        over = "the run has ended: nothing more is sent"
        assert found["end"] == {"heard": over, "came": 1, "told": [], "records": 1}
        assert found["long_answer"] == {
            "heard": ["the answer is longer than 5,000 bytes (--max-answer-bytes)"] * 2,
            "outcomes": [["truncated", "answer-too-large"]] * 2,
            "told": ["own: 2 × an answer was longer than --max-answer-bytes, and not heard out"],
        }
        assert found["with_blocks"] == {
            "at_once": [["failed", "KeyError: 'choices'"], ["answered", None]],
            "at_the_end": [["answered", None]],
            "open": 0,
        }


def test_a_stream_ends_when_it_has_been_read() -> None:
    for kind, found in played("streams"):
        streams = found["streams"]
        ends = {name: (record["outcome"], record["reason"]) for name, [record] in streams.items()}
        broken = {
            "plain": "ProtocolError: Response ended prematurely",
            "fast": "HTTPParseError: Incomplete response.",
        }
        assert ends == {
            "whole": ("answered", None),
            "judged": ("failed", "not what I asked for"),
            "broken_off": ("abandoned", "left"),
            "dropped": ("abandoned", "left"),
            "breaks": ("truncated", broken[kind]),
            "refused": ("rejected", "429"),
            "plain": ("answered", None),
            "other": ("answered", None),
            "killed": ("abandoned", "left"),
            "impatient": ("abandoned", "timeout"),
            "never_read": ("abandoned", "left"),
        }
        [whole], [dropped], [never] = streams["whole"], streams["dropped"], streams["never_read"]
        assert whole["stream"]
        assert whole["tokens"] == TOKENS * 25
        assert STEP_MS <= whole["first_ms"] < whole["last_ms"] < whole["ended_ms"]
        assert whole["last_ms"] >= TOKENS * STEP_MS
        assert whole["ended_ms"] >= (TOKENS + 1) * STEP_MS
        assert dropped["first_ms"] <= dropped["ended_ms"] < whole["last_ms"]
        assert never["first_ms"] is None
        assert never["ended_ms"] < 200, "that is when it was last read from"
