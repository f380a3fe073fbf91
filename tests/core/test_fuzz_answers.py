"""Thousands of malformed answers: each ends in an outcome that its reader names."""

from __future__ import annotations

import json
from math import isfinite
from random import Random
from typing import Any

import msgspec
import pytest

from agentload import behaviours, flavours
from agentload.client.job_pursuit import JobPursuit, JobReply
from agentload.client.job_words import words_of
from agentload.client.job_writer import JobWriter
from agentload.client.logical import AttemptStart, LogicalRequest
from agentload.client.polling import Heard, Polling
from agentload.client.polling import Kind as AskKind
from agentload.client.wire import Ending, ReplyReader, RequestWriter
from agentload.drivers.http1_answer import MAX_HEAD_BYTES, Answer
from agentload.gateway import failures
from agentload.gateway.answers import retry_after_ns
from agentload.gateway.jobs.ends import of_tool
from agentload.gateway.jobs.protocol import ToolAnswered
from agentload.gateway.reply import UpstreamReply
from agentload.model import NS, Arrival, Job, JobOrder, JobStep, Outcome, RequestRecord
from agentload.targets import Target, bundled
from dialect_samples import ALL, DELTAS, ENDINGS, ERRORS, OPENINGS, WHOLE
from fuzzing import HTTP_SCRAPS, peak_kib, pieces, spoilt

CHAT = {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": "#7# one two"}}]}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3}
CHUNKS = [
    {"id": "c", "choices": [{"index": 0, "delta": {"content": "one "}, "finish_reason": None}]},
    {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [{"function": {"arguments": "{}"}}]}}]},
    {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"id": "c", "choices": [], "usage": USAGE},
]
STREAM = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in CHUNKS) + b"data: [DONE]\n\n"
PLAIN = json.dumps(CHAT | {"usage": USAGE}).encode()
ERROR = json.dumps(
    {"error": {"message": "slow down", "type": "rate", "code": "rate_limit_exceeded"}}
).encode()
JOB = json.dumps(
    {
        "id": "job_1", "state": "completed", "position": 3, "eta_s": 4.5, "ended_ms": 17, "attempts": 1,
        "results": [{"step": 0, "kind": "tool", "output": {"call": 1}}],
    }
).encode()  # fmt: skip
RESPONSE = {
    "id": "resp_1",
    "status": "completed",
    "error": None,
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "#7# one two"}]}],
    "usage": {"input_tokens": 7, "output_tokens": 3},
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "content": [{"type": "text", "text": "#7# one two"}],
    "stop_reason": None,
    "usage": {"input_tokens": 7, "cache_read_input_tokens": 1, "output_tokens": 3},
}
TYPED = {
    "openai-responses": [
        {"type": "response.created", "response": RESPONSE | {"status": "in_progress", "usage": None}},
        {"type": "response.output_text.delta", "delta": "one "},
        {"type": "error", "code": "server_error", "message": "no", "param": None},
        {"type": "response.failed", "response": RESPONSE | {"error": {"code": "server_error"}}},
        {"type": "response.completed", "response": RESPONSE},
    ],
    "anthropic-messages": [
        {"type": "message_start", "message": MESSAGE},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "one "}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        {"type": "message_stop"},
    ],
}  # fmt: skip


def stream_of(events: list[dict[str, Any]]) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)


BODIES_OF = {
    name: [json.dumps(whole).encode(), stream_of(events), stream_of([*events[:2], events[-1]])]
    for (name, events), whole in zip(TYPED.items(), (RESPONSE, MESSAGE), strict=True)
}
"""Of flavours that do not answer as chat does: whole, with errors in it, and as it should be."""
BODIES = [STREAM, STREAM.replace(b"\n", b"\r\n"), PLAIN, ERROR, b"event: error\ndata: " + ERROR + b"\n\n"]
DIALECTS = [
    part
    for one in ALL
    for part in (
        OPENINGS[one] + DELTAS[one]("one two") + ENDINGS[one],
        DELTAS[one]("one") + ERRORS[one][0],
        json.dumps(WHOLE[one]).encode(),
    )
]
"""What a provider may send in each of the gateway's dialects."""
OK = b"HTTP/1.1 200 OK\r\nContent-Type: "
HEADS = [
    OK + b"text/event-stream\r\nServer-Timing: queue;dur=1.5;desc=\"wait\"\r\n",
    OK + b"application/json\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\n",
    b"HTTP/1.1 429 Too Many\r\nRetry-After: Mon, 01 Jan 2024 00:00:09 GMT\r\nX-Admission-Reason: full\r\n",
    b"HTTP/1.1 503 Busy\r\nretry-after: 3\r\nretry-after-ms: 2500\r\nx-should-retry: true\r\n",
]  # fmt: skip
RUNS = pytest.mark.parametrize(
    "count",
    [1_000, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])],
)
MOST_KIB = 256 * 1024


def framed(head: bytes, body: bytes) -> list[bytes]:
    """The answer with each of the three framings."""
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:9], body[9:]))
    return [
        head + b"Content-Length: %d\r\n\r\n" % len(body) + body,
        head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked + b"0\r\nX-Trailer: 1\r\n\r\n",
        head + b"\r\n" + body,
    ]


def answers(bodies: list[bytes]) -> list[bytes]:
    return [answer for head in HEADS for body in bodies for answer in framed(head, body)]


PLACED = {
    "body": {"q": "{prompt}"},
    "text": "choices.0.message.content",
    "input_tokens": "usage.prompt_tokens",
}
OPTIONS: dict[str, dict[str, object]] = {"http": {"http": PLACED}, "jobs": {"jobs": {"text": PLACED["text"]}}}
SPOKEN = {
    name: flavours.SEAM.get(name).model_validate(OPTIONS.get(name, {})) for name in flavours.SEAM.names()
}
ARRIVAL = Arrival(
    seq=7, tenant="a", service_class="standard", phase="load", due_ns=NS,
    job=Job(input_tokens=24, output_tokens=10, declared_output_tokens=48, stream=False),
)  # fmt: skip
BEHAVIOURS = [made for name in behaviours.SEAM.names() if (made := behaviours.SEAM.get(name)) is not None]


def heard(data: bytes, random: Random, reader: ReplyReader) -> tuple[Ending, str | None]:
    """The answer over the wire's parser into the reader, as the thin client does it."""
    answer, announced, now_ns = Answer(), False, NS
    for piece in [*pieces(data, random), b""]:
        now_ns += 1000
        if piece:
            answer.feed(piece)
        else:
            answer.end_of_stream()
        if answer.has_head and not announced:
            announced = True
            reader.head(answer.status, answer.headers, 1.7e9)
        chunks, answer.chunks = answer.chunks, []
        for chunk in chunks:
            reader.feed(chunk, now_ns)
        if reader.is_whole or answer.complete:
            return Ending.COMPLETE, None
        if answer.error is not None:
            return Ending.CUT, answer.error.failure.value
    raise AssertionError("an answer that is over is either complete or has an error")


@RUNS
@pytest.mark.parametrize("name", SPOKEN)
def test_a_client_makes_an_outcome_and_a_record_of_anything(name: str, count: int) -> None:
    random, before_kib = Random(1), peak_kib()
    examples = answers([*BODIES_OF.get(name, BODIES if SPOKEN[name].streams else [PLAIN]), ERROR])
    seen: set[Outcome] = set()
    for data in spoilt(examples, HTTP_SCRAPS, count, seed=1):
        reader = ReplyReader(random.random() < 0.5, 7, None, SPOKEN[name])
        ending, error = heard(data, random, reader)
        result = reader.result(ending, NS, transport_error=error)
        behaviour = random.choice(BEHAVIOURS)()
        record, next_due_ns = LogicalRequest(ARRIVAL, behaviour, 1).ended(2 * NS, result)
        assert next_due_ns is None or next_due_ns >= 2 * NS
        assert msgspec.json.decode(msgspec.json.encode(record), type=RequestRecord) == record
        told = (result.retry_after_s, result.retry_after_hint_s, result.retry_after_ms)
        assert all(number is None or (isfinite(number) and abs(number) < 1e16) for number in told)
        assert 0 <= result.output_tokens <= 10**9
        assert len(result.reason or "") <= 120
        assert len(result.retry_after or "") <= 2 * MAX_HEAD_BYTES
        assert (
            result.outcome in (Outcome.ANSWERED, Outcome.TRUNCATED) or result.status != 200 or result.reason
        )
        seen.add(result.outcome)
    assert {Outcome.ANSWERED, Outcome.FAILED, Outcome.REJECTED, Outcome.TRUNCATED} <= seen
    assert peak_kib() - before_kib < MOST_KIB


@RUNS
def test_the_gateway_reads_anything_that_a_provider_sends(count: int) -> None:
    random, before_kib, believed = Random(2), peak_kib(), 0
    for data in spoilt([*BODIES, *DIALECTS], HTTP_SCRAPS, count, seed=2):
        status = random.choice((200, 200, 429, 500))
        kind = random.choice((b"text/event-stream", b"application/json", b"\xff"))
        reply = UpstreamReply(
            status,
            ((b"content-type", kind),),
            asked_for_stream=True,
            hide_usage=True,
            max_bytes=100_000,
            dialect=random.choice(ALL),
        )
        errors, forwarded = 0, 0
        for piece in pieces(data, random):
            reading = reply.feed(piece)
            errors, forwarded = errors + (reading.error is not None), forwarded + len(reading.forward)
            if reading.error is not None:
                break
        last = reply.finish()
        assert not (reply.terminal and errors)
        assert forwarded + len(last.forward) <= len(data)
        assert 0 <= reply.output_tokens <= 10**9
        error = last.error
        if error is not None:
            assert len(failures.of_error(error).message) < 400
        if status != 200:
            assert failures.of_status(status, reply.body).status >= 400
        believed += reply.usage is not None
    assert believed
    assert peak_kib() - before_kib < MOST_KIB


@RUNS
def test_times_to_wait_are_read_from_any_field(count: int) -> None:
    fields = [
        b"retry-after: 3", b"retry-after-ms: 1500", b"retry-after: Mon, 01 Jan 2024 00:00:09 GMT",
        b"retry-after: Monday, 01-Jan-24 00:00:09 GMT", b"retry-after: Mon Jan  1 00:00:09 2024",
        b"server-timing: queue;dur=1.5;desc=\"wait\", cpu;dur=2",
    ]  # fmt: skip
    scraps = (
        b"9" * 400, b"9" * 5000, b"nan", b"inf", b"+99999999", b"\xb2", b"-", b":", b" ", b"\xff", b"e", b"_",
        b",", b'"', b"\\",
    )  # fmt: skip
    date = (b"date", b"Mon, 01 Jan 2024 00:00:00 GMT")
    understood = 0
    for data in spoilt(fields, scraps, count, seed=3):
        name, _, value = data.partition(b": ")
        reader = ReplyReader(False, 7)
        reader.head(429, [(name, value), date], 1.7e9)
        result = reader.result(Ending.COMPLETE, 0)
        told = (
            result.retry_after_s,
            result.retry_after_hint_s,
            result.retry_after_ms,
            result.server_queue_ns,
        )
        assert all(number is None or isfinite(number) for number in told)
        wait_ns = retry_after_ns(((name, value), date))
        assert wait_ns is None or 0 <= wait_ns < 1e23
        of_tool(ToolAnswered(1, 429, ((name, value), date), value), 1000)
        understood += any(number is not None for number in told)
    assert understood


@RUNS
def test_a_client_of_jobs_survives_any_view_of_its_job(count: int) -> None:
    order = JobOrder(steps=(JobStep(chat=True),), deadline_s=10, grace_s=2)
    writer, random, accepted = JobWriter(bundled("http://127.0.0.1:1"), 1), Random(4), 0
    views = iter(list(spoilt([JOB], HTTP_SCRAPS, count, seed=4)))
    for first in views:
        pursuit, now_ns, body = JobPursuit(ARRIVAL, order, "k", 60 * NS), NS, first
        for _ in range(3):
            if (ask := pursuit.next_ask()) is None:
                break
            request = writer.poll(ARRIVAL, ask.job_id)
            assert request.count(b"\r\n\r\n") == 1
            assert request.partition(b"\r\n")[0].count(b" ") == 2
            now_ns = max(now_ns, ask.due_ns) + 1
            status = 202 if ask.kind == "post" else 200
            pursuit.heard(now_ns, ask, JobReply(sent_ns=now_ns, status=status, body=body))
            body = next(views, first) if random.random() < 0.5 else JOB
        record = pursuit.record()
        assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record
        assert record.eta_s is None or abs(record.eta_s) <= 1e9
        accepted += record.accepted_ns is not None
    assert accepted


@RUNS
def test_a_client_of_mapped_jobs_survives_any_view_of_them(count: int) -> None:
    order, accepted = JobOrder(steps=(JobStep(chat=True),), deadline_s=10, grace_s=2), 0
    names = {"state": "state", "eta_s": "eta_s", "position": "position", "key": "X-Key"}
    target = Target(name="t", host="gw", port=1, path="/x", flavour="jobs", options={"jobs": names})
    writer = JobWriter(target, 1)
    for body in spoilt([JOB], HTTP_SCRAPS, count, seed=5):
        pursuit, now_ns = JobPursuit(ARRIVAL, order, "k", 60 * NS, words_of(target)), NS
        for _ in range(3):
            if (ask := pursuit.next_ask()) is None:
                break
            request = writer.poll(ARRIVAL, ask.job_id, ask.path)
            assert request.count(b"\r\n\r\n") == 1
            assert request.partition(b"\r\n")[0].count(b" ") == 2
            now_ns = max(now_ns, ask.due_ns) + 1
            location = body[:40].decode("latin-1") if len(body) % 3 else None
            pursuit.heard(now_ns, ask, JobReply(sent_ns=now_ns, status=200, body=body, location=location))
        record = pursuit.record()
        assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record
        assert record.eta_s is None or abs(record.eta_s) <= 1e9
        accepted += record.accepted_ns is not None
    assert accepted


ASKED_AFTER = [
    Target(
        name="t", host="gw", port=1, path="/v1/x", flavour="openai-responses", options={"background": True}
    ),
    Target(name="t", host="gw", port=1, path="/v1/x", flavour="jobs"),
]
VIEWS = [
    JOB,
    json.dumps(RESPONSE).encode(),
    json.dumps(RESPONSE | {"status": "queued", "output": []}).encode(),
]
FIELDS = [b"/v1/x/7", b"http://gw:1/v1/x/7?a=b", b"3", b"Mon, 01 Jan 2024 00:00:09 GMT"]


@RUNS
def test_work_that_is_asked_after_ends_in_a_named_outcome_whatever_is_said_of_it(count: int) -> None:
    random, seen = Random(6), set[Outcome]()
    views = list(spoilt(VIEWS, HTTP_SCRAPS, count, seed=6))
    fields = list(spoilt(FIELDS, HTTP_SCRAPS, count, seed=7))
    writers = [RequestWriter(target) for target in ASKED_AFTER]
    for first, field in zip(views, fields, strict=True):
        choice = random.randrange(len(ASKED_AFTER))
        target, now_ns = ASKED_AFTER[choice], NS
        start = AttemptStart(number=0, due_ns=NS, timeout_at_ns=NS + random.randrange(1, 30 * NS))
        polling, body = Polling(target, start, now_ns), first
        while (ask := polling.next_ask()) is not None:
            now_ns = max(now_ns, ask.due_ns) + 1000
            if ask.kind is AskKind.LEAVE:
                polling.left()
                break
            request = writers[choice].write_poll(ARRIVAL, ask.path or "/")
            assert request.count(b"\r\n\r\n") == 1
            assert request.partition(b"\r\n")[0].count(b" ") == 2
            reader = ReplyReader(False, 7, None, target.api)
            reader.head(
                random.choice((200, 202, 202, 503)), [(b"location", field), (b"retry-after", field)], 1.7e9
            )
            reader.feed(body, now_ns)
            polling.heard(now_ns, ask, Heard(reader=reader, ending=Ending.COMPLETE))
            body = random.choice(views)
        result = polling.result()
        assert len(result.reason or "") <= 120
        assert 0 <= result.output_tokens <= 10**9
        assert result.outcome is Outcome.ANSWERED or result.reason or result.status == 503
        seen.add(result.outcome)
    assert {Outcome.ANSWERED, Outcome.FAILED, Outcome.ABANDONED, Outcome.REJECTED} <= seen
