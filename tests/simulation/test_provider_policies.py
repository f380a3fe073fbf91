"""The bundled gateway before providers that limit in other ways than OpenAI."""

from __future__ import annotations

import pytest

from agentload import profile
from agentload.model import NS, CallEnding, Run
from agentload.simulate import simulate

TEXT = """\
name: limited
about: Twice what the provider sells, and a gateway that does not know how much that is.
phases: [{name: load, seconds: 20}]
tenants:
  - name: app
    arrivals: {kind: constant, rate: 40}
    workload: {kind: fixed, input_tokens: 30, output_tokens: 20, max_tokens: 20, stream: 0.5}
provider:
  bucket_s: 2
  latency: {first_token_ms: 50, first_token_cv: 0, inter_token_ms: 5}
  LIMITS
gateway:
  upstream: {tokens_per_minute: null}
  pools: {shared: {slots: 32, classes: {standard: {max_queue: 2000, max_wait_s: 5}}}}
checks: [provider-limit]
"""


def played(limits: str) -> Run:
    return simulate(profile.parse(TEXT.replace("LIMITS", limits), "limited.yaml"), 1)


def admitted_per_s(run: Run, what: str) -> float:
    """Of the calls that the provider took, over the second half of the run."""
    taken = [c for c in run.ledger if c.started_ns is not None and 10 * NS <= c.arrived_ns < 20 * NS]
    return sum(float(getattr(call, what)) for call in taken) / 10


@pytest.mark.parametrize(
    ("limits", "what", "per_s"),
    [
        ("policy: anthropic\n  input_tokens_per_minute: 36000", "input_tokens", 600),
        ("policy: anthropic\n  output_tokens_per_minute: 24000", "output_tokens", 400),
        ("policy: azure\n  tokens_per_minute: 60000", "charged_tokens", 1000),
    ],
    ids=["input", "output", "azure"],
)
def test_it_finds_the_limit_by_what_it_is_told(limits: str, what: str, per_s: float) -> None:
    run = played(limits)
    refused = [call for call in run.ledger if call.ending is CallEnding.THROTTLED]
    assert all(call.not_before_ns for call in refused)
    # Refused is a tenth or so of the calls, though twice what there is comes from the client.
    assert 0 < len(refused) < 0.15 * len(run.ledger)
    assert 0.85 * per_s <= admitted_per_s(run, what) <= 1.1 * per_s


def test_a_date_is_as_good_as_seconds() -> None:
    limit = "tokens_per_minute: 36000"
    date, seconds, silence = (
        [(call.arrived_ns, call.ending) for call in played(f"retry_after: {how}\n  {limit}").ledger]
        for how in ("date", "seconds", "none")
    )
    assert date == seconds != silence
