"""Shares of the work: over which moments they are taken, which tenants have one, and the words for that.

A share says something only where tenants compete. It is taken over the contended intervals of the recorded
phases where these last long enough, else over all of them; and a tenant that wanted nothing meanwhile has
none, which is not a share of zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from agentload.evidence.attribution import how_many_untraced, untraced
from agentload.evidence.history import counted_phases
from agentload.model import NS, Run
from agentload.report import text
from agentload.report.contention import Contention

LEAST_CONTENDED_S = 2.0
"""Less contention than this says nothing of a run …"""
LEAST_CONTENDED_SHARE = 0.1
"""… unless it is this share of its recorded time."""

MOST_PHASES = 4
"""More than these are counted, not named."""

Facts = Mapping[str, Any]


class Shares(msgspec.Struct, frozen=True):
    """Shares of a run, 0..1 by tenant, and what they rest on."""

    work: Mapping[str, float]
    """Empty where nothing was served, or nobody knows to whom."""
    entitled: Mapping[str, float]
    """Who asked for nothing meanwhile is not in it."""
    basis: dict[str, Any]
    """`shares` of report.json."""

    def of(self, tenants: Iterable[str]) -> dict[str, float | None]:
        """`work_share` and `entitled_share` of these together; None where none of them wanted anything."""
        mine = [name for name in tenants if name in self.entitled or name in self.work]
        if not mine:
            return {"work_share": None, "entitled_share": None}
        shares = {"work_share": self.work, "entitled_share": self.entitled}
        return {key: round(sum(of.get(name, 0.0) for name in mine), 4) for key, of in shares.items()}


def shares(run: Run, story: Contention, edges_ns: Sequence[int]) -> Shares:
    """Of the whole run; `edges_ns` are those of the story's intervals."""
    phases = [_phase_of(run, window) for window in pairwise(edges_ns)]
    recorded = [phase is not None for phase in phases]
    contended = [a and b for a, b in zip(recorded, story.contended, strict=True)]
    width_s = (edges_ns[1] - edges_ns[0]) / NS
    least_s = min(LEAST_CONTENDED_S, LEAST_CONTENDED_SHARE * sum(recorded) * width_s)
    enough = any(contended) and sum(contended) * width_s >= least_s
    counted = contended if enough else recorded
    seconds: dict[str, float] = {}
    for phase, counts in zip(phases, counted, strict=True):
        if counts and phase is not None:
            seconds[phase] = round(seconds.get(phase, 0.0) + width_s, 3)
    work, entitled = story.shares(counted)
    basis = {
        "measured_by": story.measured_by,
        "contended": enough,
        "seconds": round(sum(counted) * width_s, 3),
        "contended_seconds": round(sum(contended) * width_s, 3),
        "phases": seconds,
        "unknown_because": how_many_untraced(run) if untraced(run) else None,
    }
    return Shares(work, entitled, basis)


def _phase_of(run: Run, window: tuple[int, int]) -> str | None:
    """The recorded phase that holds all of an interval."""
    for name in counted_phases(run):
        start, end = run.profile.phase_window_ns(name)
        if start <= window[0] and window[1] <= end:
            return name
    return None


def note(summary: Facts) -> str:
    """`shares are of the work served by the provider in 15 s of noise, in which …`: what they rest on."""
    found = summary["shares"]
    if found["unknown_because"] is not None:
        return f"nobody's share of the work is known: {text.printable(found['unknown_because'])}"
    if all(tenant["work_share"] is None for tenant in summary["tenants"].values()):
        return "no work was served, so there is nothing to share"
    source = "served by the provider" if found["measured_by"] == "ledger" else _by_clients(summary)
    return f"shares are of the work {source} in {_when(found)}; the mark is the entitlement"


def _when(found: Facts) -> str:
    """`15 s of noise and 4 s of recovery, when more was asked for than served`."""
    phases: Mapping[str, float] = found["phases"]
    each = [f"{text.figure(lasted_s)} s of {text.printable(name)}" for name, lasted_s in phases.items()]
    seconds = f"{text.figure(found['seconds'])} s of {len(phases)} phases"
    if 0 < len(phases) <= MOST_PHASES:
        seconds = " and ".join(part for part in (", ".join(each[:-1]), each[-1]) if part)
    if found["contended"]:
        return f"{seconds}, when more was asked for than served"
    short = found["contended_seconds"]
    if short:
        return f"{seconds} (more was asked for than served in {text.figure(short)} s only)"
    return f"{seconds}, when there was enough for everybody"


def _by_clients(summary: Facts) -> str:
    why = "saw nothing" if summary["provider"]["available"] else "has no ledger"
    return f"answered (the provider {why})"
