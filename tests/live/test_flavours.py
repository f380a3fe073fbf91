"""Two witnesses, in every flavour: what the driver says it sent is what the provider says it got."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentload import doctor, targets
from agentload.doctor.findings import Finding, Grade, findings
from agentload.model import Outcome, RequestRecord, Spec
from agentload.order import Options
from driver_scene import config, driver_for, events_of, open_tenant, profile, records
from gateway_scene import gateway
from provider_helpers import ProviderProcess

pytestmark = pytest.mark.live

RUN_ID = 99
JOBS = """
flavour: jobs
path: /v1/responses
poll_s: 0.05
jobs:
  body: {model: "{model}", input: "{prompt}", max_output_tokens: "{max_tokens}", background: true}
  state: status
  done: [completed, incomplete]
  reason: error.code
  text: output.0.content.0.text
  input_tokens: usage.input_tokens
  output_tokens: usage.output_tokens
"""
HTTP = """
flavour: http
path: /v1/responses
http:
  body: {model: "{model}", input: [{role: user, content: "{prompt}"}], max_output_tokens: "{max_tokens}"}
  text: output.0.content.0.text
  input_tokens: usage.input_tokens
  output_tokens: usage.output_tokens
"""
HTTP_STREAM = """
flavour: http
path: /v1/chat/completions
http:
  body:
    model: "{model}"
    messages: [{role: user, content: "{prompt}"}]
    max_completion_tokens: "{max_tokens}"
  text: choices.0.message.content
  input_tokens: usage.prompt_tokens
  output_tokens: usage.completion_tokens
  stream:
    ask: {stream: true, stream_options: {include_usage: true}}
    text: choices.0.delta.content
    ended: choices.0.finish_reason
    done: "[DONE]"
    input_tokens: usage.prompt_tokens
    output_tokens: usage.completion_tokens
"""
STREAMING = ("responses", "messages", "http-stream")
FLAVOURS = {
    "responses": "flavour: openai-responses",
    "background": "flavour: openai-responses\nbackground: true\npoll_s: 0.05",
    "messages": "flavour: anthropic-messages",
    "jobs": JOBS,
    "http": HTTP,
    "http-stream": HTTP_STREAM,
}
FAULTS = [{"kind": "first-n-fail", "params": {"n": 3, "status": 500}}]


def drive(folder: Path, flavour: str, provider: ProviderProcess, **limits: Any) -> list[RequestRecord]:
    """Two tenants for a second and a half; one tries again as the official SDK does."""
    sizes = {"input_tokens": 24, "output_tokens": 16, "max_tokens": 20, "stream": 0.5}
    eager = Spec(kind="openai-sdk", params={"timeout_s": 20})
    chosen = profile(
        1.5,
        open_tenant("a", 30, workload=sizes, client=eager),
        open_tenant("b", 20, workload=sizes),
        drain_s=6.0,
    )
    (folder / "gateway.yaml").write_text(f"base_url: {provider.url}\n{flavour}\n")
    provider.control("POST", "reset", {"run": RUN_ID, "config": limits})
    target = targets.load(str(folder / "gateway.yaml"), {})
    asked = msgspec.structs.replace(config(chosen, provider.port, folder), target=target.to_dict())
    with driver_for(asked) as driver:
        driver.start()
        events_of(driver)
        driver.result()
    return records(folder)


IN_CI_AND_BY_HAND = [
    name if name in ("messages", "jobs") else pytest.param(name, marks=pytest.mark.slow) for name in FLAVOURS
]
"""One that is answered at once, and one that is asked after, speak for the others in CI."""


@pytest.mark.parametrize("name", IN_CI_AND_BY_HAND)
def test_every_attempt_is_in_the_ledger_and_ended_there_as_its_client_says(name: str, tmp_path: Path) -> None:
    with ProviderProcess() as provider:
        kept = drive(tmp_path, FLAVOURS[name], provider, slots=6, faults=FAULTS)
        ledger = provider.ledger()
    names = ["a", "b"]
    got = {(names[e["tenant"]], e["seq"], e["attempt"]): e for e in ledger["entries"]}
    assert sorted((r.tenant, r.seq, r.attempt) for r in kept) == sorted(got)
    assert len(got) == len(ledger["entries"])
    ends = {Outcome.ANSWERED: "completed", Outcome.REJECTED: "throttled", Outcome.FAILED: "faulted"}
    for record in kept:
        entry = got[record.tenant, record.seq, record.attempt]
        assert (entry["ending"], entry.get("status", 200)) == (ends[record.outcome], record.status)
        if record.outcome is Outcome.ANSWERED:
            assert record.own_answer is True
            assert (record.input_tokens, record.output_tokens) == (24, entry["output_tokens"])
            assert entry.get("ended_ns", 0) > 0
    outcomes = Counter(record.outcome for record in kept)
    assert outcomes[Outcome.ANSWERED] > 20
    assert outcomes[Outcome.REJECTED] > 5, "six slots are too few"
    assert outcomes[Outcome.FAILED] == 3, "as many as the fault has"
    assert any(record.attempt > 0 for record in kept)
    busy = 529 if name == "messages" else 503
    assert {record.status for record in kept} == {200, 500, busy}
    streamed = [r for r in kept if r.stream and r.outcome is Outcome.ANSWERED]
    assert bool(streamed) is (name in STREAMING)
    assert all(r.first_token_ns is not None and r.first_token_ns < r.ended_ns for r in streamed)


def found_at(url: str, provider: ProviderProcess, flavour: str, folder: Path) -> dict[str, Finding]:
    """What a doctor finds there."""
    file = folder / "gateway.yaml"
    file.write_text(f"base_url: {url}\nprovider: {{running: '{provider.url}'}}\n{flavour}")
    seen = doctor.examine(Options(profile="noisy-neighbor", target=str(file)), 4)
    found = {one.about: one for one in findings(seen)}
    good = ("reachable", "authenticated", "our provider", "marker", "usage")
    assert {about: found[about].grade for about in good} == dict.fromkeys(good, Grade.GOOD), found
    assert "exact" in found["marker"].said
    return found


@pytest.mark.parametrize("name", IN_CI_AND_BY_HAND)
def test_a_doctor_finds_the_same_in_every_flavour(name: str, tmp_path: Path) -> None:
    with ProviderProcess() as provider:
        found = found_at(provider.url, provider, FLAVOURS[name], tmp_path)
    streams, leaves = found["streaming"], found["client leaves"]
    assert streams.grade is (Grade.GOOD if name in STREAMING else Grade.NOTE)
    assert "cancel-upstream will fail" not in leaves.said, leaves
    assert (leaves.grade is Grade.GOOD) is (name != "jobs"), leaves
    assert ("no request calls work off (jobs.cancel)" in leaves.said) is (name == "jobs"), leaves


@pytest.mark.slow
def test_the_reference_gateway_is_asked_in_all_that_it_speaks(tmp_path: Path) -> None:
    jobs = ("--jobs-db", str(tmp_path / "jobs.db"))
    with ProviderProcess() as provider, gateway(tmp_path, provider.url, None, *jobs) as own:
        url = str(own.http.base_url)
        for flavour in ("openai-responses", "anthropic-messages", "jobs"):
            found = found_at(
                url, provider, f"flavour: {flavour}\nheaders: {{X-Tenant: '{{tenant}}'}}\n", tmp_path
            )
            assert found["streaming"].grade is (Grade.NOTE if flavour == "jobs" else Grade.GOOD)
            assert found["client leaves"].grade is Grade.GOOD, "also of jobs, which are called off"
