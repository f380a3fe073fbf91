from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.evidence.hidden_queue import FAST_REFUSAL_NS, compare_with_gauge, depth_steps, waits
from agentload.evidence.intervals import value_at
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.model import CallEnding, LedgerEntry, Outcome, RequestRecord, Sample


def depth_at(build: RunBuilder, at_ms: float) -> int:
    return value_at(depth_steps(build.records, build.ledger), round(at_ms * MS))


def test_what_went_in_and_did_not_come_out_is_waiting() -> None:
    build = RunBuilder(profile())
    build.answered("a", 0, wait_ms=100, service_ms=50)
    build.answered("b", 20, wait_ms=100, service_ms=50)
    assert [depth_at(build, ms) for ms in (-1, 0, 10, 30, 99, 100, 119, 120, 169, 170)] == [
        0, 1, 1, 2, 2, 1, 1, 0, 0, 0,
    ]  # fmt: skip


def test_waits_end_at_the_provider_or_not_at_all() -> None:
    build = RunBuilder(profile())
    build.answered("a", 0, wait_ms=100)
    build.ended("b", 10, Outcome.ABANDONED, after_ms=300)
    found = waits(build.records, build.ledger)
    assert [(w.tenant, w.length_ns // MS, w.served) for w in found] == [("a", 100, True), ("b", 300, False)]


def test_a_quick_refusal_never_waited_and_a_slow_one_did() -> None:
    build = RunBuilder(profile())
    build.refused("a", 0, after_ms=FAST_REFUSAL_NS / MS)
    build.refused("a", 0, after_ms=FAST_REFUSAL_NS / MS + 1)
    build.refused("a", 0, after_ms=5, status=504)  # expired: it was in the queue, however briefly
    build.ended("a", 0, Outcome.UNSENT, after_ms=900)
    assert [wait.length_ns // MS for wait in waits(build.records, build.ledger)] == [251, 5]
    assert depth_at(build, 1) == 2


def test_between_two_calls_of_one_attempt_the_gateway_holds_it() -> None:
    build = RunBuilder(profile())
    record = build.answered("a", 0, wait_ms=600, service_ms=50)
    build.call(record, 100, 110, CallEnding.THROTTLED, status=429)
    assert [depth_at(build, ms) for ms in (50, 105, 300, 620)] == [1, 0, 1, 0]
    assert [wait.length_ns // MS for wait in waits(build.records, build.ledger)] == [100]


def test_a_call_that_outlives_its_client_hides_nobody_elses_wait() -> None:
    build = RunBuilder(profile())
    left = build.ended("a", 0, Outcome.ABANDONED, after_ms=100)
    build.call(left, 50, 5_000, CallEnding.COMPLETED)
    build.ended("b", 200, Outcome.UNFINISHED)
    assert depth_at(build, 300) == 1


def test_a_call_still_open_counts_as_being_at_the_provider() -> None:
    build = RunBuilder(profile())
    record = build.ended("a", 0, Outcome.UNFINISHED, after_ms=1_000)
    build.call(record, 10, 0, CallEnding.OPEN).ended_ns = None
    assert [depth_at(build, ms) for ms in (5, 500)] == [1, 0]


def test_calls_that_belong_to_nobody_do_not_count() -> None:
    build = RunBuilder(profile())
    build.ended("a", 0, Outcome.UNFINISHED, after_ms=100)
    build.call(None, 0, 100, CallEnding.COMPLETED)
    assert depth_at(build, 50) == 1


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(0, 10), st.integers(0, 3)), max_size=12
    )
)
def test_depth_is_clients_in_flight_minus_calls_at_the_provider(
    requests: list[tuple[int, int, int, int]],
) -> None:
    """By counting: where every call lies inside its attempt, the difference of the two counts."""
    records: list[RequestRecord] = []
    ledger: list[LedgerEntry] = []
    build = RunBuilder(profile())
    for sent, wait, service, tail in requests:
        record = build.answered("a", sent, wait_ms=wait, service_ms=service)
        record.ended_ns += tail * MS
    records, ledger = build.records, build.ledger
    steps = depth_steps(records, ledger)
    for at in (ms * MS + MS // 2 for ms in range(56)):
        clients = sum(r.sent_ns <= at < r.ended_ns for r in records)
        provider = sum(c.arrived_ns <= at < (c.ended_ns or 0) for c in ledger)
        assert value_at(steps, at) == clients - provider


def test_a_gauge_is_compared_at_its_own_instants() -> None:
    build = RunBuilder(profile())
    build.answered("a", 0, wait_ms=100)
    build.answered("a", 0, wait_ms=100)

    def sample(at_ms: int, depth: float, source: str = "gateway") -> Sample:
        return Sample(at_ns=at_ms * MS, source=source, values={"waiting": depth})

    samples = [sample(10, 2), sample(20, 1), sample(150, 0), sample(160, 4), sample(50, 99, "provider")]
    agreement = compare_with_gauge(depth_steps(build.records, build.ledger), samples, "waiting")
    assert agreement is not None
    assert (agreement.n, agreement.median, agreement.p95) == (4, 0, 4)
    assert compare_with_gauge([], samples, "other") is None
