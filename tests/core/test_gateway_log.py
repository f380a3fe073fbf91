"""The log: stable fields, one line each, and nothing of what a client said."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.gateway.driver import log
from agentload.gateway.jobs.protocol import JobEnded
from agentload.gateway.jobs.shell import log_end
from agentload.gateway.log_lines import JsonLines, TextLines
from agentload.gateway.protocol import Stop
from gateway_life import Life, core_of
from jobs_world import World, tool_step

FIELDS = [
    "ts", "level", "event", "request", "tenant", "class", "model", "attempt", "status", "outcome", "reason",
    "wait_cause", "waited_ms", "upstream_ms", "retry_after_s", "input_tokens", "output_tokens",
]  # fmt: skip


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("agentload.gateway")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_refused_failed_and_slow_requests_leave_a_line_with_the_documented_fields(lines: io.StringIO) -> None:
    life = Life(core_of(slots=1))
    for _ in range(6):
        life.arrive(0)
    life.now_ns += 10**9
    life.answer(0)  # which had not waited
    life.answer(0)  # which had
    life.feed(Stop())
    for record in life.records:
        log(record, 10**9 // 2)
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert all(list(line) == FIELDS for line in found)
    reasons = [line["reason"] for line in found]
    assert sorted(reasons) == ["ok", "shutting_down", *["tenant_queue_full"] * 3]
    assert any(line["status"] == 429 and line["retry_after_s"] >= 1 and line["wait_cause"] for line in found)
    assert "hello" not in lines.getvalue()


def test_a_quick_answer_leaves_none(lines: io.StringIO) -> None:
    life = Life(core_of())
    life.arrive(0)
    life.answer(0)
    log(life.records[0], 10**9)
    assert lines.getvalue() == ""


@given(tenant=st.text(max_size=20), message=st.text(max_size=20))
def test_nothing_that_anybody_can_name_ends_a_line(tenant: str, message: str) -> None:
    event = logging.LogRecord("agentload.gateway", logging.INFO, __file__, 1, "request", None, None)
    event.agentload_fields = {"event": "request", "tenant": tenant}
    other = logging.LogRecord("agentload.gateway", logging.WARNING, __file__, 1, "%s", (message,), None)
    for record in (event, other):
        for formatter in (JsonLines(), TextLines()):
            line = formatter.format(record)
            assert "\n" not in line
            assert "\r" not in line
    assert json.loads(JsonLines().format(event))["tenant"] == tenant
    assert json.loads(JsonLines().format(other))["message"] == message


def test_a_traceback_is_one_line_of_json() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        raised = (type(error), error, error.__traceback__)
    record = logging.LogRecord("agentload.gateway", logging.ERROR, __file__, 1, "broke", None, raised)
    assert "ValueError: first" in json.loads(JsonLines().format(record))["exception"]
    assert len(JsonLines().format(record).splitlines()) == 1


def test_a_job_that_failed_is_an_event_with_fields_too(lines: io.StringIO) -> None:
    world = World()
    job = world.accept([tool_step()], deadline_ms=150)
    world.alive.flush()
    world.advance(0.2)
    world.alive.flush()
    log_end(JobEnded(world.store.rows[job]))
    [line] = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert (line["event"], line["job"], line["state"]) == ("job", job, "expired")
    assert (line["reason"], line["steps_done"], line["steps_total"]) == ("deadline_exceeded", 0, 1)
