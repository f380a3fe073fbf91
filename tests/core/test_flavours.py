"""Every flavour says the same things in its own words, and understands the same things from its answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload import flavours
from agentload.client.logical import AttemptResult
from agentload.client.wire import FOREIGN_ANSWER, Ending, ReplyReader
from agentload.flavours import Flavour, Progress, Standing, _places, _template
from agentload.model import Arrival, Job, Outcome
from fake_provider import anthropic, openai, openai_responses
from fake_provider.call import Call
from fake_provider.config import ProviderConfig
from fake_provider.core import Provider
from fake_provider.marker import Marker, ack, decode, message
from fake_provider.wire import Frames, Wire
from fake_provider.words import filler
from provider_helpers import EXACT, service

SEQ = 77
MARKER = Marker(run=1, tenant=3, seq=SEQ, attempt=0, output_tokens=24)
PROMPT = message(MARKER, 40)
HTTP = {"http": {"body": {"q": "{prompt}", "n": "{max_tokens}"}, "text": "a.0.text", "output_tokens": "n"}}
OPTIONS: dict[str, dict[str, Any]] = {"http": HTTP}
NAMES = flavours.SEAM.names()
SPOKEN: dict[str, Wire] = {
    "openai-chat": openai.OpenAIChat(),
    "openai-responses": openai_responses.OpenAIResponses(),
    "anthropic-messages": anthropic.AnthropicMessages(),
}
"""Our provider's side of those that it speaks."""
HEADERS = {b"anthropic-version": b"2023-06-01"}
JSON = [(b"content-type", b"application/json")]
SSE = [(b"content-type", b"text/event-stream")]


def flavour(name: str, **options: Any) -> Flavour:
    return flavours.SEAM.get(name).model_validate({**OPTIONS.get(name, {}), **options})


def arrival(declared: int | None = 48, stream: bool = False) -> Arrival:
    job = Job(input_tokens=40, output_tokens=24, declared_output_tokens=declared, stream=stream)
    return Arrival(seq=SEQ, tenant='q"1', service_class="standard", phase="p", due_ns=0, job=job)


def body(name: str, one: Arrival | None = None, **options: Any) -> Any:
    return json.loads(flavour(name, **options).request_body(PROMPT, one or arrival(), "m"))


def texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []


def call(name: str, stream: bool) -> tuple[Call, Wire]:
    """At our provider, asked in that flavour."""
    wire = SPOKEN[name]
    asked = wire.parse(HEADERS, flavour(name).request_body(PROMPT, arrival(stream=stream), "m"))
    return service(Provider(ProviderConfig(latency=EXACT), run=1).arrive(0, asked)), wire


def read(
    name: str,
    chunks: list[bytes],
    *,
    stream: bool = False,
    status: int = 200,
    ending: Ending = Ending.COMPLETE,
    seq: int = SEQ,
) -> AttemptResult:
    """Chunk i comes at i + 1 ms."""
    reader = ReplyReader(stream, seq, None, flavour(name))
    reader.head(status, SSE if stream and status == 200 else JSON, 0.0)
    for i, chunk in enumerate(chunks):
        reader.feed(chunk, (i + 1) * 1_000_000)
    return reader.result(ending, 500)


# ------------------------------------------------------------------------------------------ what is said


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("declared", [None, 3, 48])
def test_every_request_is_json_with_the_whole_prompt_as_its_last_user_message(
    name: str, declared: int | None
) -> None:
    said = body(name, arrival(declared))
    assert [decode(text) for text in texts(said) if text == PROMPT] == [MARKER]


@pytest.mark.parametrize("name", NAMES)
def test_more_fields_of_the_target_are_in_every_body(name: str) -> None:
    assert body(name, body={"temperature": 0, "tag": 'a"b'}) == body(name) | {"temperature": 0, "tag": 'a"b'}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_flavour_writes_is_what_it_says_that_it_writes(name: str, stream: bool) -> None:
    if name in SPOKEN:
        assert set(body(name, arrival(stream=stream))) <= flavour(name).writes


@pytest.mark.parametrize("name", SPOKEN)
@pytest.mark.parametrize("stream", [False, True])
def test_our_provider_understands_it(name: str, stream: bool) -> None:
    asked, _ = call(name, stream)
    assert (asked.request.model, asked.request.max_tokens, asked.request.stream) == ("m", 48, stream)
    assert (asked.marker, asked.request.input_tokens) == (MARKER, 40)


def test_limits_that_an_api_insists_on() -> None:
    assert body("openai-responses", arrival(3))["max_output_tokens"] == 16
    assert body("anthropic-messages", arrival(None))["max_tokens"] == 4096
    assert "max_tokens" not in body("openai-chat", arrival(None))


def test_a_response_in_the_background_is_no_stream() -> None:
    said = body("openai-responses", arrival(stream=True), background=True)
    assert (said["background"], "stream" in said) == (True, False)
    assert flavour("openai-responses", background=True).asks_after_s == 0.5


# ---------------------------------------------------------------------------------- what is understood


@pytest.mark.parametrize("name", SPOKEN)
def test_a_plain_answer(name: str) -> None:
    asked, wire = call(name, stream=False)
    whole = wire.whole(asked)
    result = read(name, [whole[:50], whole[50:]])
    assert (result.outcome, result.own_answer, result.reason) == (Outcome.ANSWERED, True, None)
    assert (result.input_tokens, result.output_tokens, result.first_token_ns) == (40, 24, None)


def pieces(frames: Frames, tokens: int) -> list[bytes]:
    return [frames.piece(0, 0), *(frames.piece(n, n + 1) for n in range(tokens)), frames.tail()]


@pytest.mark.parametrize("name", SPOKEN)
def test_a_stream_with_its_times(name: str) -> None:
    asked, wire = call(name, stream=True)
    chunks = pieces(wire.frames(asked), 24)
    result = read(name, chunks, stream=True)
    assert (result.outcome, result.own_answer, result.reason) == (Outcome.ANSWERED, True, None)
    assert (result.first_token_ns, result.last_token_ns) == (2_000_000, 25_000_000)
    assert (result.input_tokens, result.output_tokens) == (40, 24)


@pytest.mark.parametrize("name", SPOKEN)
@pytest.mark.parametrize("ending", [Ending.COMPLETE, Ending.CUT])
def test_a_stream_without_its_end_is_truncated_and_its_words_are_counted(name: str, ending: Ending) -> None:
    asked, wire = call(name, stream=True)
    result = read(name, pieces(wire.frames(asked), 9)[:-1], stream=True, ending=ending)
    assert (result.outcome, result.output_tokens) == (Outcome.TRUNCATED, 9)


@pytest.mark.parametrize("name", SPOKEN)
def test_an_error_inside_a_stream_is_a_failure_with_its_name(name: str) -> None:
    asked, wire = call(name, stream=True)
    frames = wire.frames(asked)
    result = read(name, [frames.piece(0, 5), frames.error()], stream=True)
    expected = "overloaded_error" if name == "anthropic-messages" else "server_is_overloaded"
    assert (result.outcome, result.reason, result.output_tokens) == (Outcome.FAILED, expected, 5)


@pytest.mark.parametrize("name", SPOKEN)
@pytest.mark.parametrize("stream", [False, True])
def test_somebody_elses_answer_is_a_failure(name: str, stream: bool) -> None:
    asked, wire = call(name, stream)
    chunks = pieces(wire.frames(asked), 24) if stream else [wire.whole(asked)]
    result = read(name, chunks, stream=stream, seq=SEQ + 1)
    assert (result.outcome, result.own_answer, result.reason) == (Outcome.FAILED, False, FOREIGN_ANSWER)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"{}", b'"x"', b"\xff", b"[" * 5000])
def test_a_200_that_is_no_answer_is_a_failure_that_says_why(name: str, data: bytes) -> None:
    result = read(name, [data])
    assert result.outcome is Outcome.FAILED
    assert result.reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', "overloaded_error"),
        (b'{"error":{"code":"slow_down","type":"x","message":"y"}}', "slow_down"),
        (b'{"detail":"full"}', "full"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", [429, 503, 529])
def test_refusals_are_read_alike_whoever_words_them(name: str, status: int, data: bytes, reason: str) -> None:
    result = read(name, [data], status=status)
    assert (result.outcome, result.status, result.reason) == (Outcome.REJECTED, status, reason)


def test_tokens_from_a_cache_belong_to_anthropics_prompt() -> None:
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 17}
    whole = {"content": [{"type": "text", "text": "hi"}], "usage": usage | {"output_tokens": 1}}
    assert read("anthropic-messages", [json.dumps(whole).encode()]).input_tokens == 40


def test_an_answer_at_the_place_that_the_target_names() -> None:
    answer = json.dumps({"a": [{"text": ack(MARKER) + filler(6)}], "n": 9}).encode()
    result = read("http", [answer])
    assert (result.outcome, result.own_answer, result.output_tokens) == (Outcome.ANSWERED, True, 9)
    assert result.stream is False, "an API without streams makes none of a request that wants one"
    missing = read("http", [b'{"a": []}'])
    assert (missing.outcome, missing.reason) == (Outcome.FAILED, "answer-without-text")
    hidden = read("http", [b'{"error": {"code": "full"}}'])
    assert (hidden.outcome, hidden.reason) == (Outcome.FAILED, "full")


# ------------------------------------------------------------------------------------ work asked after


@pytest.mark.parametrize(
    ("state", "progress"),
    [
        ("queued", Progress.OPEN),
        ("deferred", Progress.OPEN),
        ("completed", Progress.DONE),
        ("failed", Progress.FAILED),
        ("cancelled", Progress.FAILED),
        ("expired", Progress.EXPIRED),
    ],
)
def test_the_reference_gateways_jobs_are_understood_unless_told_otherwise(
    state: str, progress: Progress
) -> None:
    shown = json.dumps({"id": "job_1", "state": state, "reason": "why"}).encode()
    assert flavour("jobs").standing(shown) == Standing("job_1", progress, "why")


def test_another_gateways_names() -> None:
    names = {"id": "data.0.uid", "state": "data.0.ok", "done": ["true"], "poll": "/ask?of={id}&x=1"}
    other = flavour("jobs", jobs=names)
    assert other.standing(b'{"data": [{"uid": 17, "ok": true}]}')[:2] == ("17", Progress.DONE)
    assert other.standing(b'{"data": [{"uid": 17}]}')[:2] == ("17", None)
    assert other.poll_path("/x", "17") == "/ask?of=17&x=1"
    assert flavour("jobs").poll_path("/v1/jobs", "17") == "/v1/jobs/17"


def test_a_response_in_the_background_is_asked_after() -> None:
    one = flavour("openai-responses", background=True)
    failed = b'{"id": "r", "status": "failed", "error": {"code": "server_error"}}'
    assert one.standing(failed) == Standing("r", Progress.FAILED, "server_error")
    assert one.standing(b'{"id": "r", "status": "queued"}') == Standing("r", Progress.OPEN, "queued")
    assert one.standing(b'{"id": "r", "status": "unheard-of"}').progress is None


# ------------------------------------------------------------------------------------ templates, places

values = st.text(max_size=30)


@given(values, values, st.integers(1, 10**6) | st.none())
def test_what_is_put_into_a_template_cannot_leave_its_text(
    tenant: str, model: str, declared: int | None
) -> None:
    template = {"a": "<{tenant}>", "m": ["{model}", {"{prompt}": "{prompt}"}], "n": "{max_tokens}", "k": 3}
    one = msgspec.structs.replace(arrival(declared), tenant=tenant)
    filled = json.loads(msgspec.json.encode(_template.fill(_template.check(template), PROMPT, one, model)))
    expected = {"a": f"<{tenant}>", "m": [model, {"{prompt}": PROMPT}], "k": 3}
    assert filled == (expected if declared is None else expected | {"n": declared})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"a": "{promt}"}, r"unknown placeholder \{promt\} \(did you mean 'prompt'\?\)"),
        ({"a": "{model}"}, r"must hold \{prompt\}"),
    ],
)
def test_a_template_that_cannot_work_is_refused(template: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _template.check(template)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("a.0.b", 5),
        ("a.-1.b", 6),
        ("a.2.b", None),
        ("a.x", None),
        ("a.0.b.c", None),
        ("t", True),
        ("q", None),
    ],
)
def test_places(place: str, value: object) -> None:
    assert _places.at({"a": [{"b": 5}, {"b": 6}], "t": True}, place) == value


def test_places_as_text_and_numbers() -> None:
    data = {"t": True, "n": 5, "f": 0.5, "s": "x", "l": [], "big": 10**400}
    assert [_places.text_at(data, name) for name in data] == ["true", "5", "0.5", "x", None, None]
    assert [_places.count_at(data, name) for name in ("t", "n", "f")] == [None, 5, None]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["whole", "event", "standing"])
def test_no_json_breaks_a_flavour(name: str, method: str) -> None:
    one = flavour(name)

    @given(json_values)
    def check(value: object) -> None:
        data, heard = msgspec.json.encode(value), flavours.Heard()
        reads: dict[str, Callable[[], object]] = {
            "whole": lambda: one.read_whole(data, heard),
            "event": lambda: one.read_event(b"x", data, heard),
            "standing": lambda: None if one.asks_after_s is None else one.standing(data),
        }
        with suppress(*flavours.NOT_JSON):
            reads[method]()

    check()
