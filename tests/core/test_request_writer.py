"""What is sent: the same bytes as the plainest way of writing them, whatever was prepared ahead."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload import __version__, targets
from agentload.client.job_writer import JobWriter
from agentload.client.logical import AttemptStart
from agentload.client.request_writer import RequestWriter, chat_body, marker_of
from agentload.model import Arrival, Job, JobOrder
from agentload.targets import Target
from fake_provider.marker import Marker, decode, message
from fake_provider.words import count_tokens

SEQ = 4711
MARKER = Marker(run=1, tenant=2, seq=SEQ, attempt=0, output_tokens=12)


def arrival(**fields: Any) -> Arrival:
    job = Job(**{"input_tokens": 24, "output_tokens": 12, "declared_output_tokens": 48, **fields})
    return Arrival(seq=SEQ, tenant="quiet-1", service_class="standard", phase="calm", due_ns=1000, job=job)


# --------------------------------------------------------------------------- against the plainest way

jobs = st.builds(
    Job,
    input_tokens=st.integers(13, 300),
    output_tokens=st.integers(0, 65_535),
    declared_output_tokens=st.none() | st.integers(1, 10**6),
    stream=st.booleans(),
    workflow=st.sampled_from(["chat", "agent-1"]),
    tool_calls=st.integers(0, 3),
    tool_ns=st.integers(0, 10**11),
    deadline_ns=st.none() | st.integers(1, 10**11),
)
arrivals = st.builds(
    Arrival,
    seq=st.integers(0, 2**26),
    tenant=st.sampled_from(["quiet-1", "noisy"]),
    service_class=st.sampled_from(["standard", "batch"]),
    phase=st.just("calm"),
    due_ns=st.integers(0, 10**12),
    job=jobs,
    run=st.sampled_from([None, "a-run-3"]),
    model=st.sampled_from([None, "large", 'a "model"']),
)
names = st.sampled_from(["X-Tenant", "authorization", "x-attempt", "X-Workflow", "x-deadline-ms", "Host"])
texts = st.sampled_from(["{tenant}", "Bearer {env:KEY_{tenant}}", "{class}/{tenant}", "plain", "caf\xe9"])
target_values = st.builds(
    Target,
    name=st.just("t"),
    host=st.sampled_from(["127.0.0.1", "::1", "gateway"]),
    port=st.sampled_from([80, 443, 8080]),
    path=st.just("/v1/chat/completions"),
    tls=st.booleans(),
    model=st.text(max_size=12),
    templates=st.lists(st.tuples(names, texts), max_size=3).map(tuple),
    environment=st.just({"KEY_QUIET_1": "sk-1", "KEY_NOISY": "sk-2"}),
)


def written_plainly(target: Target, arrival: Arrival, marker: Marker, now_ns: int) -> bytes:
    """A dict made JSON, a list of fields made lines."""
    job = arrival.job
    content = message(marker, job.input_tokens)
    model = target.model if arrival.model is None else arrival.model
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": content}]}
    if job.declared_output_tokens is not None:
        body["max_tokens"] = job.declared_output_tokens
    if job.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    encoded = msgspec.json.encode(body)
    fields = [
        ("Host", target.authority),
        ("User-Agent", f"agentload/{__version__}"),
        ("Content-Type", "application/json"),
        ("Accept", "text/event-stream" if job.stream else "application/json"),
        ("Accept-Encoding", "identity"),
        ("Content-Length", str(len(encoded))),
        *target.headers(arrival, marker.attempt, now_ns),
    ]
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields), "", ""]
    return "\r\n".join(lines).encode("latin-1") + encoded


@settings(max_examples=150, deadline=None)
@given(target_values, st.lists(arrivals, min_size=1, max_size=4), st.integers(0, 300), st.integers(0, 10**12))
def test_requests_are_those_of_the_plainest_way(
    target: Target, sent: list[Arrival], attempt: int, now_ns: int
) -> None:
    writer = RequestWriter(target)
    for one in sent * 2:
        marker = marker_of(9, 1, one, attempt)
        assert writer.write(one, marker, now_ns) == written_plainly(target, one, marker, now_ns)


# --------------------------------------------------------------------------- what they say


@pytest.mark.parametrize(
    ("flavour", "options"),
    [
        ("openai-chat", {}),
        ("openai-responses", {}),
        ("anthropic-messages", {}),
        ("http", {"http": {"body": {"q": "{prompt}", "model": "{model}"}, "text": "text"}}),
        ("jobs", {"jobs": {"body": {"q": "{prompt}", "model": "{model}"}, "text": "text"}}),
    ],
)
def test_every_flavour_asks_for_the_model_of_the_tenant(flavour: str, options: dict[str, Any]) -> None:
    target = replace(targets.load("http://127.0.0.1:8080/v1", {}), flavour=flavour, options=options)
    named = msgspec.structs.replace(arrival(), model="large")
    for one, model in ((arrival(), "fake-model"), (named, "large")):
        body = RequestWriter(target).write(one, MARKER, 1000).partition(b"\r\n\r\n")[2]
        assert json.loads(body)["model"] == model


def test_a_durable_job_asks_for_the_model_of_its_tenant() -> None:
    named = msgspec.structs.replace(arrival(), model="large")
    order = JobOrder.model_validate({"steps": ["chat", "chat"]})
    raw = JobWriter(targets.load("http://127.0.0.1:8080/v1", {}), 1).post(named, order, 0, 1000)
    steps = json.loads(raw.partition(b"\r\n\r\n")[2])["steps"]
    assert [step["chat"]["model"] for step in steps] == ["large", "large"]


def test_a_plain_request_body() -> None:
    body = json.loads(chat_body(arrival().job, MARKER, "m"))
    [said] = body.pop("messages")
    assert body == {"model": "m", "max_tokens": 48}
    assert said["role"] == "user"
    assert count_tokens(said["content"]) == 24
    assert decode(said["content"].splitlines()[0]) == MARKER


def test_a_stream_asks_for_usage_and_an_undeclared_output_is_left_out() -> None:
    body = json.loads(chat_body(arrival(stream=True, declared_output_tokens=None).job, MARKER, "m"))
    assert "max_tokens" not in body
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


@settings(max_examples=60, deadline=None)
@given(st.integers(13, 500), st.integers(0, 2**24 - 1))
def test_prompts_are_exactly_as_long_as_planned(tokens: int, seq: int) -> None:
    marker = Marker(run=1, tenant=0, seq=seq, attempt=0, output_tokens=5)
    content = json.loads(chat_body(arrival(input_tokens=tokens).job, marker, "m"))["messages"][0]["content"]
    assert count_tokens(content) == tokens
    assert decode(content) == marker


def test_no_two_prompts_are_alike() -> None:
    markers = [
        Marker(run=1, tenant=0, seq=seq, attempt=a, output_tokens=5) for seq in range(50) for a in (0, 1)
    ]
    bodies = {chat_body(arrival().job, marker, "m") for marker in markers}
    assert len(bodies) == 100
    second_lines = {json.loads(body)["messages"][0]["content"].splitlines()[1] for body in bodies}
    assert len(second_lines) > 40


def test_markers_carry_what_fits() -> None:
    marker = marker_of(7, 3, arrival(), 900)
    assert marker == Marker(run=7, tenant=3, seq=SEQ, attempt=255, output_tokens=12)
    far = Arrival(seq=2**24 + 5, tenant="t", service_class="s", phase="p", due_ns=0, job=arrival().job)
    assert marker_of(7, 3, far, 0).seq == 5


def test_a_whole_request() -> None:
    target = targets.load("http://127.0.0.1:8080/v1", {})
    raw = RequestWriter(target).write(arrival(deadline_ns=2_000_000), MARKER, 1000)
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/chat/completions HTTP/1.1"
    fields = dict(line.split(": ", 1) for line in lines[1:])
    assert len(fields) == len(lines) - 1
    assert fields == {
        "Host": "127.0.0.1:8080",
        "User-Agent": f"agentload/{__version__}",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Content-Length": str(len(body)),
        "Authorization": "Bearer quiet-1",
        "X-Tenant": "quiet-1",
        "X-Service-Class": "standard",
        "X-Workflow": "chat",
        "X-Attempt": "0",
        "X-Deadline-Ms": "2",
    }
    assert body == chat_body(arrival().job, MARKER, "fake-model")


def test_a_client_that_names_its_requests_sends_one_key_with_every_attempt() -> None:
    writer = RequestWriter(Target(name="t", host="127.0.0.1", port=1, path="/"))

    def fields(attempt: int, **said: Any) -> dict[str, str]:
        start = AttemptStart(number=attempt, due_ns=0, timeout_at_ns=1, **said)
        marker = marker_of(0x2A, 2, arrival(), attempt)
        head = writer.write(arrival(), marker, 0, start).partition(b"\r\n\r\n")[0].decode()
        return dict(line.split(": ", 1) for line in head.split("\r\n")[1:])

    honest = [fields(attempt, sends_key=True) for attempt in range(3)]
    assert {one["Idempotency-Key"] for one in honest} == {"002a-4711"}
    assert [one["X-Attempt"] for one in honest] == ["0", "1", "2"]
    assert fields(2, sends_key=True, said_number=0)["X-Attempt"] == "0", "one that forgets"
    assert "Idempotency-Key" not in fields(0), "most send none"
