"""What checks make of providers that do not limit as OpenAI does."""

from __future__ import annotations

from typing import Any

import pytest

from agentload.checks.provider_limit import ProviderLimit
from agentload.checks.work_conserving import WorkConserving
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.model import Run, Status
from fake_provider.config import ProviderConfig


def steady(every_ms: float, **provider: Any) -> Run:
    """Sixty calls of 40 tokens, each of which waits for a second while nothing is in service."""
    config = ProviderConfig.model_validate({"bucket_s": 4, **provider})
    build = RunBuilder(profile(phases={"load": every_ms * 60 / 1_000}, provider=config))
    for k in range(60):
        build.answered("a", every_ms * k, wait_ms=1_000)
    return build.run()


@pytest.mark.parametrize(("every_ms", "status"), [(1_000, Status.FAILED), (4_000, Status.PASSED)])
def test_input_tokens_have_an_envelope(every_ms: float, status: Status) -> None:
    run = steady(every_ms, policy="anthropic", input_tokens_per_minute=600)
    verdict = ProviderLimit().judge(run)
    assert (verdict.status, verdict.unit) == (status, "input tokens")


def test_output_tokens_are_judged_by_what_was_refused() -> None:
    verdict = ProviderLimit().judge(steady(1_000, policy="anthropic", output_tokens_per_minute=600))
    assert (verdict.status, verdict.unit) == (Status.PASSED, "%")


@pytest.mark.parametrize("policy", ["openai", "azure"])
def test_a_fixed_window_allows_two_of_them_at_its_edge(policy: str) -> None:
    verdict = ProviderLimit().judge(steady(4_000, policy=policy, tokens_per_minute=600))
    assert verdict.bound == pytest.approx(1.02 * 40 * (2 if policy == "azure" else 1))


@pytest.mark.parametrize(
    "limits",
    [
        {"policy": "anthropic", "output_tokens_per_minute": 600},
        {"policy": "azure", "tokens_per_minute": 600},
    ],
)
def test_idleness_is_not_judged_where_the_limits_cannot_be_replayed(limits: dict[str, Any]) -> None:
    verdict = WorkConserving().judge(steady(1_000, **limits))
    assert (verdict.status, "cannot be told" in verdict.because) == (Status.INCONCLUSIVE, True)
    assert WorkConserving().judge(steady(1_000)).status is not Status.INCONCLUSIVE
