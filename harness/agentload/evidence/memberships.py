"""When tenants join and leave, as the profile says: at the boundaries of phases."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentload.evidence.history import tenant_names
from agentload.evidence.intervals import Interval
from agentload.model import Run


class Change(msgspec.Struct, frozen=True):
    """A phase that begins with other tenants than the one before it had."""

    phase: str
    window: Interval
    """The phase, from its beginning to its end."""
    joined: list[str]
    left: list[str]

    @property
    def at_ns(self) -> int:
        """When they join and leave."""
        return self.window[0]


def changes(run: Run, phases: Sequence[str] = ()) -> list[Change]:
    """The changes that open a recorded phase (or one of `phases`), in order. The first phase has none."""
    found: list[Change] = []
    for before, phase in zip(run.profile.phases, run.profile.phases[1:], strict=False):
        earlier, now = tenant_names(run, (), before.name), tenant_names(run, (), phase.name)
        joined, left = _only_in(now, earlier), _only_in(earlier, now)
        wanted = phase.name in phases if phases else phase.record
        if wanted and (joined or left):
            found.append(Change(phase.name, run.profile.phase_window_ns(phase.name), joined, left))
    return found


def groups(run: Run, names: Sequence[str]) -> list[str]:
    """The groups that tenants belong to, each once, in the profile's order."""
    wanted = set(names)
    return list(dict.fromkeys(t.group for t in run.profile.tenants if t.name in wanted))


def _only_in(names: list[str], others: list[str]) -> list[str]:
    there = set(others)
    return [name for name in names if name not in there]
