"""Does the gateway stay within what the provider allows?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check
from agentload.evidence.envelope import highest_level
from agentload.evidence.history import counted_phases
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, finite, percent_of, undecided
from agentload.model import NS, CallEnding, Evidence, LedgerEntry, Run, Status, Verdict
from agentload.promises import Truth
from fake_provider.config import ProviderConfig

BINDING = 0.9


class ProviderLimit(Check):
    """Passes when what the gateway offers the provider stays within burst + rate · t over every window.

    Offered, not admitted: calls that the provider refuses count too, for they cost the gateway its standing
    and the caller its time. The envelope is the provider's own continuous bucket (a full one-minute bucket
    legally admits 1.99 × the limit in a trailing minute). Beside that, the provider may refuse `max_refused`
    of the calls. Each model has its own buckets, and its own limits where the provider has `model_limits`. A
    target that declares lower limits (`upstream`) is held to those, too, over all models together.
    """

    better_with = frozenset({Truth.UPSTREAM})
    needs_ledger = True
    stalls_only_worsen = True

    tolerance: float = Field(default=0.02, ge=0, lt=1)
    """Part of the burst by which the envelope may be exceeded: two clocks never agree to the last digit."""
    max_refused: float = Field(default=0.01, ge=0, lt=1)
    """Share of the calls that the provider may refuse."""

    def judge(self, run: Run) -> Verdict:
        """The worst window of every limit, and the provider's refusals."""
        provider = run.profile.provider
        slots_refuse = provider.slots is not None and provider.overflow == "refuse"
        calls = sorted(
            (c for c in run.ledger if c.ending is not CallEnding.INVALID), key=lambda call: call.arrived_ns
        )
        if not enough(len(calls), 50):
            return undecided(
                self, f"the provider saw only {len(calls):,} calls: at least 20 are needed", n=len(calls)
            )
        peaks = [_peak(calls, limit) for limit in _limits(run, calls)]
        if not peaks and not slots_refuse and provider.output_tokens_per_minute is None:
            return undecided(
                self,
                "the profile's provider has no limit: set tokens_per_minute, requests_per_minute or slots",
            )
        refused = [call for call in calls if call.ending is CallEnding.THROTTLED]
        worst = max(peaks, key=lambda peak: peak.level / peak.limit.burst, default=None)
        return self._conclude(run, calls, refused, worst, peaks)

    def _conclude(
        self,
        run: Run,
        calls: Sequence[LedgerEntry],
        refused: Sequence[LedgerEntry],
        worst: _Peak | None,
        peaks: Sequence[_Peak],
    ) -> Verdict:
        details = _details(run, calls, refused, peaks)
        evidence = [_throttled(call) for call in refused[:4]]
        share = len(refused) / len(calls)
        over = worst is not None and worst.level > worst.limit.burst * (1 + self.tolerance)
        if worst is not None and (over or share <= self.max_refused):
            return conclude(
                self,
                Status.FAILED if over else Status.PASSED,
                _envelope_words(worst, over, details),
                measured=worst.level,
                bound=worst.limit.burst * (1 + self.tolerance),
                unit=worst.limit.unit,
                n=len(calls),
                evidence=[_at_peak(worst), *evidence],
                details=details,
            )
        return conclude(
            self,
            Status.FAILED if share > self.max_refused else Status.PASSED,
            f"the provider refused {percent_of(len(refused), len(calls))} of the gateway's calls",
            measured=100 * share,
            bound=100 * self.max_refused,
            unit="%",
            n=len(calls),
            evidence=evidence,
            details=details,
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """600 tokens a minute with a burst of 40, and 40 tokens offered every second."""
        return cls(), _run(every_ms=1_000)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Ten calls."""
        return cls(), _run(every_ms=1_000, calls=10)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """600 tokens a minute with a burst of 40, and 40 tokens offered every four seconds."""
        return cls(), _run(every_ms=4_000)


class _Limit(msgspec.Struct, frozen=True):
    unit: str
    per_minute: float
    burst: float
    model: str | None = None
    """Whose calls it counts; None: everybody's."""

    def of(self, calls: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        """The calls that it counts."""
        return [call for call in calls if self.model is None or call.model == self.model]


class _Peak(msgspec.Struct, frozen=True):
    """The highest level of a bucket that leaks at the limit's rate, and when it was reached."""

    limit: _Limit
    level: float
    at_ns: int


def _limits(run: Run, calls: Sequence[LedgerEntry]) -> list[_Limit]:
    """The provider's, for each model that was called, then what the target declares that it keeps."""
    models = sorted({call.model for call in calls})
    own = [limit for model in models for limit in _limits_of(run.profile.provider, model)]
    return own + (_declared(run) if run.promises is not None and run.knows(Truth.UPSTREAM) else [])


def _limits_of(provider: ProviderConfig, model: str) -> list[_Limit]:
    # Output tokens are charged as they are produced: how many a call offers, nobody knows before.
    if provider.policy == "none":
        return []
    special = provider.model_limits.get(model) if provider.policy == "openai" else None
    of = provider if special is None else special
    found = [
        ("tokens", of.tokens_per_minute),
        ("input tokens", provider.input_tokens_per_minute if special is None else None),
        ("requests", of.requests_per_minute),
    ]
    # Around the edge of a fixed window, one window's worth follows upon another.
    burst_s = provider.bucket_s * (2 if provider.policy == "azure" else 1)
    return [_Limit(unit, rate, rate / 60 * burst_s, model) for unit, rate in found if rate is not None]


def _declared(run: Run) -> list[_Limit]:
    told = run.profile.gateway.upstream
    found = [("tokens", told.tokens_per_minute), ("requests", told.requests_per_minute)]
    return [_Limit(unit, rate, rate / 60 * told.bucket_s) for unit, rate in found if rate is not None]


def _peak(calls: Sequence[LedgerEntry], limit: _Limit) -> _Peak:
    """The worst window of the calls that a limit counts."""
    offered = [(call.arrived_ns, _cost(call, limit)) for call in limit.of(calls)]
    return _Peak(limit, *highest_level(offered, limit.per_minute / 60))


def _cost(call: LedgerEntry, limit: _Limit) -> float:
    return 1.0 if limit.unit == "requests" else call.charged_tokens


def _envelope_words(peak: _Peak, over: bool, details: dict[str, Any]) -> str:
    what = (
        f"in the worst window, which ended at {peak.at_ns / NS:.2f} s, the gateway offered "
        f"{peak.level:,.0f} {peak.limit.unit} beyond {peak.limit.per_minute:,g} a minute; "
        f"a burst of {peak.limit.burst:,.0f} is allowed"
    )
    if over:
        return what
    busiest = details["busiest"]
    return f"{what}; in '{busiest['phase']}' {100 * busiest['utilisation']:.0f} % of the limit was used" + (
        "" if busiest["bound"] else ", so it never bound"
    )


def _at_peak(peak: _Peak) -> Evidence:
    return Evidence(note=f"{peak.level:,.0f} {peak.limit.unit} above the rate", at_ns=peak.at_ns)


def _throttled(call: LedgerEntry) -> Evidence:
    return Evidence(
        note=f"{call.tenant or 'unknown'}: refused by the provider ({call.status})",
        seq=call.seq,
        at_ns=call.arrived_ns,
    )


def _details(
    run: Run, calls: Sequence[LedgerEntry], refused: Sequence[LedgerEntry], peaks: Sequence[_Peak]
) -> dict[str, Any]:
    usage = [
        _usage(run, calls, phase, limit)
        for phase in counted_phases(run)
        for limit in (peak.limit for peak in peaks)
    ]
    return {
        "refused": len(refused),
        "refused_share": finite(len(refused) / len(calls), 4),
        "envelopes": [
            {
                "limit": f"{peak.limit.per_minute:g} {peak.limit.unit}/min",
                "model": peak.limit.model,
                "peak": finite(peak.level, 1),
                "burst": finite(peak.limit.burst, 1),
                "at_s": finite(peak.at_ns / NS),
            }
            for peak in peaks
        ],
        "phases": usage,
        "busiest": max(usage, key=lambda use: use["utilisation"], default=None),
    }


def _usage(run: Run, calls: Sequence[LedgerEntry], phase: str, limit: _Limit) -> dict[str, Any]:
    """How much of a limit one phase used; `bound` when it was so much that the limit, not the load, ruled."""
    start, end = run.profile.phase_window_ns(phase)
    mine = [call for call in limit.of(calls) if start <= call.arrived_ns < end]
    allowed = limit.per_minute / 60 * (end - start) / NS
    offered = sum(_cost(call, limit) for call in mine)
    admitted = sum(_cost(call, limit) for call in mine if call.started_ns is not None)
    return {
        "phase": phase,
        "limit": limit.unit,
        "offered": finite(offered / allowed, 4),
        "utilisation": round(admitted / allowed, 4),
        "bound": admitted / allowed >= BINDING,
    }


def _run(*, every_ms: float, calls: int = 30) -> Run:
    provider = ProviderConfig(tokens_per_minute=600, bucket_s=4)
    build = RunBuilder(profile(phases={"load": every_ms * calls / 1_000}, provider=provider))
    for k in range(calls):
        build.answered("a", every_ms * k)
    return build.run()
