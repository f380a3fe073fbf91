"""The one request before the load: what it shows of the target, and who is not turned away by it."""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import replace

import pytest

from agentload import profile, targets
from agentload.drivers import first_look
from agentload.drivers.first_look import ask_until_served, needs_json, refuse_other_words
from agentload.drivers.probe import Reply
from agentload.errors import UnreachableError
from agentload.targets import Target
from hostile_servers import Script, says, serving

PROFILE = profile.load(profile.find("steady"), [])
CHAT = {"object": "chat.completion", "choices": [{"message": {"content": "a"}, "finish_reason": "length"}]}
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}]}
RESPONSE = {"object": "response", "status": "completed", "output": [{"content": [{"text": "a"}]}]}
WAYS = {"jobs": "/v1/jobs", "anthropic-messages": "/v1/messages", "openai-responses": "/v1/responses"}


def look(
    flavour: str, answer: object, status: int = 200, location: str = "", **options: object
) -> str | None:
    """What is said of that answer of a target of that flavour; None: it may be loaded."""
    target = targets.load(f"http://127.0.0.1:8080{WAYS.get(flavour, '/v1/chat/completions')}", {})
    target = replace(target, flavour=flavour, options=options)
    request = targets.probe_request(target, PROFILE)
    body = b"" if answer is None else json.dumps(answer).encode()
    try:
        refuse_other_words(target, request, Reply(status, "application/json", body, location))
    except UnreachableError as refused:
        [line] = refused.lines
        return line
    return None


@pytest.mark.parametrize(
    ("flavour", "answer"),
    [("openai-chat", CHAT), ("anthropic-messages", MESSAGE), ("openai-responses", RESPONSE)],
)
def test_the_words_that_were_said_pass_and_others_are_named_with_the_mend(
    flavour: str, answer: object
) -> None:
    assert look(flavour, answer) is None
    others = {"openai-chat": CHAT, "anthropic-messages": MESSAGE, "openai-responses": RESPONSE}
    for other, came in others.items():
        if other != flavour:
            said = str(look(flavour, came))
            assert (
                f"answered 200 in the words of {other}, and was asked in those of {flavour} (answer-" in said
            )
            assert said.endswith(f"): say `flavour: {other}` in the target file")


def test_what_nobody_speaks_is_told_by_its_fields_and_not_by_their_values() -> None:
    said = str(look("openai-chat", {"reply": "sk-secret", "took": 3}))
    assert (
        "is no answer of openai-chat (answer-without-choices; what came: reply, took): are `flavour:`" in said
    )
    assert "sk-secret" not in said
    assert "malformed-answer; what came: choices" in str(look("openai-chat", {"choices": "many"}))
    http = {"body": {"q": "{prompt}"}, "text": "answer"}
    assert look("http", {"answer": "a"}, http=http) is None
    assert "answer-without-text; what came: nothing" in str(look("http", {}, http=http))
    assert "does it know the model 'fake-model', and speak openai-chat?" in str(look("openai-chat", {}, 400))


def test_what_the_judge_is_for_passes() -> None:
    assert look("openai-chat", {"error": {"code": "overloaded"}}) is None, "an error inside a 200"
    assert look("openai-responses", {**RESPONSE, "output": []}) is None, "cut short before any text"
    for status in (402, 413, 429, 500, 503, 529):
        assert look("openai-chat", {"detail": "no"}, status) is None


def jobs() -> Target:
    return targets.load("http://127.0.0.1:8080/v1/jobs", {})


def test_work_that_is_asked_after_needs_a_name_or_a_place() -> None:
    assert look("jobs", {"id": "j1"}, 202) is None
    assert look("jobs", None, 202, "/v1/jobs/j1") is None
    assert not needs_json(jobs(), Reply(202, "", b"", "/v1/jobs/j1"))
    assert needs_json(jobs(), Reply(202, "", b""))
    assert look("openai-responses", {"object": "response", "id": "r"}, background=True) is None
    assert "is no answer of jobs (answer-without-id; what came: ticket)" in str(
        look("jobs", {"ticket": "j1"}, 202)
    )
    assert "in the words of openai-chat" in str(look("jobs", {**CHAT, "id": "c1"}))


@pytest.mark.parametrize("events", ["sse", "ndjson", "chunks"])
def test_a_stream_that_comes_unasked_is_looked_at_as_one(events: str) -> None:
    kind, text = ("text/event-stream", "data: Hello\n\n") if events == "sse" else ("text/plain", "Hello")
    http = {"body": {"q": "{prompt}"}, "text": "answer", "stream": {"events": events}}
    target = targets.load("http://127.0.0.1:8080", {})
    target = replace(target, flavour="http", options={"http": http})
    request = targets.probe_request(target, PROFILE)
    streamed = Reply(200, kind, text.encode())
    assert not needs_json(target, streamed)
    refuse_other_words(target, request, streamed)
    assert needs_json(target, streamed._replace(status=500))
    with pytest.raises(UnreachableError, match="answer-without-text; what came: nothing"):
        refuse_other_words(target, request, streamed._replace(body=b""))


def at(port: int) -> Target:
    return targets.load(f"http://127.0.0.1:{port}", {})


def test_one_that_warms_up_is_asked_again_and_one_that_refuses_is_let_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_look, "PAUSE_S", 0.01)
    monkeypatch.setattr(first_look, "AGAIN_S", 0.01)
    statuses = iter([b"503 Loading", b"429 Full", b"529 Full"])

    def script(sock: socket.socket, over: threading.Event) -> None:
        says(json.dumps(CHAT).encode(), next(statuses, b"200 OK"))(sock, over)

    with serving(script) as server:
        target = at(server.port)
        request = targets.probe_request(target, PROFILE)
        assert (ask_until_served(target, request).status, server.connections) == (200, 4)
    refuses: Script = says(b"no", b"429 Full")
    with serving(refuses) as server:
        target = at(server.port)
        assert (
            ask_until_served(target, request := targets.probe_request(target, PROFILE), seconds=0.1).status
            == 429
        )
        assert server.connections > 1
        began_s = time.monotonic()
        assert ask_until_served(target, request, lambda: False).status == 429
        assert time.monotonic() - began_s < 2
