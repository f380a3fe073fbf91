"""The stretches of a run in which tenants really competed: all of them backlogged, all the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agentload.checks import Check
from agentload.evidence.fairness import (
    Measure,
    Service,
    all_backlogged,
    backlog,
    last_ns,
    peak_in_service,
    services,
    within,
    work_of,
)
from agentload.evidence.hidden_queue import waits
from agentload.evidence.history import counted_phases, tenant_names
from agentload.evidence.intervals import Interval, clip, length_ns, longest
from agentload.evidence.verdicts import conclude, listed, undecided
from agentload.model import NS, Evidence, Run, Status, Verdict, worst

NEARLY_ALL = 0.9
_SHARED: Mapping[Measure, str] = {
    "tokens": "the work",
    "charged": "the charged tokens",
    "requests": "the calls",
    "seconds": "the time in service",
}


class Contest(msgspec.Struct, frozen=True):
    """The longest stretch of one phase in which all compared tenants were backlogged."""

    phase: str
    weights: dict[str, float]
    """The tenants compared, in the profile's order."""
    window: Interval
    services: Sequence[Service]
    """What the provider took up for them in the window, in order."""
    in_service: int
    """C: the most calls at the provider at once."""
    costs: dict[str, float]
    """cmax: the dearest call of each tenant, in the measure's unit."""
    shared: str
    """What was divided, in words."""

    @property
    def seconds(self) -> float:
        """Length of the stretch."""
        return (self.window[1] - self.window[0]) / NS

    @property
    def work(self) -> float:
        """All that was served in it, in the measure's unit."""
        return sum(service.work for service in self.services)


def contests(
    run: Run, tenants: Sequence[str], phases: Sequence[str], measure: Measure
) -> tuple[list[Contest], list[str]]:
    """One contest for each phase (by default, every recorded one) that had one, and the phases without.

    Only the longest stretch of a phase counts: each further one would add its own error bound.
    """
    found: list[Contest] = []
    without: list[str] = []
    waiting = backlog(waits(run.records, run.ledger))
    served = services(run.ledger, measure)
    for phase in phases or counted_phases(run):
        names = tenant_names(run, tenants, phase)
        if len(names) < 2:
            without.append(phase)
            continue
        window = longest(all_backlogged(waiting, names, run.profile.phase_window_ns(phase)))
        if window is None:
            without.append(phase)
        else:
            found.append(contest_in(run, phase, names, window, served, measure))
    return found, without


def contest_in(
    run: Run, phase: str, names: Sequence[str], window: Interval, served: Sequence[Service], measure: Measure
) -> Contest:
    """What happened in one window, in which all of `names` were backlogged; `served` as of `services`."""
    compared = set(names)
    mine = [service for service in within(served, window) if service.tenant in compared]
    return Contest(
        phase=phase,
        weights={t.name: t.weight for t in run.profile.tenants if t.name in compared},
        window=window,
        services=mine,
        in_service=peak_in_service(run.ledger, window),
        costs=_dearest(run, mine, names, phase, measure),
        shared=_SHARED[measure],
    )


def _dearest(
    run: Run, served: Sequence[Service], names: Sequence[str], phase: str, measure: Measure
) -> dict[str, float]:
    """The dearest call of each tenant: as served, or as asked for by one that was never served."""
    costs = dict.fromkeys(names, 0.0)
    for service in served:
        costs[service.tenant] = max(costs[service.tenant], service.work)
    never = {tenant for tenant, cost in costs.items() if cost == 0}
    per_token = _per_token(run, measure) if never else 0.0
    for record in run.records:
        if record.tenant in never and record.phase == phase:
            asked = (record.input_tokens + record.planned_output_tokens) * per_token
            costs[record.tenant] = max(costs[record.tenant], 1.0 if measure == "requests" else asked)
    return costs


def _per_token(run: Run, measure: Measure) -> float:
    """What a token costs, at the dearest: of a call that was never made only its tokens are known."""
    if measure != "seconds":
        return 1.0
    until_ns = last_ns(run.ledger)
    return max(
        (
            work_of(call, measure, until_ns) / tokens
            for call in run.ledger
            if (tokens := call.input_tokens + call.output_tokens)
        ),
        default=1.0,
    )


def contest_from(
    run: Run,
    phase: str,
    window: Interval,
    waiting: Mapping[str, list[Interval]],
    served: Sequence[Service],
    measure: Measure,
) -> Contest | None:
    """The contest of all tenants that were backlogged for nearly all of a window; None when fewer than two
    were. `waiting` is of `backlog`. One-shot tenants and those that keep under their share drop out."""
    names = [
        name
        for name in tenant_names(run, (), phase)
        if length_ns(clip(waiting.get(name, []), window)) >= NEARLY_ALL * (window[1] - window[0])
    ]
    common = longest(all_backlogged(waiting, names, window)) if len(names) > 1 else None
    return None if common is None else contest_in(run, phase, names, common, served, measure)


class PhaseResult(msgspec.Struct, frozen=True):
    """What a check found in one contest."""

    phase: str
    status: Status
    because: str
    measured: float
    bound: float
    n: int
    contested: bool
    """False when the stretch is too short to tell: such a phase does not count unless it was named."""
    evidence: list[Evidence]
    details: dict[str, Any]


def conclude_phases(
    check: Check, results: Sequence[PhaseResult], without: Sequence[str], named: Sequence[str], unit: str
) -> Verdict:
    """One verdict over the phases: the worst decides.

    When phases were `named`, each of them must have been decidable; otherwise those without a real contest
    are passed over, and at least one must have had one.
    """
    details = {"phases": {result.phase: result.details for result in results}}
    usable = [r for r in results if named or r.contested or r.status is Status.FAILED]
    status = worst([r.status for r in usable])
    if without and named and status is not Status.FAILED:
        status = Status.INCONCLUSIVE
    counted = usable or results
    candidates = [r for r in counted if r.status is status] or counted
    if not candidates:
        return undecided(check, _why_not((), without), details=details)
    decisive = max(candidates, key=lambda r: r.measured / r.bound)
    return conclude(
        check,
        status,
        _why_not(counted, without if named else ()) if status is Status.INCONCLUSIVE else decisive.because,
        measured=decisive.measured,
        bound=decisive.bound,
        unit=unit,
        n=decisive.n,
        evidence=decisive.evidence,
        details=details,
    )


def _why_not(results: Sequence[PhaseResult], without: Sequence[str]) -> str:
    reasons = [r.because for r in results if r.status is Status.INCONCLUSIVE]
    if without:
        reasons.append(f"the tenants were never all backlogged at once in {listed(without)}")
    return f"{'; '.join(reasons)}: more users per tenant or a longer phase would decide"
