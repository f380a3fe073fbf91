"""What a target declares: read with its places, put where a profile speaks of its gateway, and judged by."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentload import order, plan, profile, rundir, targets
from agentload.checks import SEAM, Check
from agentload.checks.bounded_queue import BoundedQueue
from agentload.errors import ProfileError
from agentload.judge import UNDECLARED, judge
from agentload.model import Run, Severity, Spec, Status
from agentload.promises import DENIED_BY, SAID_BY, WITHOUT, Promises, Truth
from agentload.rundir import RunDir
from agentload.targets._declares import as_declared
from agentload.targets._metrics import values_named
from fake_provider.config import ProviderConfig

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE
TARGET = "base_url: http://127.0.0.1:8080\n"


def target_with(section: str, folder: Path) -> targets.Target:
    file = folder / "gateway.yaml"
    file.write_text(TARGET + section)
    return targets.load(str(file), {})


def declared(run: Run, section: dict[str, Any] | str | None) -> Run:
    """The same recorded run, as that of somebody's gateway that declares so much."""
    target = {"host": "127.0.0.1", "name": "gateway.yaml", "declares": section}
    judged, promises = as_declared(run.profile, target)
    return msgspec.structs.replace(run, profile=judged, promises=promises)


def status_of(check: Check, run: Run) -> tuple[Status, str]:
    spec = Spec(kind=_name(check), params=check.model_dump(mode="json", exclude_defaults=True))
    [verdict] = judge(
        msgspec.structs.replace(run, profile=run.profile.model_copy(update={"checks": (spec,)}))
    )
    return verdict.status, verdict.because


def _name(check: Check) -> str:
    return next(name for name in SEAM.names() if SEAM.get(name) is type(check))


# --------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("section", "line"),
    [
        (
            "declares: everything\n",
            "2:11: declares: must be a mapping, or the word profile, got 'every",
        ),
        ("declares: {slotz: 3}\n", "2:12: declares.slotz: unknown key (did you mean 'slots'?)"),
        ("declares:\n  slots: 0\n", "3:10: declares.slots: must be >= 1, got 0"),
        (
            "declares:\n  tenants:\n    a: {weight: -2}\n",
            "4:17: declares.tenants.a.weight: must be > 0, got -2",
        ),
        ("declares: {queue: {}}\n", "2:19: declares.queue: needs requests or age_s"),
        ("declares: {upstream: {bucket_s: 2}}\n", "2:22: declares.upstream: needs tokens_per_minute or requ"),
        ("declares: {fairness: luck}\n", "2:22: declares.fairness: "),
        (
            "declares: {pools: {a: {slots: 2}}, slots: 2}\n",
            "2:11: declares: has pools: say slots",
        ),
        (
            "declares: {without: [class]}\n",
            "2:21: declares.without: no promise is called 'class' (did you mean 'classes'?)",
        ),
        (
            "declares: {without: [slots], slots: 3}\n",
            "2:11: declares: says something of slots, and `without: [slots]`: leave out one of the two",
        ),
        (
            "declares: {fairness: none, each_tenant: {weight: 2}}\n",
            "2:11: declares: has weights, and fairness: none",
        ),
        (
            "declares: {classes: {a: {min_units: 60}, b: {min_units: 60}}}\n",
            "2:11: declares: the classes' min",
        ),
        ("declares: {jobs: {max_attempts: 2}}\n", "2:18: declares.jobs"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(section: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as raised:
        target_with(section, tmp_path)
    assert any(f"gateway.yaml:{line}" in one for one in raised.value.lines), raised.value.lines


def test_a_tenant_that_no_profile_has_is_told_with_its_place_and_a_guess(tmp_path: Path) -> None:
    target = target_with("declares:\n  tenants:\n    quite: {weight: 2}\n", tmp_path)
    with pytest.raises(ProfileError) as raised:
        order.prepare(order.Options(profile="noisy-neighbor", target=target.name))
    [line] = raised.value.lines
    assert line.endswith("gateway.yaml:4:5: declares.tenants.quite: no such tenant (did you mean 'quiet'?)")


def test_one_target_file_may_name_the_tenants_of_several_profiles(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(profile.find("steady").read_text().replace("name: search", "name: only-mine"))
    section = "declares:\n  tenants: {quiet: {weight: 2}, gold: {weight: 5}, only-mine: {weight: 1}}\n"
    options = order.Options(profile="noisy-neighbor", target=target_with(section, tmp_path).name)
    with pytest.raises(ProfileError, match="only-mine"):
        order.prepare(options)
    order.prepare(msgspec.structs.replace(options, beside=(str(mine),)))


# --------------------------------------------------------------------------- what follows


def chosen() -> profile.Profile:
    return profile.load(profile.find("noisy-neighbor"))


def put(section: dict[str, Any] | str | None) -> tuple[profile.Profile, Promises | None]:
    return as_declared(chosen(), {"host": "127.0.0.1", "name": "gateway.yaml", "declares": section})


def test_nothing_that_the_profile_says_of_its_gateway_is_left_where_nothing_is_declared() -> None:
    told = chosen().model_copy(update={"provider": ProviderConfig()})
    gateway = told.gateway.model_copy(update={"pools": {}, "tenants": {}})
    heavy = tuple(tenant.model_copy(update={"weight": 7.0}) for tenant in told.tenants)
    other = told.model_copy(update={"gateway": gateway, "tenants": heavy})
    silent = {"host": "127.0.0.1", "name": "http://127.0.0.1:8080"}
    assert as_declared(told, silent) == as_declared(other, silent)
    assert as_declared(told, silent)[1] == Promises(where="a target file (`agentload init` writes one)")


def test_the_bundled_gateway_and_one_declared_like_it_are_known_whole() -> None:
    assert put("profile") == (chosen(), None)
    assert as_declared(chosen(), {"kind": "bundled"}) == (chosen(), None)
    assert as_declared(chosen(), {}) == (chosen(), None)


def test_a_tenant_is_promised_what_its_name_its_group_or_everybody_is() -> None:
    section = {
        "each_tenant": {"requests_per_minute": 60, "slots": 4},
        "tenants": {"quiet": {"weight": 2}, "quiet-3": {"weight": 3, "slots": 5}},
    }
    judged, promises = put(section)
    assert promises is not None
    assert promises.known == {Truth.WEIGHTS, Truth.TENANT_LIMITS, Truth.TENANT_SLOTS}
    assert {t.name: t.weight for t in judged.tenants} == {
        "quiet-1": 2,
        "quiet-2": 2,
        "quiet-3": 3,
        "flood": 1,
    }
    contracts = judged.gateway.tenants
    assert {name: one.slots for name, one in contracts.items()} == {
        "quiet-1": 4,
        "quiet-2": 4,
        "quiet-3": 5,
        "flood": 4,
    }
    assert {one.requests_per_minute for one in contracts.values()} == {60}


def test_a_queue_is_as_long_as_declared_over_all_classes() -> None:
    section = {"queue": {"requests": 90, "age_s": 4}, "classes": {"standard": {}, "batch": {}}, "slots": 8}
    judged, promises = put(section)
    assert promises is not None
    assert promises.known == {Truth.QUEUE_REQUESTS, Truth.QUEUE_AGE, Truth.CLASSES, Truth.SLOTS}
    [pool] = judged.gateway.pools.values()
    assert pool.slots == 8
    assert sum(one.max_queue for one in pool.classes.values()) == 90
    assert {one.max_wait_s for one in pool.classes.values()} == {4}


def test_pools_are_written_as_the_gateway_has_them() -> None:
    pools = {"shared": {"slots": 16}, "own": {"slots": 8, "classes": {"contract": {"max_queue": 64}}}}
    judged, promises = put({"pools": pools})
    assert promises is not None
    assert promises.known == {Truth.POOLS, Truth.SLOTS, Truth.CLASSES, Truth.QUEUE_REQUESTS}
    assert {name: pool.slots for name, pool in judged.gateway.pools.items()} == {"shared": 16, "own": 8}


def test_the_rest_is_put_where_a_gateway_is_told_it() -> None:
    section = {
        "budgets": {"run": {"tokens": 500}},
        "upstream": {"tokens_per_minute": 6000, "bucket_s": 2},
        "max_attempts": 3,
        "idempotency_keys": True,
        "jobs": {"lease_s": 2},
        "deadlines": True,
        "retry_after": True,
        "max_request_tokens": 900,
        "fairness": "seconds",
    }
    judged, promises = put(section)
    gateway = judged.gateway
    assert promises is not None
    assert promises.known == set(Truth) - {
        *(Truth.SLOTS, Truth.TENANT_SLOTS, Truth.TENANT_LIMITS, Truth.CLASSES, Truth.POOLS),
        *(Truth.QUEUE_REQUESTS, Truth.QUEUE_AGE),
    }
    assert (promises.fairness, promises.max_request_tokens) == ("seconds", 900)
    assert gateway.budgets.run is not None
    assert gateway.jobs is not None
    assert (gateway.budgets.run.tokens, gateway.jobs.lease_s, gateway.retry.max_attempts) == (500, 2, 3)
    assert (gateway.upstream.tokens_per_minute, gateway.upstream.bucket_s) == (6000, 2)


_SWITCHES = ("deadlines", "retry_after", "idempotency_keys", "jobs")


def test_every_truth_can_be_said_and_every_denial_is_understood() -> None:
    assert set(SAID_BY) == set(Truth)
    section = {
        "fairness": "none",
        "deadlines": False,
        "retry_after": False,
        "idempotency_keys": False,
        "jobs": False,
        "without": [word for word in WITHOUT if word not in ("weights", *_SWITCHES)],
    }
    promises = put(section)[1]
    assert promises is not None
    assert promises.denied == set(DENIED_BY) == set(Truth)
    assert not promises.known


def test_a_run_folder_keeps_what_was_declared(tmp_path: Path) -> None:
    target = target_with("declares:\n  tenants: {quiet: {weight: 2}}\n  slots: 4\n", tmp_path)
    steady = chosen()
    drawn = plan.draw(steady, 1)
    manifest = rundir.manifest_of(steady, drawn, "live", datetime.now(), target=target.to_dict())
    folder = RunDir.create("any", datetime.now(), out=tmp_path / "run")
    empty = SEAM.get("status-codes").too_few()[1]
    folder.save(empty, manifest)
    loaded = rundir.load(folder.path)
    assert loaded.promises is not None
    assert loaded.promises.known == {Truth.WEIGHTS, Truth.SLOTS}
    assert loaded.promises.where.endswith("gateway.yaml")
    assert loaded.shows == set()
    assert [tenant.weight for tenant in loaded.profile.tenants] == [2, 2, 2, 1]
    assert loaded.plan == drawn
    again = targets.Target.from_dict(target.to_dict(), {})
    assert again == replace(target, declared_at={})


# --------------------------------------------------------------------------- judging


@pytest.mark.parametrize("name", SEAM.names())
def test_a_check_decides_nothing_by_what_was_never_promised(name: str) -> None:
    check, run = SEAM.get(name).example()
    known = status_of(check, run)[0]
    status, because = status_of(check, declared(run, None))
    if check.rests():
        assert status is INCONCLUSIVE
        assert because.startswith("the target declares no ")
        assert any(f"declares.{SAID_BY[truth]}" in because for truth in check.rests())
        assert "(or `declares: profile`) in gateway.yaml" in because
    else:
        assert status is known, because
    assert status_of(check, declared(run, "profile"))[0] is known


def test_what_is_known_not_to_be_promised_is_said() -> None:
    check, run = SEAM.get("weighted-share").counterexample()
    status, because = status_of(check, declared(run, {"fairness": "none"}))
    assert status is INCONCLUSIVE
    assert because.startswith("the target declares `fairness: none`")


@pytest.mark.parametrize(("section", "severity"), [(None, "must"), ({"fairness": "none"}, "should")])
def test_what_a_target_declines_outright_fails_no_run(section: dict[str, str] | None, severity: str) -> None:
    _, run = SEAM.get("weighted-share").counterexample()
    named = declared(run, section)
    alone = named.profile.model_copy(update={"checks": (Spec(kind="weighted-share"),)})
    [verdict] = judge(msgspec.structs.replace(named, profile=alone))
    assert (verdict.status, verdict.severity) == (INCONCLUSIVE, severity)


def test_a_verdict_that_no_other_run_would_decide_says_so() -> None:
    check, run = SEAM.get("deadline").example()
    spec = Spec(kind="deadline")
    silent = declared(run, None)
    alone = silent.profile.model_copy(update={"checks": (spec,)})
    [verdict] = judge(msgspec.structs.replace(silent, profile=alone))
    assert verdict.details[UNDECLARED] == ["deadlines"]
    assert check.rests() == {Truth.DEADLINES}


@pytest.mark.parametrize(
    ("name", "section", "says"),
    [
        ("provider-limit", None, " (judged without declares.upstream, which the target does not say)"),
        (
            "status-codes",
            None,
            " (judged without declares.max_attempts and declares.max_request_tokens, which the target does "
            "not say)",
        ),
        (
            "status-codes",
            {"max_attempts": 2},
            " (judged without declares.max_request_tokens, which the target does not say)",
        ),
        (
            "provider-limit",
            {"without": ["upstream"]},
            " (judged without declares.upstream, which `without: [upstream]` leaves out)",
        ),
        ("provider-limit", "profile", None),
        ("work-conserving", None, None),  # a pass needs no more
    ],
)
def test_what_a_verdict_was_reached_without_is_said(name: str, section: Any, says: str | None) -> None:
    check, run = SEAM.get(name).example()
    status, because = status_of(check, declared(run, section))
    assert status is PASSED
    assert because.endswith(says) if says else "judged without" not in because


def test_what_a_verdict_was_reached_without_is_said_once_and_not_where_the_check_was_told() -> None:
    _, run = BoundedQueue.example()
    named = declared(run, None)
    _, because = status_of(BoundedQueue(), named)
    assert because.count("declares.queue.requests") == 1
    assert because.endswith(" (judged without declares.queue.age_s, which the target does not say)")
    _, because = status_of(BoundedQueue(), declared(run, {"without": ["queue"]}))
    assert because.endswith(
        "; the target declares no bound, so only growth and age are judged (judged without "
        "declares.queue.requests and declares.queue.age_s, which `without: [queue]` leaves out)"
    )
    assert "declares" not in status_of(BoundedQueue(max_depth=50, max_age_s=30), named)[1]


def test_an_undecided_verdict_is_not_said_to_be_judged() -> None:
    check, run = SEAM.get("provider-limit").too_few()
    status, because = status_of(check, declared(run, None))
    assert status is INCONCLUSIVE
    assert "judged without" not in because


# --------------------------------------------------------------------------- what is not asked


@pytest.mark.parametrize(
    ("name", "shows", "section", "severity"),
    [
        ("observable", None, "profile", Severity.MUST),  # the bundled gateway's
        (
            "observable",
            frozenset[str](),
            "profile",
            Severity.SHOULD,
        ),  # has been told all, and counts otherwise
        ("queue-age-alert", frozenset({"waiting"}), None, Severity.SHOULD),
        ("queue-age-alert", frozenset({"waiting", "oldest_age_s"}), None, Severity.MUST),
        (
            "bounded-memory",
            frozenset[str](),
            None,
            Severity.MUST,
        ),  # it has memory, whether it shows it or not
        ("retry-identity", frozenset[str](), None, Severity.SHOULD),
        (
            "retry-identity",
            frozenset[str](),
            {"max_attempts": 6},
            Severity.SHOULD,
        ),  # early retries are asked for
        ("retry-identity", frozenset[str](), {"idempotency_keys": True}, Severity.MUST),
        ("budget", frozenset[str](), None, Severity.MUST),
    ],
)
def test_what_only_few_gateways_say_is_asked_of_these_alone(
    name: str, shows: frozenset[str] | None, section: Any, severity: Severity
) -> None:
    check, run = SEAM.get(name).too_few()
    spec = Spec(kind=name, params=check.model_dump(mode="json", exclude_defaults=True))
    asked = run.profile.model_copy(update={"checks": (spec,)})
    run = declared(msgspec.structs.replace(run, profile=asked, shows=shows), section)
    [verdict] = judge(run)
    assert (verdict.status, verdict.severity) == (INCONCLUSIVE, severity)


def test_what_a_target_shows_is_what_its_file_names(tmp_path: Path) -> None:
    metrics = "metrics: {url: /metrics, waiting: queue, queue_age_s: age}\n"
    assert values_named({}) is None, "the bundled one"
    assert values_named(target_with("", tmp_path).to_dict()) == set()
    assert values_named(target_with("process: {pid: 12}\n", tmp_path).to_dict()) == {"resident_bytes"}
    both = target_with(f"{metrics}process: {{pid: 12}}\n", tmp_path)
    assert values_named(both.to_dict()) == {"waiting", "oldest_age_s", "resident_bytes"}
