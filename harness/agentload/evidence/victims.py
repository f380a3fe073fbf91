"""Victims with and without the noise: who is compared, and whether the comparison is worth anything."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from agentload.evidence.fairness import TRANSIT_NS
from agentload.evidence.hidden_queue import waits
from agentload.evidence.history import REFUSALS, LogicalRequest, latencies_ns, requests_of, tenant_names
from agentload.evidence.statistics import enough, percentile
from agentload.evidence.verdicts import listed, percent_of
from agentload.model import LedgerEntry, Outcome, RequestRecord, Run

TOLERATED = 0.01
"""Share of requests that may be refused, unanswered or unsent before a comparison is in doubt."""

_LEFT_WAITING = REFUSALS | {Outcome.ABANDONED, Outcome.UNFINISHED}


class Comparison(msgspec.Struct, frozen=True):
    """The victims' logical requests in both phases."""

    victims: list[str]
    baseline_phase: str
    noise_phase: str
    baseline: list[LogicalRequest]
    noise: list[LogicalRequest]

    def of(self, victim: str) -> tuple[list[LogicalRequest], list[LogicalRequest]]:
        """One victim's requests in the baseline and in the noise."""
        return (
            [r for r in self.baseline if r.tenant == victim],
            [r for r in self.noise if r.tenant == victim],
        )


def compare(run: Run, victims: Sequence[str], baseline: str, noise: str) -> Comparison:
    """The victims (by default: all tenants active in the baseline and in the noise) in both phases."""
    names = tenant_names(run, victims, baseline)
    if not victims:
        active = set(tenant_names(run, (), noise))
        names = [name for name in names if name in active]
    requests = requests_of(run, names)
    return Comparison(
        names,
        baseline,
        noise,
        [request for request in requests if request.phase == baseline],
        [request for request in requests if request.phase == noise],
    )


def invalid(run: Run, comparison: Comparison) -> str | None:
    """Why nothing follows from this comparison, with a hint; None when it is sound."""
    return (
        _no_victims(comparison)
        or _too_few(comparison)
        or _unsent(run, comparison)
        or _bad_baseline(comparison)
    )


def _no_victims(comparison: Comparison) -> str | None:
    if comparison.victims:
        return None
    return (
        f"no tenant is active both in '{comparison.baseline_phase}' and in '{comparison.noise_phase}': "
        "name the victims, or let them run in both phases"
    )


def _too_few(comparison: Comparison) -> str | None:
    fewest = min(len(comparison.baseline), len(comparison.noise))
    if enough(fewest, 95):
        return None
    return (
        f"only {len(comparison.baseline):,} requests of the victims in '{comparison.baseline_phase}' and "
        f"{len(comparison.noise):,} in '{comparison.noise_phase}': "
        "72 in each are needed (longer phases, or more load)"
    )


def _unsent(run: Run, comparison: Comparison) -> str | None:
    victims, phases = set(comparison.victims), {comparison.baseline_phase, comparison.noise_phase}
    mine = [r for r in run.records if r.tenant in victims and r.phase in phases]
    unsent = sum(record.outcome is Outcome.UNSENT for record in mine)
    if unsent <= TOLERATED * len(mine):
        return None
    return (
        f"the generator failed to send {percent_of(unsent, len(mine))} of the victims' requests: "
        "use more workers or less load"
    )


def _bad_baseline(comparison: Comparison) -> str | None:
    troubled = [r for r in comparison.baseline if r.refused or not r.answered]
    if len(troubled) <= TOLERATED * len(comparison.baseline):
        return None
    part = percent_of(len(troubled), len(comparison.baseline))
    return (
        f"without any noise, in '{comparison.baseline_phase}', {part} of the victims' requests were refused "
        f"or went unanswered ({_endings(troubled)}): "
        "lower their load, or raise the gateway's own limits for them"
    )


def _endings(requests: Sequence[LogicalRequest]) -> str:
    endings = {f"{r.last.outcome} {r.last.status or r.last.reason or ''}".strip() for r in requests}
    return listed(sorted(endings))


def unsaturated(run: Run, comparison: Comparison) -> str | None:
    """Why a good result proves nothing: the noise neither filled a queue nor was anybody refused.

    Anybody's wait counts, not only the noisy tenant's: a gateway that lets the noise pass at once and makes
    the victims wait is saturated all right.
    """
    records = [r for r in run.records if r.phase == comparison.noise_phase]
    held = sum(record.outcome in _LEFT_WAITING for record in records)
    if held > TOLERATED * len(records):
        return None
    waited = _waited(run, records, comparison)
    if waited > TOLERATED * len(records):
        return None
    return (
        f"the noise did not saturate anything: in '{comparison.noise_phase}' {held:,} of {len(records):,} "
        f"requests were refused and {waited:,} waited; raise the noisy tenant's load, or lower the "
        "provider's limits"
    )


def _waited(run: Run, records: Sequence[RequestRecord], comparison: Comparison) -> int:
    stated = sum((record.server_queue_ns or 0) > TRANSIT_NS for record in records)
    if not run.ledger_available:
        return max(stated, _slowed(records, comparison))
    in_gateway = sum(wait.length_ns > TRANSIT_NS for wait in waits(records, run.ledger))
    return max(stated, in_gateway + _queued_at_provider(run.ledger, records))


def _queued_at_provider(ledger: Sequence[LedgerEntry], records: Sequence[RequestRecord]) -> int:
    mine = {(record.seq, record.attempt) for record in records}
    return sum(call.queued_ns is not None and (call.seq, call.attempt) in mine for call in ledger)


def _slowed(records: Sequence[RequestRecord], comparison: Comparison) -> int:
    """Without a ledger a queue shows only as time: attempts slower than twice the baseline's p95."""
    usual = percentile(latencies_ns(comparison.baseline), 95)
    limit = math.inf if math.isinf(usual) else 2 * usual + TRANSIT_NS
    return sum(r.outcome is Outcome.ANSWERED and r.ended_ns - r.sent_ns > limit for r in records)
