"""Does the gateway still admit what it did, after work that ended badly?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName, TenantName
from agentload.evidence.history import tenant_names
from agentload.evidence.intervals import Interval, clip, length_ns
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, finite, seconds, undecided
from agentload.model import NS, CallEnding, Evidence, Outcome, RequestRecord, Run, Status, Verdict

LEAST_DAMAGE = 20
"""Attempts that ended badly before the probe: fewer could leak too little to see."""
SAME_LOAD = 0.9
"""A probe that is asked for less than this part of the baseline's load cannot show what the baseline got."""


class CapacityLeak(Check):
    """Passes when a probe is served as much as the baseline was, after work that ended badly.

    Every reservation (a slot, tokens, a place in the queue) must be given back once, however the request
    ended: answered, refused, failed, timed out, or left by its client. What is not given back makes the
    gateway smaller for ever. Between `baseline` and `probe` at least 20 attempts must have ended badly; then
    the same load is offered again, and answers per second and calls in service at the provider (mean) may
    each be down by `max_loss` at most. Sharpest when both phases are saturated, by closed loops, say.
    """

    needs_ledger = True
    needs_attribution = True

    baseline: PhaseName = "baseline"
    probe: PhaseName = "probe"
    tenants: tuple[TenantName, ...] = ()
    """Who probes; by default all that are active in both phases."""
    settle_s: float = Field(default=1.0, ge=0)
    """Left out at the beginning of both phases."""
    max_loss: float = Field(default=0.1, gt=0, lt=1)
    """Share of the baseline's answers and concurrency, 0..1."""

    def judge(self, run: Run) -> Verdict:
        """Both phases' throughput and concurrency."""
        active = set(tenant_names(run, (), self.probe))
        names = {name for name in tenant_names(run, self.tenants, self.baseline) if name in active}
        records = [record for record in run.records if record.tenant in names]
        before, after = (self._level(run, records, names, phase) for phase in (self.baseline, self.probe))
        damage = self._damage(run)
        details = {
            "baseline": before.details(),
            "probe": after.details(),
            "ended_badly": dict(Counter(str(record.outcome) for record in damage)),
        }
        doubt = self._doubt(before, after, len(damage))
        if doubt:
            return undecided(self, doubt, n=after.answered, details=details)
        losses = {
            "answers per second": (before.answers_per_s, after.answers_per_s),
            "calls in service at once": (before.in_service, after.in_service),
        }
        what = max(losses, key=lambda name: _loss(*losses[name]))
        lost = _loss(*losses[what])
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in details["ended_badly"].items())
        return conclude(
            self,
            Status.FAILED if lost > self.max_loss else Status.PASSED,
            f"after {len(damage):,} attempts that ended badly ({kinds}), {what} went from "
            f"{losses[what][0]:.1f} in '{self.baseline}' to {losses[what][1]:.1f} in '{self.probe}'",
            measured=100 * max(0.0, lost),
            bound=100 * self.max_loss,
            unit="% lost",
            n=after.answered,
            evidence=[
                Evidence(
                    note=f"'{level.phase}': {level.answers_per_s:.1f} answers/s, "
                    f"{level.in_service:.1f} calls in service",
                    at_ns=level.window[0],
                )
                for level in (after, before)
            ],
            details=details,
        )

    def _level(self, run: Run, records: Sequence[RequestRecord], names: set[str], phase: str) -> _Level:
        start_ns, end_ns = run.profile.phase_window_ns(phase)
        window = (min(end_ns, start_ns + round(self.settle_s * NS)), end_ns)
        # A closed loop asks for less when it gets less: only open loops say what was offered.
        open_loops = {tenant.name for tenant in run.profile.tenants if tenant.arrivals is not None}
        busy = [
            (call.started_ns, end_ns if call.ended_ns is None else call.ended_ns)
            for call in run.ledger
            if call.started_ns is not None and call.tenant in names
        ]
        return _Level(
            phase=phase,
            window=window,
            wanted=sum(
                r.attempt == 0 and r.tenant in open_loops and _within(r.due_ns, window) for r in records
            ),
            answered=sum(r.outcome is Outcome.ANSWERED and _within(r.ended_ns, window) for r in records),
            busy_ns=length_ns(clip(busy, window)),
        )

    def _damage(self, run: Run) -> list[RequestRecord]:
        """What ended badly after the baseline had begun and before the probe did."""
        start_ns = run.profile.phase_window_ns(self.baseline)[0]
        end_ns = run.profile.phase_window_ns(self.probe)[0]
        good = (Outcome.ANSWERED, Outcome.UNSENT, Outcome.UNFINISHED)
        return [r for r in run.records if start_ns <= r.ended_ns < end_ns and r.outcome not in good]

    def _doubt(self, before: _Level, after: _Level, damage: int) -> str | None:
        shortest = min(before, after, key=lambda level: level.window_s)
        if shortest.window_s <= 0 or not enough(before.answered, 95):
            return (
                f"'{before.phase}' had {before.answered:,} answers, '{shortest.phase}' counts for "
                f"{seconds(shortest.window_s * NS)}: at least 72 answers are needed"
            )
        if damage < LEAST_DAMAGE:
            return (
                f"only {damage:,} attempts ended badly between '{before.phase}' and '{after.phase}': "
                f"{LEAST_DAMAGE} are needed to see whether anything leaks"
            )
        if after.wanted_per_s < SAME_LOAD * before.wanted_per_s:
            return (
                f"'{after.phase}' was asked for {after.wanted_per_s:.1f} requests a second, "
                f"'{before.phase}' for {before.wanted_per_s:.1f}: offer the same load"
            )
        return None

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Four slots; the aborted calls took one of them with them."""
        return cls(), _run(slots_left=3)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Five aborted calls."""
        return cls(), _run(slots_left=3, aborted=5)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Four slots before and after."""
        return cls(), _run(slots_left=4)


class _Level(msgspec.Struct, frozen=True):
    """What one phase got."""

    phase: str
    window: Interval
    wanted: int
    """By open loops."""
    answered: int
    busy_ns: int

    @property
    def window_s(self) -> float:
        return (self.window[1] - self.window[0]) / NS

    @property
    def wanted_per_s(self) -> float:
        return self.wanted / self.window_s if self.window_s else 0.0

    @property
    def answers_per_s(self) -> float:
        return self.answered / self.window_s if self.window_s else 0.0

    @property
    def in_service(self) -> float:
        """Calls in service at the provider, mean over time."""
        return self.busy_ns / NS / self.window_s if self.window_s else 0.0

    def details(self) -> dict[str, Any]:
        return {
            "seconds": finite(self.window_s),
            "wanted": self.wanted,
            "answered": self.answered,
            "answers_per_s": finite(self.answers_per_s),
            "in_service": finite(self.in_service),
        }


def _within(at_ns: int, window: Interval) -> bool:
    return window[0] <= at_ns < window[1]


def _loss(before: float, after: float) -> float:
    return 1 - after / before if before else 0.0


def _run(*, slots_left: int, aborted: int = 40) -> Run:
    """Ten seconds each: four closed-loop users of 100 ms calls, aborted calls, and the same users again."""
    phases = {"baseline": 10.0, "abort": 10.0, "probe": 10.0}
    build = RunBuilder(profile(phases=phases, tenants={"a": 1.0, "b": 1.0}, only={"b": ("abort",)}))
    for k in range(aborted):
        record = build.ended("b", 10_000 + 200 * k, Outcome.ABANDONED, after_ms=50)
        build.call(record, 10_000 + 200 * k, 10_060 + 200 * k, CallEnding.CANCELLED)
    for start_ms, slots in ((0, 4), (20_000, slots_left)):
        for k in range(100 * slots):
            build.answered("a", start_ms + k // slots * 100, service_ms=100)
    return build.run()
