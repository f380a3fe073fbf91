"""Everything a run leaves for a judge."""

from __future__ import annotations

from typing import Any

import msgspec

from agentload.model.plan import Plan
from agentload.model.profile import Profile
from agentload.model.readings import GaugeReadings, GeneratorHealth, Sample
from agentload.model.records import JobRecord, LedgerEntry, RequestRecord, ToolRecord
from agentload.promises import Promises, Truth


class Run(msgspec.Struct, kw_only=True):
    """Everything a judge may look at."""

    profile: Profile
    plan: Plan
    driver: str
    """live | simulated"""
    records: list[RequestRecord]
    ledger: list[LedgerEntry]
    samples: list[Sample]
    health: GeneratorHealth
    jobs: list[JobRecord] = msgspec.field(default_factory=list[JobRecord])
    """Durable jobs, in order of seq; their POSTs are in `records`, too."""
    tools: list[ToolRecord] = msgspec.field(default_factory=list[ToolRecord])
    """Calls of tools, in order of arrival."""
    unattributed: int = 0
    """Provider calls that carried no valid marker."""
    ledger_available: bool = True
    """False when the provider is somebody else's: checks that need the ledger are then inconclusive."""
    no_ledger_because: str = ""
    """Why there is none, in words; empty when it was lost with the run's process."""
    clock_uncertainty_ns: int = 0
    """By so much the ledger's times may be off from the clients', either way; 0 where one clock told both."""
    health_page: bool = True
    """False where a target's file names none: nobody asked it, and no check may expect an answer."""
    hears_departures: bool = True
    """False where clients cannot tell a target that they leave: no request of its API calls work off."""
    interrupted: str | None = None
    """Why the run ended early, in words; None when it ran to its end."""
    gauges: GaugeReadings | None = None
    """How well the gateway's own values could be read; None where nobody read them."""
    promises: Promises | None = None
    """What somebody's gateway is known to promise; `profile` is then as it says. None: the profile is what
    the gateway was told, as of the bundled one."""
    shows: frozenset[str] | None = None
    """Values of samples that somebody's gateway is said to show. None: the bundled one, which shows all."""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    """Versions, command line, machine: for reports, never for verdicts."""

    def knows(self, truth: Truth) -> bool:
        """Whether the profile says of this what the gateway really was told."""
        return self.promises is None or truth in self.promises.known

    def denies(self, truth: Truth) -> bool:
        """Whether the gateway is known to promise no such thing."""
        return self.promises is not None and truth in self.promises.denied
