"""The provider as a whole, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_provider.call import Call, Reason, Service, Then, Waiting
from fake_provider.config import LatencyConfig, ProviderConfig
from fake_provider.core import Provider
from fake_provider.ledger import Ending
from fake_provider.wire import retry_fields
from provider_helpers import EXACT, MS, NS, play, refusal, request, service


def provider(run: int = 0, **fields: object) -> Provider:
    return Provider(ProviderConfig.model_validate({"latency": EXACT, **fields}), run=run)


# ------------------------------------------------------------------------------------------------ one call


def test_a_plain_call_is_one_step_due_when_its_last_token_is() -> None:
    core = provider()
    call = service(core.arrive(5, request(output=10)))
    step = core.next_step(call)
    assert (step.due_ns, step.first, step.last, step.then) == (5 + 280 * MS, 0, 10, Then.COMPLETE)
    assert core.deliver(5 + 280 * MS, call, step) == []
    entry = call.entry
    assert (entry.ending, entry.started_ns, entry.ended_ns) == (Ending.COMPLETED, 5, 5 + 280 * MS)
    assert (entry.tenant, entry.seq, entry.attempt, entry.output_tokens, entry.status) == (1, 0, 0, 10, 200)


def test_a_stream_takes_its_steps_at_absolute_times_however_late_they_are_sent() -> None:
    core = provider()
    call = service(core.arrive(0, request(output=4, stream=True)))
    due = []
    while call.entry.ending is Ending.OPEN:
        step = core.next_step(call)
        assert step.due_ns is not None
        due.append(step.due_ns)
        core.deliver(step.due_ns + 7 * MS, call, step)
    assert due == [100 * MS, 120 * MS, 140 * MS, 160 * MS]
    assert call.entry.output_tokens == 4


def test_a_simulator_may_ask_for_larger_pieces_of_a_stream() -> None:
    core = provider()
    call = service(core.arrive(0, request(output=10, stream=True)))
    ends = []
    while call.entry.ending is Ending.OPEN:
        step = core.next_step(call, at_least=4)
        core.deliver(step.due_ns or 0, call, step)
        ends.append((step.last, step.due_ns))
    assert ends == [(4, 160 * MS), (8, 240 * MS), (10, 280 * MS)]


def test_max_tokens_cuts_the_answer_and_says_so() -> None:
    core = provider()
    cut = service(core.arrive(0, request(output=24, max_tokens=8)))
    natural = service(core.arrive(0, request(output=24, max_tokens=24)))
    assert (cut.output_tokens, cut.finish_reason) == (8, "length")
    assert (natural.output_tokens, natural.finish_reason) == (24, "stop")


def test_calls_without_a_wish_get_the_default() -> None:
    core = provider(default_output_tokens=5)
    assert service(core.arrive(0, request(marked=False))).output_tokens == 5
    assert service(core.arrive(0, request(output=0))).output_tokens == 5


def test_a_call_that_leaves_frees_its_slot_once() -> None:
    core = provider(slots=1, overflow="queue")
    first = service(core.arrive(0, request()))
    second = core.arrive(0, request(seq=1)).call
    assert core.ended(10, first, Ending.CANCELLED) == [second]
    assert core.ended(11, first, Ending.CANCELLED) == []
    assert core.in_service == 1
    assert core.ledger.counts.cancelled == 1


# -------------------------------------------------------------------------------------------- limits


def test_tpm_refuses_with_the_wait_and_promises_whole_seconds() -> None:
    core = provider(tokens_per_minute=6_000)
    service(core.arrive(0, request(max_tokens=5_900)))
    refused = refusal(core.arrive(0, request(seq=1, max_tokens=400)))
    assert (refused.status, refused.reason, refused.retry_after_s, refused.retry_after_ms) == (
        429,
        Reason.TOKENS,
        3,
        None,
    )
    assert refused.shortage is not None
    assert refused.shortage.wait_ns == 3 * NS
    assert refused.call.entry.not_before_ns == 3 * NS
    assert refused.call.entry.ending is Ending.THROTTLED
    early = core.arrive(2_900 * MS, request(seq=2, max_tokens=100, text_chars=0)).call.entry
    in_time = core.arrive(3 * NS, request(seq=1, max_tokens=300)).call.entry
    assert (early.early, early.ending) == (True, Ending.OPEN)
    assert (in_time.early, in_time.ending) == (False, Ending.OPEN)


@pytest.mark.parametrize(
    ("style", "seconds", "milliseconds"),
    [("seconds", 1, None), ("milliseconds", 1, 500), ("none", None, None)],
)
def test_what_a_refusal_promises_is_configured(
    style: str, seconds: int | None, milliseconds: int | None
) -> None:
    core = provider(tokens_per_minute=60_000, retry_after=style)
    service(core.arrive(0, request(max_tokens=60_000)))
    refused = refusal(core.arrive(0, request(seq=1, max_tokens=500)))
    assert (refused.retry_after_s, refused.retry_after_ms) == (seconds, milliseconds)
    promised = {"seconds": NS, "milliseconds": 500 * MS, "none": None}[style]
    assert refused.call.entry.not_before_ns == promised


def test_a_promise_may_be_a_date() -> None:
    config = {"tokens_per_minute": 60_000, "retry_after": "date", "latency": EXACT}
    core = Provider(ProviderConfig.model_validate(config), epoch_ns=1_755_780_000 * NS)
    service(core.arrive(0, request(max_tokens=60_000)))
    refused = refusal(core.arrive(200 * MS, request(seq=1, max_tokens=1_500)))
    # The tokens are there at 1.5 s: the first whole second after that.
    assert retry_fields(refused) == [(b"retry-after", b"Thu, 21 Aug 2025 12:40:02 GMT")]
    assert refused.call.entry.not_before_ns == 2 * NS
    assert core.arrive(1_900 * MS, request(seq=2, max_tokens=9)).call.entry.early
    assert not core.arrive(2 * NS, request(seq=3, max_tokens=9)).call.entry.early


def test_a_call_larger_than_the_bucket_is_refused_for_good() -> None:
    core = provider(tokens_per_minute=60_000, bucket_s=2)
    refused = refusal(core.arrive(0, request(max_tokens=2_001)))
    assert (refused.status, refused.reason, refused.retry_after_s) == (429, Reason.TOO_LARGE, None)
    service(core.arrive(0, request(max_tokens=2_000)))


def test_requests_per_minute_bind_too_and_one_always_fits() -> None:
    core = provider(requests_per_minute=6, bucket_s=1)
    service(core.arrive(0, request()))
    refused = refusal(core.arrive(0, request(seq=1)))
    assert (refused.reason, refused.retry_after_s) == (Reason.REQUESTS, 10)


def test_a_refused_call_takes_nothing() -> None:
    core = provider(tokens_per_minute=6_000, requests_per_minute=60)
    for seq in range(50):
        refusal(core.arrive(0, request(seq=seq, max_tokens=6_001)))
    headers = dict(core.headers(0, core.arrive(0, request(max_tokens=1_000)).call))
    assert headers[b"x-ratelimit-remaining-requests"] == b"59"
    assert headers[b"x-ratelimit-remaining-tokens"] == b"5000"


@pytest.mark.parametrize("policy", ["openai", "azure"])
def test_answers_may_keep_quiet_about_the_limits(policy: str) -> None:
    limits = {"policy": policy, "tokens_per_minute": 6_000}
    told, quiet = provider(**limits), provider(**limits, limit_headers=False)
    assert told.headers(0, service(told.arrive(0, request())))
    assert quiet.headers(0, service(quiet.arrive(0, request()))) == []


def test_a_call_that_finds_no_slot_takes_nothing_from_the_buckets() -> None:
    core = provider(tokens_per_minute=6_000, slots=1)
    service(core.arrive(0, request(max_tokens=1_000)))
    refused = refusal(core.arrive(0, request(seq=1, max_tokens=1_000)))
    assert (refused.status, refused.reason) == (503, Reason.SLOTS)
    assert dict(core.headers(0, refused.call))[b"x-ratelimit-remaining-tokens"] == b"5000"


def test_refused_calls_use_up_requests_when_told_to() -> None:
    core = provider(requests_per_minute=60, bucket_s=5, tokens_per_minute=60_000, count_refused=True)
    for seq in range(5):
        assert refusal(core.arrive(0, request(seq=seq, max_tokens=60_001))).reason is Reason.TOO_LARGE
    assert refusal(core.arrive(0, request(seq=9))).reason is Reason.REQUESTS
    assert refusal(core.arrive(500 * MS, request(seq=9))).reason is Reason.REQUESTS


def test_each_key_and_model_has_its_own_buckets() -> None:
    core = provider(requests_per_minute=1)
    for key, model in (("a", "m"), ("b", "m"), ("a", "n")):
        service(core.arrive(0, request(api_key=key, model=model)))
    refusal(core.arrive(0, request(api_key="a", model="m")))


def test_a_model_may_have_other_limits_than_the_rest() -> None:
    one = provider(tokens_per_minute=60_000, bucket_s=1, model_limits={"small": {"requests_per_minute": 120}})
    service(one.arrive(0, request(max_tokens=1_000)))
    assert refusal(one.arrive(0, request(max_tokens=1_000))).reason is Reason.TOKENS
    for _ in range(2):
        service(one.arrive(0, request(max_tokens=1_000, model="small")))
    assert refusal(one.arrive(0, request(max_tokens=1, model="small"))).reason is Reason.REQUESTS


def test_the_policy_none_limits_nothing_but_slots() -> None:
    core = provider(policy="none", tokens_per_minute=1, requests_per_minute=1, slots=2)
    calls = [service(core.arrive(0, request(seq=seq, max_tokens=10_000))) for seq in range(2)]
    assert core.headers(0, calls[0]) == []
    assert refusal(core.arrive(0, request(seq=2))).reason is Reason.SLOTS


def test_unknown_models_are_a_404() -> None:
    core = provider(any_model=False, models=("m",))
    service(core.arrive(0, request(model="m")))
    refused = refusal(core.arrive(0, request(model="n")))
    assert (refused.status, refused.reason, refused.call.entry.ending) == (
        404,
        Reason.MODEL_NOT_FOUND,
        Ending.INVALID,
    )


# -------------------------------------------------------------------------------------------- the queue


def test_waiting_calls_enter_service_first_come_first_served() -> None:
    core = provider(slots=2, overflow="queue")
    entries = play(core, [(i, request(seq=i, output=1)) for i in range(6)])
    assert [entry.started_ns for entry in entries] == [0, 1, 100 * MS, 100 * MS + 1, 200 * MS, 200 * MS + 1]
    assert [entry.queued_ns for entry in entries] == [None, None, 2, 3, 4, 5]
    assert core.ledger.counts.completed == 6


def test_a_full_queue_refuses() -> None:
    core = provider(slots=1, overflow="queue", max_queue=1)
    service(core.arrive(0, request()))
    assert isinstance(core.arrive(0, request(seq=1)), Waiting)
    assert refusal(core.arrive(0, request(seq=2))).status == 503
    assert (core.in_service, core.queued) == (1, 1)


def test_a_waiting_call_may_leave() -> None:
    core = provider(slots=1, overflow="queue")
    first = service(core.arrive(0, request()))
    second, third = (core.arrive(0, request(seq=seq)).call for seq in (1, 2))
    assert core.ended(5, second, Ending.CANCELLED) == []
    assert core.ended(6, first, Ending.CANCELLED) == [third]
    assert (second.entry.started_ns, third.entry.started_ns) == (None, 6)


# ---------------------------------------------------------------------------------- runs and attribution


def test_markers_of_another_run_are_not_attributed_but_acknowledged() -> None:
    core = provider(run=7)
    call = service(core.arrive(0, request(run=6, seq=5)))
    assert (call.entry.tenant, call.entry.seq) == (None, None)
    assert core.unattributed() == [{"endpoint": "chat", "model": "m", "calls": 1}]
    assert call.text(0, 1) == "ack"
    assert service(core.arrive(0, request(run=7))).tenant == 1


def test_a_reset_begins_a_new_ledger_and_full_buckets_while_old_calls_go_on() -> None:
    core = provider(tokens_per_minute=6_000, slots=2)
    old = service(core.arrive(0, request(max_tokens=6_000)))
    before = core.ledger
    core.reset(10, 9)
    assert core.ledger.counts.offered == 0
    new = service(core.arrive(10, request(run=9, seq=1, max_tokens=6_000)))
    refusal(core.arrive(10, request(run=9, seq=2, max_tokens=1)))
    core.deliver(400 * MS, old, core.next_step(old))
    assert (before.counts.completed, core.ledger.counts.completed, core.in_service) == (1, 0, 1)
    assert before.counts.conserved()
    assert core.ledger.counts.conserved()
    assert (old.entry.run, new.entry.run) == (0, 9)


def test_the_same_call_takes_the_same_time_whatever_else_happens() -> None:
    latency = LatencyConfig(first_token_ms=100, first_token_cv=0.5)
    alone, busy = provider(latency=latency), provider(latency=latency)
    for seq in range(100, 150):
        busy.arrive(0, request(seq=seq))
    assert service(alone.arrive(0, request())).timing == service(busy.arrive(0, request())).timing


def test_a_repeated_call_draws_anew() -> None:
    core = provider(latency=LatencyConfig(first_token_ms=100, first_token_cv=0.5))
    first, again = (service(core.arrive(0, request())).timing for _ in range(2))
    assert first != again


def test_the_snapshot_shows_no_api_key() -> None:
    core = provider(tokens_per_minute=6_000)
    core.arrive(0, request(api_key="sk-very-secret"))
    shown = core.snapshot(0)
    assert "sk-very-secret" not in repr(shown)
    assert (shown["in_service"], shown["queued"], shown["conserved"]) == (1, 0, True)
    assert shown["limits"][0]["level"] == pytest.approx(6_000 - 30)


# ------------------------------------------------------------------------------------------- properties

actions = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "arrive", "arrive", "deliver", "leave", "reset", "wait"]),
        st.integers(0, 400 * MS),
        st.integers(1, 3_000),
        st.booleans(),
    ),
    max_size=80,
)


@settings(max_examples=60)
@given(actions, st.sampled_from(["refuse", "queue"]), st.integers(1, 4), st.integers(0, 3))
def test_nothing_is_lost_or_counted_twice(
    script: list[tuple[str, int, int, bool]], overflow: str, slots: int, max_queue: int
) -> None:
    core = provider(
        slots=slots,
        overflow=overflow,
        max_queue=max_queue,
        tokens_per_minute=60_000,
        bucket_s=2,
        requests_per_minute=600,
    )
    now_ns, since_ns, serving = 0, 0, list[Call]()
    for seq, (action, gap_ns, size, stream) in enumerate(script):
        now_ns += gap_ns
        if action == "arrive":
            decision = core.arrive(
                now_ns, request(run=core.ledger.run, seq=seq, output=size, max_tokens=size, stream=stream)
            )
            serving += [decision.call] if isinstance(decision, Service | Waiting) else []
        elif action == "reset":
            core.reset(now_ns, core.ledger.run + 1)
            since_ns = now_ns
        elif serving:
            call = serving[size % len(serving)]
            if action == "leave":
                core.ended(now_ns, call, Ending.CANCELLED)
            elif call.timing is not None:
                core.deliver(now_ns, call, core.next_step(call))
            serving = [call for call in serving if call.entry.ending is Ending.OPEN]
        ledger = core.ledger
        charged = sum(
            e.charged_tokens for e in ledger.entries if e.ending not in (Ending.THROTTLED, Ending.INVALID)
        )
        assert ledger.counts.conserved()
        assert core.in_service + core.queued == len(serving)
        assert core.in_service <= slots
        assert core.queued <= max_queue
        assert charged <= 2_000 + (now_ns - since_ns) / NS * 1_000 + 1


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 2 * NS), st.integers(1, 40), st.booleans()), max_size=40),
    st.integers(1, 5),
)
def test_a_run_to_its_end_completes_every_admitted_call(
    arrivals: list[tuple[int, int, bool]], slots: int
) -> None:
    core = provider(slots=slots, overflow="queue")
    asked = [(at, request(seq=seq, output=n, stream=s)) for seq, (at, n, s) in enumerate(arrivals)]
    entries = play(core, asked)
    assert all(entry.ending is Ending.COMPLETED for entry in entries)
    assert sum(entry.output_tokens for entry in entries) == sum(n for _, n, _ in arrivals)
    for entry in entries:
        assert entry.started_ns is not None
        assert entry.ended_ns == entry.started_ns + (100 + 20 * (entry.output_tokens - 1)) * MS
