"""report.json's content: counts add up, latencies do not flatter, shares tell who was robbed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import report_run
from agentload import report
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.model import Outcome, RequestRecord, Run, Status
from agentload.report import facts
from agentload.report.json_report import JsonReport
from json_schema import problems

SCHEMA: dict[str, Any] = json.loads((Path(report.__file__).parent / "schema.json").read_text())


def summary(fair: bool = True) -> dict[str, Any]:
    return report_run.result(fair).summary


def without_ledger(run: Run) -> Run:
    return msgspec.structs.replace(run, ledger=[], ledger_available=False, samples=[])


def empty() -> Run:
    return RunBuilder(profile()).run()


RUNS = {
    "fair": lambda: report_run.run(True),
    "fifo": lambda: report_run.run(False),
    "foreign provider": lambda: without_ledger(report_run.run(True)),
    "empty": empty,
    "many": lambda: report_run.run(tenants=(*(f"shot-{k}" for k in range(20)), "flood")),
    "fault": report_run.with_fault,
}


@pytest.mark.parametrize("name", RUNS)
def test_every_report_fits_its_schema(name: str) -> None:
    result = report.Result.of(RUNS[name](), report_run.verdicts(), Status.PASSED)
    document = json.loads(JsonReport().render(result))
    assert list(problems(document, SCHEMA, SCHEMA)) == []
    assert document == msgspec.to_builtins(result.summary), "nothing is lost: no infinities, no NaN"


def test_the_schema_can_tell() -> None:
    good = json.loads(JsonReport().render(report_run.result()))
    for spoil in (
        lambda d: d.pop("plan"),
        lambda d: d["tenants"]["flood"].pop("work_share"),
        lambda d: d["tenants"]["flood"]["latency_ms"].update(p50="fast"),
        lambda d: d["checks"][0].update(status="maybe"),
        lambda d: d.update(extra=1),
        lambda d: d["hidden_queue"].update(gauge=3),
    ):
        document = json.loads(json.dumps(good))
        spoil(document)
        assert list(problems(document, SCHEMA, SCHEMA)), spoil


def test_endings_add_up_to_what_was_offered() -> None:
    for fair in (True, False):
        found = summary(fair)
        for tenant in found["tenants"].values():
            assert sum(tenant[str(outcome)] for outcome in Outcome) == tenant["offered"]
        offered = sum(phase["offered"] for phase in found["phases"] if phase["recorded"])
        assert offered == sum(tenant["offered"] for tenant in found["tenants"].values())
        assert sum(sum(lane["offered"]) for lane in found["series"]["lanes"].values()) == sum(
            phase["offered"] for phase in found["phases"]
        )


def test_the_warm_up_is_in_the_phases_but_not_in_the_tenants() -> None:
    found = summary()
    warm_up = found["phases"][0]
    assert (warm_up["name"], warm_up["recorded"], warm_up["offered"]) == ("warm-up", False, 60)
    assert "warm-up" not in found["spectrum"]["quiet-1"]


def test_a_refused_request_is_infinitely_late_and_the_answered_ones_stand_beside_it() -> None:
    flood = summary()["tenants"]["flood"]
    assert flood["latency_ms"]["p50"] is None
    assert flood["latency_ms"]["censored"]
    assert flood["answered_latency_ms"]["p95"] > 1000
    assert flood["acceptance"] == pytest.approx(flood["answered"] / flood["offered"], abs=1e-6)


def test_a_percentile_without_enough_samples_is_null_and_not_censored() -> None:
    quiet = summary()["tenants"]["quiet-1"]["latency_ms"]
    assert quiet["n"] == 261
    assert quiet["p95"] is not None
    assert quiet["p99"] is None
    assert not quiet["censored"]


def test_shares_show_who_was_robbed() -> None:
    fair, fifo = summary(True)["tenants"], summary(False)["tenants"]
    for name in report_run.QUIET:
        assert fair[name]["work_share"] == pytest.approx(fair[name]["entitled_share"], abs=0.02)
        assert fifo[name]["work_share"] < 0.5 * fifo[name]["entitled_share"]
        assert fifo[name]["entitled_share"] == pytest.approx(fair[name]["entitled_share"], abs=0.03)
    for tenants in (fair, fifo):
        assert sum(t["work_share"] for t in tenants.values()) == pytest.approx(1, abs=0.001)
        assert sum(t["entitled_share"] for t in tenants.values()) == pytest.approx(1, abs=0.01)


def test_the_hidden_queue_agrees_with_the_gauge() -> None:
    queue = summary()["hidden_queue"]
    assert queue["max_depth"] == report_run.QUEUE
    assert queue["gauge"]["depth_difference_median"] <= 1
    assert queue["gauge"]["depth_difference_p95"] <= 3


def test_downsampling_keeps_the_worst() -> None:
    found = summary()
    series = found["series"]["hidden_queue"]
    assert max(series["depth"]) == found["hidden_queue"]["max_depth"]
    assert max(series["age_ms"]) == pytest.approx(found["hidden_queue"]["max_age_ms"], abs=series["bucket_s"])
    answered = [r for r in report_run.run().records if r.outcome is Outcome.ANSWERED]
    worst = max((r.ended_ns - r.first_due_ns) / 1e6 for r in answered)
    shown = [v for lane in found["series"]["lanes"].values() for v in lane["latency_max_ms"] if v is not None]
    assert max(shown) == pytest.approx(worst, abs=0.001)


def test_the_providers_side() -> None:
    found = summary()["provider"]
    run = report_run.run()
    assert found["offered"] == found["admitted"] == found["completed"] == len(run.ledger)
    assert found["busiest_phase"] == "noise"
    in_noise = sum(18e9 <= call.arrived_ns < 33e9 for call in run.ledger)
    assert found["utilisation"] == pytest.approx(in_noise * report_run.TOKENS / (6400 * 15), abs=0.001)
    assert found["peak_in_service"] == report_run.SLOTS


def test_the_spectrum_ends_where_answers_do() -> None:
    curve = summary(False)["spectrum"]["quiet-1"]["noise"]
    assert curve["answered_share"] < 0.5
    shares = [share for share, _ in curve["points"]]
    durations = [ms for _, ms in curve["points"]]
    assert shares == sorted(shares)
    assert durations == sorted(durations)
    assert shares[-1] == curve["answered_share"]


def test_without_a_ledger_shares_come_from_the_clients() -> None:
    found = facts.summarise(without_ledger(report_run.run()), [], Status.INCONCLUSIVE)
    assert found["shares"]["measured_by"] == "client"
    assert found["hidden_queue"]["max_depth"] is None
    assert not found["provider"]["available"]
    assert found["tenants"]["flood"]["work_share"] > 0.5


def test_retries_are_counted_beside_requests() -> None:
    run = RunBuilder(profile(tenants={"a": 1.0})).run()
    refused = RequestRecord(
        seq=0,
        attempt=0,
        tenant="a",
        service_class="standard",
        phase="load",
        due_ns=0,
        first_due_ns=0,
        sent_ns=0,
        ended_ns=10,
        outcome=Outcome.REJECTED,
        final=False,
        reason="full",
        wait_cause="retry_storm",
    )
    answered = msgspec.structs.replace(
        refused,
        attempt=1,
        due_ns=1000,
        sent_ns=1000,
        ended_ns=2_000_000,
        final=True,
        reason=None,
        wait_cause=None,
    )
    answered.outcome = Outcome.ANSWERED
    records = [answered, refused]
    summary = facts.summarise(msgspec.structs.replace(run, records=records), [], Status.PASSED)
    found = summary["tenants"]["a"]
    assert (found["offered"], found["answered"], found["rejected"]) == (1, 1, 0)
    assert (found["attempts"], found["retries"], found["refused_attempts"]) == (2, 1, 1)
    assert found["reasons"] == {"full": 1}
    assert found["wait_causes"] == {"retry_storm": 1}


def test_faults_are_those_of_the_profile() -> None:
    found = facts.summarise(report_run.with_fault(), [], Status.PASSED)["faults"]
    assert found == [{"name": "outage", "start_s": 20.0, "end_s": 24.5}]
    assert summary()["faults"] == []


def test_many_of_one_kind_are_summed_up_as_a_group() -> None:
    run = report_run.run(tenants=(*(f"shot-{k}" for k in range(7)), "flood"))
    found = facts.summarise(run, [], Status.PASSED)
    assert set(found["groups"]) == {"shot"}, "one flood is no crowd"
    group, members = found["groups"]["shot"], [found["tenants"][f"shot-{k}"] for k in range(7)]
    assert group["tenants"] == 7
    for count in ("offered", "answered", "rejected", "attempts", "output_tokens"):
        assert group[count] == sum(member[count] for member in members)
    assert group["work_share"] == pytest.approx(sum(m["work_share"] for m in members), abs=1e-3)
    assert summary()["groups"] == {}


def test_the_bundled_gateways_policy_is_part_of_the_target() -> None:
    run = report_run.run()
    run.meta["target"] = {"kind": "bundled"}
    assert facts.summarise(run, [], Status.PASSED)["target"] == {"kind": "bundled", "policy": "sfq"}
    run.meta["target"] = {"kind": "url", "url": "http://127.0.0.1:1"}
    assert facts.summarise(run, [], Status.PASSED)["target"] == run.meta["target"]


def test_checks_are_there_with_all_their_numbers() -> None:
    checks = {check["check"]: check for check in summary(False)["checks"]}
    assert checks["victim-latency"]["measured"] is None
    assert checks["victim-latency"]["censored"]
    assert checks["bounded-queue"]["evidence"] == [
        {"note": "deepest", "at_ns": 24_000_000_000},
        {"note": "oldest waiter", "seq": 77, "at_ns": 30_000_000_000},
    ]
    assert checks["retry-after-spread"]["severity"] == "should"
