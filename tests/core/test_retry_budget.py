"""Retry budgets: retries never exceed their share of first attempts by more than what may be saved up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agentload import behaviours
from agentload.behaviours import Behaviour
from agentload.behaviours._budget import RetryBudget
from agentload.client.logical import AttemptResult, LogicalRequest
from agentload.model import NS, Arrival, Job, Outcome, Spec

JOB = Job(input_tokens=24, output_tokens=10, declared_output_tokens=48)


@settings(max_examples=100, deadline=None)
@given(
    share=st.floats(0.001, 1.0),
    steps=st.lists(st.booleans(), max_size=400),
    since=st.integers(0, 400),
)
def test_over_any_stretch_retries_stay_within_the_share(share: float, steps: list[bool], since: int) -> None:
    budget = RetryBudget(share)
    firsts = retries = 0
    for place, is_first in enumerate(steps):
        if is_first:
            budget.deposit()
        granted = not is_first and budget.withdraw()
        if place >= since:
            firsts, retries = firsts + is_first, retries + granted
    assert retries <= firsts * share + max(1, 100 * share) + 1e-3


def test_what_was_earned_can_be_spent() -> None:
    budget = RetryBudget(0.1)
    while budget.withdraw():
        pass
    for _ in range(10):
        assert not budget.withdraw()
        budget.deposit()
    assert budget.withdraw()
    assert not budget.withdraw()


def play(behaviour: Behaviour, requests: int, ending: Outcome) -> int:
    """Attempts at so many requests that all end alike."""
    attempts = 0
    for seq in range(requests):
        due_ns: int | None = seq * NS
        arrival = Arrival(
            seq=seq, tenant="app", service_class="standard", phase="load", due_ns=seq * NS, job=JOB
        )
        request = LogicalRequest(arrival, behaviour, seed=1)
        while due_ns is not None:
            request.start(due_ns)
            attempts += 1
            result = AttemptResult(outcome=ending, sent_ns=due_ns, status=429)
            due_ns = request.ended(due_ns + 1, result)[1]
    return attempts


def budgeted(kind: str, budget: float | None) -> Behaviour:
    return behaviours.make(Spec(kind=kind, params={} if budget is None else {"retry_budget": budget}))


def test_all_requests_of_a_tenant_share_it() -> None:
    assert play(budgeted("hammer", None), 1000, Outcome.REJECTED) == 10_000
    allowed = 10 + 99  # saved up, and earned; what the first attempt would earn finds the bucket full
    assert play(budgeted("hammer", 0.1), 1000, Outcome.REJECTED) == 1000 + allowed
    assert play(budgeted("langchain", 0.1), 1000, Outcome.REJECTED) == 1000 + allowed


def test_answers_cost_nothing() -> None:
    assert play(budgeted("hammer", 0.1), 100, Outcome.ANSWERED) == 100
