"""What could have started by a gateway's own rules, counted with a pencil: units, gathering, the unknown."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from agentload.checks.work_conserving import WorkConserving
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.widths import Widths
from agentload.model import Outcome, RequestRecord, Run, Spec, Status
from agentload.promises import Promises, Truth
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig
from fake_provider.config import ProviderConfig

KNOWN = frozenset({Truth.SLOTS, Truth.TENANT_SLOTS, Truth.CLASSES, Truth.UPSTREAM})
UNITS = 1_000_000


@dataclass
class Told:
    """What the gateway was told of its one pool of four slots."""

    units: float = 100.0
    min_units: float = 0.0
    gather_after_s: float = 1_000.0

    def gateway(self) -> GatewayConfig:
        classes = {
            "standard": ClassConfig(nominal_share=0.5),
            "absent": ClassConfig(min_units=self.min_units),
        }
        pool = PoolConfig(
            slots=4,
            tenant_slots=4,
            capacity_units=self.units,
            gather_after_s=self.gather_after_s,
            classes=classes,
        )
        return GatewayConfig(pools={"shared": pool})


def one_works_and_one_waits(told: Told) -> Run:
    """One call of 100 declared tokens after another, 20 tokens of prompt each, and one of b that waits on."""
    of = profile(phases={"load": 4.0}, provider=ProviderConfig(slots=4))
    build = RunBuilder(of.model_copy(update={"gateway": told.gateway()}))
    for k in range(40):
        build.answered("a", 100 * k, service_ms=100).declared_output_tokens = 100
    waiting = build.ended("b", 0, Outcome.UNFINISHED, after_ms=4_000)
    waiting.declared_output_tokens, waiting.input_tokens = 100, 20
    return build.run()


def status(run: Run) -> Status:
    return WorkConserving().judge(run).status


def test_what_does_not_fit_into_the_units_that_are_left_is_not_kept_from_a_slot() -> None:
    # A call is 100 + 2.5 × 20 tokens at most: 0.15 units. One works, so 0.3 units are needed for two.
    assert status(one_works_and_one_waits(Told(units=0.31))) is Status.FAILED
    assert status(one_works_and_one_waits(Told(units=0.29))) is Status.PASSED


def test_units_that_are_kept_for_an_absent_class_are_not_left() -> None:
    assert status(one_works_and_one_waits(Told(units=0.39, min_units=0.08))) is Status.FAILED
    assert status(one_works_and_one_waits(Told(units=0.39, min_units=0.097))) is Status.PASSED


def test_while_a_wide_job_gathers_units_nothing_else_has_to_start() -> None:
    # b needs 0.95 units of the one that there is; a's calls take 0.15 of it, and one of c could go.
    def run(gather_after_s: float) -> Run:
        of = profile(
            phases={"load": 4.0}, tenants=dict.fromkeys("abc", 1.0), provider=ProviderConfig(slots=4)
        )
        told = Told(units=1.0, gather_after_s=gather_after_s)
        build = RunBuilder(of.model_copy(update={"gateway": told.gateway()}))
        for k in range(40):
            build.answered("a", 100 * k, service_ms=100).declared_output_tokens = 100
        for tenant, tokens in (("b", 900), ("c", 100)):
            waiting = build.ended(tenant, 0, Outcome.UNFINISHED, after_ms=4_000)
            waiting.declared_output_tokens, waiting.input_tokens = tokens, 20
        return build.run()

    assert status(run(1_000)) is Status.FAILED
    assert status(run(0)) is Status.PASSED


def test_units_that_a_target_does_not_declare_excuse_nothing() -> None:
    run = one_works_and_one_waits(Told(units=0.29))
    run.promises = Promises(known=KNOWN)
    assert status(run) is Status.PASSED, "declared"
    pool = PoolConfig(slots=4, tenant_slots=4, classes={"standard": ClassConfig()})
    told = run.profile.model_copy(update={"gateway": GatewayConfig(pools={"shared": pool})})
    assert status(msgspec.structs.replace(run, profile=told)) is Status.FAILED, "not declared"


@pytest.mark.parametrize(
    ("declared", "tokens"),
    [
        (100, 100),
        (10, 20),  # what it was given is longer than what it declared
        (None, 256),  # the gateway's own default
    ],
)
def test_a_request_is_as_wide_as_it_may_be_at_most(declared: int | None, tokens: int) -> None:
    record, run = _answered(declared)
    assert Widths(run).of(record) == pytest.approx((20 * 2.5 + tokens) / 1_000 * UNITS)


def test_tools_that_are_declared_widen_it_by_the_widest_part_of_a_mix() -> None:
    record, run = _answered(
        100, {"parts": [{"share": 0.5, "tool_calls": 4}, {"share": 0.5, "tool_seconds": 5}]}
    )
    assert Widths(run).of(record) == pytest.approx((0.15 + 1.0) * UNITS)


def _answered(declared: int | None, workload: dict[str, object] | None = None) -> tuple[RequestRecord, Run]:
    of = profile(tenants={"a": 1.0})
    tenant = of.tenants[0].model_copy(update={"workload": Spec(kind="mix", params=workload or {})})
    build = RunBuilder(of.model_copy(update={"tenants": (tenant,)}))
    record = build.answered("a", 0, output_tokens=20)
    record.declared_output_tokens = declared
    return record, build.run()
