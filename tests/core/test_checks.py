"""What holds for every check; and checks of answers against runs small enough to be judged with a pencil."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agentload.checks import SEAM, Check, PhaseRef, references
from agentload.checks.own_answer import OwnAnswer
from agentload.checks.status_codes import StatusCodes
from agentload.checks.stream_integrity import StreamIntegrity
from agentload.checks.victim_latency import VictimLatency
from agentload.checks.weighted_share import WeightedShare
from agentload.errors import UsageError
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import check_name
from agentload.explain import explain
from agentload.model import CallEnding, Outcome, Run, Status, Verdict
from fake_provider.config import ProviderConfig

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE

every_check = pytest.mark.parametrize("name", SEAM.names())


# --------------------------------------------------------- what holds for every check, new ones too


@every_check
def test_its_example_passes(name: str) -> None:
    check, run = SEAM.get(name).example()
    verdict = check.judge(run)
    assert verdict.status is PASSED, verdict.because


@every_check
def test_its_counterexample_fails_with_the_numbers_and_somewhere_to_look(name: str) -> None:
    check, run = SEAM.get(name).counterexample()
    verdict = check.judge(run)
    assert verdict.status is FAILED, verdict.because
    assert verdict.check == name == check_name(type(check))
    assert verdict.measured is not None or verdict.censored
    assert verdict.bound is not None
    assert verdict.measured is None or verdict.measured > verdict.bound
    assert verdict.unit
    assert verdict.n > 0
    assert verdict.evidence


@every_check
def test_too_little_to_go_by_is_inconclusive_and_says_what_is_missing(name: str) -> None:
    check, run = SEAM.get(name).too_few()
    verdict = check.judge(run)
    assert verdict.status is INCONCLUSIVE
    assert len(verdict.because) > 20


@every_check
def test_an_empty_run_is_inconclusive(name: str) -> None:
    check, run = SEAM.get(name).example()
    empty = msgspec.structs.replace(run, records=[], ledger=[], samples=[], jobs=[], tools=[])
    assert check.judge(empty).status is INCONCLUSIVE


@every_check
def test_its_verdict_can_be_written_as_json(name: str) -> None:
    check, run = SEAM.get(name).counterexample()
    verdict = check.judge(run)
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict


@every_check
def test_judging_changes_nothing_and_says_the_same_twice(name: str) -> None:
    check, run = SEAM.get(name).counterexample()
    before = msgspec.json.encode([run.records, run.ledger, run.jobs, run.tools])
    first = check.judge(run)
    assert check.judge(run) == first
    assert msgspec.json.encode([run.records, run.ledger, run.jobs, run.tools]) == before


@every_check
def test_it_says_when_it_passes_and_all_its_parameters_have_defaults(name: str) -> None:
    kind = SEAM.get(name)
    assert (kind.__doc__ or "").startswith("Passes when ")
    assert (kind.__doc__ or "").splitlines()[0].endswith(".")
    assert isinstance(kind(), Check)


@every_check
def test_it_can_be_explained(name: str) -> None:
    text = explain(name)
    assert text.startswith(name)
    for part in ("Passes when", "Parameters", "severity", "Counterexample", "Verdict", "failed: "):
        assert part in text
    assert max(len(line) for line in text.splitlines()) < 200


def test_its_paragraphs_are_filled_to_the_width() -> None:
    told = explain("provider-limit", 60).partition("\n\nNeeds")[0]
    assert told.split() == explain("provider-limit").partition("\n\nNeeds")[0].split()
    assert 50 < max(len(line) for line in told.splitlines()) <= 60


def test_explaining_an_unknown_check_suggests_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'victim-latency'"):
        explain("victim-latenzy")


def test_parameters_that_name_phases_are_marked_as_such() -> None:
    found = {name for name, kind in references(VictimLatency) if kind is PhaseRef}
    assert found == {"baseline", "noise"}
    assert {name for name, _ in references(WeightedShare)} == {"tenants", "phases"}


# -------------------------------------------------------------------------------------- the answers


def streamed(*, received: int, ending: CallEnding, produced: int, declared: int | None = None) -> Run:
    """One answer that claims to be complete, of a request that wants 20 tokens."""
    build = RunBuilder(profile())
    record = build.ended("a", 0, Outcome.ANSWERED, after_ms=100, status=200)
    record.output_tokens, record.planned_output_tokens, record.declared_output_tokens = received, 20, declared
    build.call(record, 0, 100, ending, output_tokens=produced)
    return build.run()


@pytest.mark.parametrize(
    ("received", "ending", "produced", "declared", "status"),
    [
        (20, CallEnding.COMPLETED, 20, None, PASSED),
        (12, CallEnding.COMPLETED, 12, None, PASSED),  # the gateway asked for less: whole all the same
        (12, CallEnding.COMPLETED, 20, None, FAILED),  # swallowed by the gateway
        (7, CallEnding.CUT, 7, None, FAILED),
        (
            7,
            CallEnding.CANCELLED,
            7,
            None,
            FAILED,
        ),  # the gateway's own timeout, sold as finish_reason: length
        (20, CallEnding.CANCELLED, 20, None, PASSED),  # closed after the last token
        (16, CallEnding.CANCELLED, 16, 16, PASSED),  # max_tokens
    ],
)
def test_what_a_complete_answer_must_hold(
    received: int, ending: CallEnding, produced: int, declared: int | None, status: Status
) -> None:
    run = streamed(received=received, ending=ending, produced=produced, declared=declared)
    assert StreamIntegrity().judge(run).status is status


def test_a_second_call_that_completes_makes_up_for_the_first() -> None:
    run = streamed(received=20, ending=CallEnding.CUT, produced=7)
    build = RunBuilder(run.profile)
    build.ledger = run.ledger
    build.call(run.records[0], 50, 90, CallEnding.COMPLETED, output_tokens=20)
    assert StreamIntegrity().judge(run).status is PASSED


def test_somebody_elses_answer_is_one_too_many() -> None:
    check, run = OwnAnswer.counterexample()
    verdict = check.judge(run)
    assert (verdict.measured, verdict.n, verdict.details["tenants"]) == (1, 2, {"b": 1})


def answers(**change: Any) -> Run:
    """Thirty good answers and one that is changed."""
    build = RunBuilder(profile(provider=ProviderConfig(tokens_per_minute=6_000, bucket_s=2)))
    for k in range(31):
        build.answered("a", 100 * k)
    for name, value in change.items():
        setattr(build.records[-1], name, value)
    return build.run()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"status": 500, "outcome": Outcome.FAILED}, FAILED),
        ({"status": 502, "outcome": Outcome.FAILED}, PASSED),
        ({"status": 503, "outcome": Outcome.REJECTED}, PASSED),
        ({"outcome": Outcome.FAILED, "reason": "server_error"}, FAILED),  # an error in a plain 200
        ({"outcome": Outcome.FAILED, "stream": True}, PASSED),  # an error event after the first token
        ({"outcome": Outcome.FAILED, "stream": True, "first_token_ns": None}, FAILED),
        ({"outcome": Outcome.FAILED, "own_answer": False}, PASSED),  # own-answer's business
        ({"outcome": Outcome.TRUNCATED}, PASSED),
        ({"status": 429, "outcome": Outcome.REJECTED, "declared_output_tokens": 200}, PASSED),
        ({"status": 429, "outcome": Outcome.REJECTED, "declared_output_tokens": 201}, FAILED),
        ({"status": 413, "outcome": Outcome.REJECTED, "declared_output_tokens": 201}, PASSED),
    ],
)
def test_status_by_cause(change: dict[str, Any], status: Status) -> None:
    assert StatusCodes().judge(answers(**change)).status is status


def test_a_profile_may_say_what_is_impossible() -> None:
    refused = {"status": 429, "outcome": Outcome.REJECTED, "input_tokens": 60, "declared_output_tokens": 50}
    assert StatusCodes(impossible_tokens=110).judge(answers(**refused)).status is PASSED
    assert StatusCodes(impossible_tokens=109).judge(answers(**refused)).status is FAILED
