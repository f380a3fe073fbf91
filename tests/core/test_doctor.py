"""What a doctor says of what was seen: each sentence with an example and a counterexample."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload import checks, profile
from agentload.checks import Need, WithoutLedger
from agentload.checks.own_answer import OwnAnswer
from agentload.doctor import decidable, exit_code, findings
from agentload.doctor.decidable import Chance, anybody_served, own_prospects, prospects, summary
from agentload.doctor.findings import Finding, Grade
from agentload.doctor.observed import Asked, Call, Kind, Seen
from agentload.doctor.show import groups
from agentload.errors import ExitCode
from agentload.model import Outcome, Profile, Spec
from agentload.promises import DENIED_BY, Promises, Truth

TENANTS = ("quiet", "flood")


def asked(kind: Kind = Kind.CAREFUL, tenant: str = "quiet", seq: int = 0, **more: Any) -> Asked:
    fields: dict[str, Any] = {
        "outcome": Outcome.ANSWERED,
        "status": 200,
        "http_version": "HTTP/1.1",
        "media_type": "application/json",
        "usage": True,
        "clock_skew_s": 0.2,
    }
    return Asked(kind=kind, tenant=tenant, seq=seq, input_tokens=24, **fields | more)


def refused(seq: int, **more: Any) -> Asked:
    fields: dict[str, Any] = {"outcome": Outcome.REJECTED, "status": 429, "usage": False, "retry_after": "1"}
    return asked(Kind.BURST, "flood", seq, **fields | more)


def call(tenant: int | None = 0, seq: int | None = 0, **more: Any) -> Call:
    fields: dict[str, Any] = {"input_tokens": 24}
    return Call(tenant=tenant, seq=seq, **fields | more)


STREAM = asked(Kind.STREAMED, seq=2, media_type="text/event-stream", text_ns=(0, 100_000_000, 230_000_000))
LEFT = asked(Kind.LEFT, seq=3, outcome=Outcome.ABANDONED, usage=False, ended_ns=1_000_000_000)
CALLS = (call(), call(1, 1), call(0, 2), call(0, 3, ending="cancelled", ended_ns=1_004_000_000), call(1, 4))
SOUND = Seen(
    tenants=TENANTS,
    asked=(asked(), asked(tenant="flood", seq=1), STREAM, LEFT, asked(Kind.BURST, "flood", 4), refused(5)),
    calls=CALLS,
    provider_takes="slots 16",
    upstream_keys=1,
    gauges=("in_flight",),
    gauges_named=("in_flight",),
)


def gauged(*gauges: str) -> Seen:
    """The sound gateway, of which these values can be read."""
    return msgspec.structs.replace(SOUND, gauges=gauges)


def seen(*instead: Asked, calls: tuple[Call, ...] = CALLS, keys: int | None = 1) -> Seen:
    """The sound gateway, with other answers to the requests of these numbers."""
    changed = {one.seq: one for one in instead}
    answers = tuple(changed.get(one.seq, one) for one in SOUND.asked)
    return Seen(tenants=TENANTS, asked=answers, calls=calls, upstream_keys=keys)


def troubled(trouble: str) -> Seen:
    return msgspec.structs.replace(seen(calls=()), trouble=trouble)


def left_with(**call_of_it: Any) -> Seen:
    return seen(calls=(*CALLS[:3], call(0, 3, **call_of_it), CALLS[4]))


def told(*known: Truth, no: Truth | None = None) -> Seen:
    """The sound gateway, of which so much is declared."""
    promises = Promises(known=frozenset(known), denied=frozenset({no} if no else ()))
    return msgspec.structs.replace(SOUND, promises=promises)


def polled(*known: Truth, **more: Any) -> Seen:
    """The sound gateway as one that is asked after its work."""
    promises = Promises(known=frozenset({Truth.JOBS, Truth.JOB_ETAS, *known}))
    return msgspec.structs.replace(SOUND, **({"promises": promises, "asks_after": True} | more))


POLLED = polled()
LEFT_LATE = left_with(ended_ns=1_590_000_000).calls


def finding(about: str, of: Seen) -> Finding:
    [found] = [one for one in findings(of) if one.about == about]
    return found


def chance(check: str, of: Seen) -> tuple[Chance, str]:
    [found] = [one for one in prospects(of) if one.check == check]
    return found.chance, found.because


def test_a_sound_gateway_has_nothing_to_mend() -> None:
    assert {one.grade for one in findings(SOUND)} == {Grade.GOOD}
    assert exit_code(findings(SOUND)) is ExitCode.PASSED


def test_every_check_there_is_has_a_prospect() -> None:
    assert [one.check for one in prospects(SOUND)] == list(checks.SEAM.names())


@pytest.mark.parametrize(
    ("about", "of", "grade", "words"),
    [
        ("reachable", seen(asked(status=0, outcome=Outcome.FAILED, failure="reset")), Grade.BAD, "1 × reset"),
        ("authenticated", seen(asked(status=401, outcome=Outcome.FAILED)), Grade.BAD, "quiet: 1 × 401"),
        ("authenticated", seen(asked(status=500, outcome=Outcome.FAILED)), Grade.BAD, "not served: quiet"),
        ("our provider", seen(calls=()), Grade.BAD, "answers come from somewhere else"),
        ("marker", seen(calls=()), Grade.UNSURE, "cannot be told: see above"),
        (
            "authenticated",
            seen(asked(outcome=Outcome.FAILED, reason="answer-without-choices")),
            Grade.BAD,
            "quiet: 1 × 200 answer-without-choices (is the flavour right?)",
        ),
        ("marker", seen(calls=(*CALLS, call())), Grade.BAD, "1 duplicated"),
        ("marker", seen(calls=CALLS[1:]), Grade.UNSURE, "1 cached"),
        ("marker", seen(calls=(call(None, None), *CALLS[1:])), Grade.UNSURE, "1 lost"),
        ("marker", seen(calls=(call(input_tokens=60), *CALLS[1:])), Grade.NOTE, "1 folded"),
        ("identity upstream", seen(keys=2), Grade.NOTE, "2 keys for 2 tenants"),
        ("identity upstream", seen(keys=None), Grade.NOTE, "cannot be told"),
        ("client leaves", seen(calls=(*CALLS[:3], CALLS[4])), Grade.NOTE, "no call"),
        ("usage", seen(asked(usage=False)), Grade.NOTE, "missing in 1 of 4 answers"),
        ("streaming", seen(asked(Kind.STREAMED, seq=2)), Grade.NOTE, "answered as application/json"),
        (
            "streaming",
            seen(asked(Kind.STREAMED, seq=2, media_type="text/event-stream", text_ns=(0, 1_000_000))),
            Grade.NOTE,
            "at once",
        ),
        ("client leaves", left_with(ended_ns=1_590_000_000), Grade.NOTE, "goes on for 590 ms (completed)"),
        ("client leaves", left_with(ended_ns=None), Grade.NOTE, "still open"),
        ("client leaves", left_with(ended_ns=900_000_000), Grade.NOTE, "cannot be told"),
        ("client leaves", polled(calls=LEFT_LATE, can_call_off=False), Grade.NOTE, "(jobs.cancel), so"),
        (
            "client leaves",
            polled(
                calls=LEFT_LATE, asked=tuple(msgspec.structs.replace(a, called_off=404) for a in SOUND.asked)
            ),
            Grade.NOTE,
            "will fail (it was called off; the answer was 404)",
        ),
        ("posted again", POLLED, Grade.NOTE, "no idempotency key is named (jobs.key)"),
        ("posted again", polled(job_key="X-Key"), Grade.GOOD, "by its X-Key"),
        ("refusals", seen(refused(5, retry_after=None)), Grade.NOTE, "Retry-After 1 × missing"),
        ("refusals", seen(asked(Kind.BURST, "flood", 5)), Grade.NOTE, "what one looks like (--burst 200)"),
        ("our provider", troubled("no route"), Grade.UNSURE, "mend first what stands above"),
        ("authenticated", troubled("no route"), Grade.BAD, "nobody is served (quiet, flood): no route"),
        ("refusals", seen(calls=(*CALLS, call(1, 5, status=429))), Grade.GOOD, "the provider's own"),
        ("HTTP", seen(asked(http_version="HTTP/1.0")), Grade.NOTE, "1 × HTTP/1.0"),
        (
            "clock",
            seen(*(msgspec.structs.replace(one, clock_skew_s=-3600.0) for one in SOUND.asked)),
            Grade.NOTE,
            "-3600 s",
        ),
    ],
)
def test_what_is_found(about: str, of: Seen, grade: Grade, words: str) -> None:
    found = finding(about, of)
    assert (found.grade, words in found.said) == (grade, True), found


@pytest.mark.parametrize(
    ("check", "of", "expected", "words"),
    [
        ("victim-latency", SOUND, Chance.YES, ""),
        ("no-starvation", seen(calls=()), Chance.NO, "ledger"),
        ("victim-goodput", seen(calls=()), Chance.YES, ""),
        ("no-starvation", seen(calls=(call(None, None), *CALLS[1:])), Chance.NO, "marker gets lost"),
        ("provider-limit", seen(calls=(call(None, None), *CALLS[1:])), Chance.YES, ""),
        ("no-starvation", seen(calls=CALLS[1:]), Chance.NO, "cache"),
        ("observable", SOUND, Chance.NO, "only the bundled gateway"),
        ("nothing-lost", told(), Chance.NO, "say declares.jobs"),
        ("nothing-lost", told(no=Truth.JOBS), Chance.NO, "declares `jobs: false`"),
        ("weighted-share", SOUND, Chance.YES, ""),
        ("weighted-share", told(), Chance.NO, "what the target file declares"),
        ("weighted-share", told(Truth.WEIGHTS), Chance.YES, ""),
        ("weighted-share", told(no=Truth.WEIGHTS), Chance.NO, "declares `fairness: none`"),
        ("deadline", told(no=Truth.DEADLINES), Chance.NO, "declares `deadlines: false`"),
        ("concurrency-cap", told(Truth.TENANT_SLOTS), Chance.YES, ""),
        ("bounded-queue", told(), Chance.YES, decidable.IN_PART),
        ("bounded-queue", told(no=Truth.QUEUE_REQUESTS), Chance.YES, decidable.IN_PART),
        ("bounded-queue", told(Truth.QUEUE_REQUESTS, Truth.QUEUE_AGE), Chance.YES, ""),
        ("provider-limit", told(), Chance.YES, decidable.IN_PART),
        ("provider-limit", told(no=Truth.UPSTREAM), Chance.YES, "the target declares `without: [upstream]`"),
        ("victim-goodput", told(), Chance.YES, ""),
        ("nothing-lost", told(Truth.JOBS), Chance.YES, ""),
        ("nothing-lost", POLLED, Chance.YES, ""),
        ("no-ghosts", SOUND, Chance.YES, ""),
        ("no-ghosts", told(), Chance.PERHAPS, "once it queues (one that does not says `without: [queue]`)"),
        ("no-ghosts", told(no=Truth.QUEUE_REQUESTS), Chance.PERHAPS, "once it queues: the target declares"),
        ("no-ghosts", polled(Truth.QUEUE_AGE), Chance.YES, ""),
        ("no-ghosts", polled(can_call_off=False), Chance.NO, "needs jobs.cancel"),
        ("cancel-upstream", polled(can_call_off=False), Chance.NO, "leave; no run fails for it"),
        ("exactly-once", POLLED, Chance.YES, ""),
        ("exactly-once", polled(calls=(call(None, None), *CALLS[1:])), Chance.NO, "marker gets lost"),
        ("exactly-once", polled(external=True), Chance.NO, "provider is somebody else's"),
        ("lease-reclaim", POLLED, Chance.NO, "what the target file declares"),
        ("lease-reclaim", polled(Truth.JOB_LEASES), Chance.NO, "process.restart"),
        ("lease-reclaim", polled(Truth.JOB_LEASES, can_be_killed=True), Chance.YES, ""),
        ("eta-honest", POLLED, Chance.NO, "jobs.eta_s says where one stands"),
        ("eta-honest", polled(asked=(asked(eta=True),)), Chance.YES, ""),
        ("eta-honest", told(no=Truth.JOB_ETAS), Chance.NO, "declares `without: [job_etas]`"),
        ("eta-honest", told(no=Truth.JOBS), Chance.NO, "what the target file declares"),
        ("lease-reclaim", told(Truth.JOBS, Truth.JOB_LEASES), Chance.NO, "process.restart"),
        ("retry-after-present", seen(asked(Kind.BURST, "flood", 5)), Chance.PERHAPS, "once it refuses"),
        ("retry-after-syntax", seen(refused(5, retry_after=None)), Chance.NO, "no Retry-After"),
        ("retry-after-present", seen(refused(5, retry_after=None)), Chance.YES, ""),
        ("stream-integrity", seen(asked(Kind.STREAMED, seq=2)), Chance.NO, "does not stream"),
        ("bounded-memory", SOUND, Chance.NO, "needs process in the target file"),
        ("bounded-memory", gauged("resident_bytes"), Chance.YES, ""),
        ("queue-age-alert", gauged("waiting"), Chance.NO, "needs metrics.queue_age_s in the target file"),
        ("queue-age-alert", gauged("waiting", "oldest_age_s"), Chance.YES, ""),
        ("observable", gauged("waiting", "in_flight"), Chance.NO, "only the bundled gateway"),
    ],
)
def test_what_will_be_decided(check: str, of: Seen, expected: Chance, words: str) -> None:
    found, because = chance(check, of)
    assert (found, words in because) == (expected, True), because


def test_the_address_that_the_gateway_must_call_is_named() -> None:
    lost = msgspec.structs.replace(seen(calls=()), provider_url="http://127.0.0.1:9001")
    assert finding("our provider", lost).said.endswith("is the gateway's upstream http://127.0.0.1:9001?")
    free = msgspec.structs.replace(lost, any_port=True)
    assert finding("our provider", free).said.endswith(":9001? (--provider-port fixes the port)")


def test_metrics_that_cannot_be_read_are_to_be_mended() -> None:
    named = ("waiting", "oldest_age_s")
    trouble = "the target's metrics at http://127.0.0.1:1/metrics: answers 404"
    unread = msgspec.structs.replace(SOUND, gauges=(), gauges_named=named, metrics_trouble=trouble)
    assert finding("its own values", unread) == Finding("its own values", Grade.BAD, trouble)
    assert exit_code(findings(unread)) is ExitCode.FAILED
    because = "metrics.queue_age_s and metrics.waiting cannot be read: see above"
    assert chance("queue-age-alert", unread) == (Chance.NO, because)
    in_part = msgspec.structs.replace(SOUND, gauges=("waiting",), gauges_named=named)
    found = finding("its own values", in_part)
    assert (found.grade, found.said.partition(":")[0]) == (Grade.UNSURE, "queue_age_s cannot be read")
    assert chance("queue-age-alert", in_part) == (Chance.NO, "metrics.queue_age_s cannot be read: see above")
    whole = msgspec.structs.replace(in_part, gauges=named)
    assert finding("its own values", whole).said == "waiting, queue_age_s can be read"


def test_one_slow_answer_says_nothing_of_the_clock() -> None:
    assert finding("clock", seen(asked(clock_skew_s=-9.0))).grade is Grade.GOOD


def test_what_would_have_to_be_declared_stands_beside_each_check() -> None:
    said = {one.check: one.say for one in prospects(told())}
    assert said["tenant-limit"] == "tenants.T.requests_per_minute"
    assert said["concurrency-cap"] == "slots or tenant_slots"
    assert said["bounded-queue"] == "queue.requests, queue.age_s"
    assert said["victim-goodput"] == ""


def test_a_plug_ins_check_has_the_prospect_that_it_states_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plugged(OwnAnswer):
        rests_on = frozenset({Truth.BUDGETS})
        needs = frozenset({Need.STREAMS})

    monkeypatch.setattr(checks.SEAM, "get", lambda _: Plugged)
    assert chance("own-answer", told()) == (Chance.NO, decidable.UNDECLARED)
    assert chance("own-answer", told(Truth.BUDGETS)) == (Chance.YES, "")
    silent = msgspec.structs.replace(told(Truth.BUDGETS), asked=(asked(),))
    assert chance("own-answer", silent) == (Chance.NO, "it does not stream")


def test_nothing_is_decided_where_nobody_is_served() -> None:
    shut = [asked(one.kind, one.tenant, one.seq, status=401, outcome=Outcome.FAILED) for one in SOUND.asked]
    assert {one.chance for one in prospects(seen(*shut))} == {Chance.NO}
    assert anybody_served(SOUND)
    assert not anybody_served(seen(*shut))
    assert exit_code(findings(seen(*shut))) is ExitCode.FAILED


def test_what_only_makes_verdicts_inconclusive_is_told_apart_from_what_must_be_mended() -> None:
    assert exit_code(findings(seen(calls=CALLS[1:]))) is ExitCode.INCONCLUSIVE
    assert exit_code(findings(seen(calls=(*CALLS, call())))) is ExitCode.FAILED


WEIGHTED = profile.load(profile.find("weighted-fair"), [])


def asks(*specs: Spec) -> Profile:
    return WEIGHTED.model_copy(update={"checks": specs})


def code(of: Seen, of_profile: Profile = WEIGHTED) -> ExitCode:
    return exit_code(findings(of), own_prospects(of_profile, of))


def test_what_the_profile_must_decide_and_will_not_makes_three() -> None:
    assert code(told()) is ExitCode.INCONCLUSIVE
    assert code(told(Truth.WEIGHTS)) is ExitCode.PASSED
    assert code(told(no=Truth.WEIGHTS)) is ExitCode.PASSED, "what is not asked fails no run, nor a doctor"
    assert code(SOUND) is ExitCode.PASSED
    should = asks(Spec(kind="weighted-share", params={"severity": "should"}))
    assert code(told(), should) is ExitCode.PASSED
    assert code(told(), asks(Spec(kind="tenant-limit"))) is ExitCode.INCONCLUSIVE
    said_here = asks(Spec(kind="tenant-limit", params={"per_minute": 60}))
    assert code(told(), said_here) is ExitCode.PASSED, "the profile says the limit itself"


def test_a_target_without_a_health_page_is_not_asked_for_one() -> None:
    pageless = msgspec.structs.replace(SOUND, health_page=False)
    assert chance("health-probe", pageless) == (
        Chance.NO,
        "needs health in the target file; no run fails for it",
    )
    assert chance("health-probe", SOUND) == (Chance.YES, "")
    assert code(pageless, asks(Spec(kind="health-probe"))) is ExitCode.PASSED


def test_who_cannot_be_told_of_departures_is_not_asked_for_them() -> None:
    of = asks(Spec(kind="no-ghosts"), Spec(kind="cancel-upstream"))
    assert code(polled(can_call_off=False), of) is ExitCode.PASSED
    assert code(msgspec.structs.replace(SOUND, calls=()), of) is not ExitCode.PASSED


def test_what_only_few_gateways_say_is_asked_of_these_alone() -> None:
    assert code(told(), asks(Spec(kind="retry-identity"))) is ExitCode.PASSED
    alert, counters = asks(Spec(kind="queue-age-alert")), asks(Spec(kind="observable"))
    assert code(SOUND, counters) is code(SOUND, alert) is ExitCode.PASSED
    named = msgspec.structs.replace(SOUND, gauges_named=("waiting", "oldest_age_s"))
    assert code(named, alert) is ExitCode.INCONCLUSIVE, "it is said to show them, and they cannot be read"
    assert code(SOUND, asks(Spec(kind="bounded-memory"))) is ExitCode.INCONCLUSIVE


def test_what_can_only_fail_without_our_ledger_makes_three() -> None:
    foreign = msgspec.structs.replace(SOUND, external=True, calls=(), upstream_keys=None)
    fails_only = next(
        name for name in checks.SEAM.names() if checks.SEAM.get(name).without_ledger is WithoutLedger.FAILURES
    )
    assert code(foreign, asks(Spec(kind=fails_only))) is ExitCode.INCONCLUSIVE
    assert code(foreign, asks(Spec(kind="refusal-latency"))) is ExitCode.PASSED


def test_one_line_says_what_the_profile_will_decide() -> None:
    own = own_prospects(WEIGHTED, told())
    assert summary(own) == "1 of 5 checks decidable, weighted-share (2 ×) and service-gap (2 ×) not"
    assert summary(own_prospects(WEIGHTED, SOUND)) == "5 of 5 checks decidable"
    [row] = [names for about, names, _ in groups(own) if about == "not decidable"]
    assert row == ["weighted-share (tenants.T.weight) (2 ×)", "service-gap (tenants.T.weight) (2 ×)"]
    noisy = profile.load(profile.find("noisy-neighbor"), [])
    assert summary(own_prospects(noisy, told())) == (
        "6 of 8 checks decidable, bounded-queue and provider-limit in part"
    )
    [row] = [row for row in groups(own_prospects(noisy, told())) if row[0] == "in part"]
    names, because = ["bounded-queue", "provider-limit"], "declare queue.requests, queue.age_s, upstream"
    assert row == ("in part", names, f"{because} to judge them whole")
    let_in = seen(asked(Kind.BURST, "flood", 5))
    assert "retry-after-present, retry-after-syntax and refusal-latency perhaps" in summary(
        own_prospects(noisy, let_in)
    )


def test_who_promises_less_has_no_more_checks_decided() -> None:
    noisy = profile.load(profile.find("noisy-neighbor"), [])
    less = Promises(denied=frozenset({Truth.QUEUE_REQUESTS, Truth.QUEUE_AGE, Truth.UPSTREAM}))
    own = own_prospects(noisy, msgspec.structs.replace(SOUND, promises=less))
    assert summary(own) == "6 of 8 checks decidable, bounded-queue and provider-limit in part"
    assert {about: because for about, _, because in groups(own) if because} == {
        "in part": "the target declares `without: [upstream]`"
    }
    assert exit_code(findings(SOUND), own) is ExitCode.PASSED


def test_checks_with_one_reason_share_a_row() -> None:
    rows = groups(prospects(seen(asked(Kind.BURST, "flood", 5))))
    assert list(dict.fromkeys(about for about, _, _ in rows)) == ["decidable", "perhaps", "not decidable"]
    assert len({because for _, _, because in rows}) == len(rows)
    assert sum(len(names) for _, names, _ in rows) == len(checks.SEAM.names())


WORDS = st.text("ab -\n", max_size=3)
ANSWERS = st.builds(
    Asked,
    kind=st.sampled_from(Kind),
    tenant=st.sampled_from(TENANTS),
    seq=st.integers(0, 5),
    input_tokens=st.just(24),
    outcome=st.sampled_from(Outcome),
    status=st.sampled_from([0, 200, 401, 429, 500, 503]),
    failure=st.none() | WORDS,
    http_version=WORDS,
    media_type=WORDS | st.just("text/event-stream"),
    retry_after=st.none() | WORDS,
    reason=st.none() | WORDS,
    usage=st.booleans(),
    text_ns=st.lists(st.integers(0, 10**9), max_size=3).map(lambda times: tuple(sorted(times))),
    clock_skew_s=st.none() | st.floats(-1e12, 1e12),
)
PLACES = st.none() | st.integers(0, 1)
SEEN = st.builds(
    Seen,
    tenants=st.just(TENANTS),
    asked=st.lists(ANSWERS, max_size=6).map(tuple),
    provider_takes=st.just("slots 16"),
    calls=st.lists(st.builds(Call, tenant=PLACES, seq=PLACES, input_tokens=st.integers(0, 30))).map(tuple),
    upstream_keys=st.none() | st.integers(1, 3),
    promises=st.none()
    | st.builds(
        Promises,
        known=st.frozensets(st.sampled_from(Truth)),
        denied=st.frozensets(st.sampled_from(sorted(DENIED_BY))),
    ),
)


@settings(deadline=None)  # the first example loads all checks
@given(SEEN)
def test_whatever_was_seen_has_a_sentence_each(whatever: Seen) -> None:
    found = findings(whatever)
    assert len({one.about for one in found}) == len(found) == len(findings(SOUND))
    assert all(one.said for one in found)
    assert len(prospects(whatever)) == len(checks.SEAM.names())


@settings(deadline=None)  # the first example loads all checks
@given(SEEN)
def test_without_a_call_at_our_provider_no_check_of_its_ledger_is_promised(whatever: Seen) -> None:
    blind = Seen(tenants=TENANTS, asked=whatever.asked, calls=())
    for one in prospects(blind):
        if checks.SEAM.get(one.check).needs_ledger:
            assert one.chance is Chance.NO


def test_of_somebody_elses_provider_only_what_clients_see_is_promised() -> None:
    foreign = msgspec.structs.replace(SOUND, external=True, calls=(), upstream_keys=None)
    found = findings(foreign)
    assert {one.about for one in found} & {"marker", "identity upstream", "client leaves"} == set()
    assert exit_code(found) is ExitCode.PASSED, "nothing is wrong with it"
    for one in prospects(foreign):
        check = checks.SEAM.get(one.check)
        if check.needs_ledger or check.needs_attribution:
            promised = Chance.NO if check.without_ledger is WithoutLedger.NOTHING else Chance.PERHAPS
            assert one.chance is promised, one.check
    chances = {one.check: one.chance for one in prospects(foreign)}
    assert chances["victim-latency"] is chances["refusal-latency"] is Chance.YES
    assert chances["own-answer"] is Chance.NO
