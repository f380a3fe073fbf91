"""The nouns: what a profile asks for, what a run recorded, and what a check decided.

Times are integer nanoseconds since the run began (`*_ns`), unless a name says otherwise.
Live and simulated runs fill exactly these types, so that one judge serves both.
"""

from __future__ import annotations

from agentload.model.environment import Environment
from agentload.model.plan import Arrival, Job, Plan
from agentload.model.profile import (
    ClientShare,
    Fault,
    JobOrder,
    JobStep,
    LocustUsers,
    Noun,
    Phase,
    Profile,
    Scaling,
    Spec,
    Tenant,
    ToolUse,
)
from agentload.model.readings import Distribution, GaugeReadings, GeneratorHealth, Sample, Stall
from agentload.model.records import CallEnding, JobRecord, LedgerEntry, Outcome, RequestRecord, ToolRecord
from agentload.model.run import Run
from agentload.model.units import NS
from agentload.model.verdict import Evidence, Severity, Status, Verdict, worst

__all__ = [
    "NS",
    "Arrival",
    "CallEnding",
    "ClientShare",
    "Distribution",
    "Environment",
    "Evidence",
    "Fault",
    "GaugeReadings",
    "GeneratorHealth",
    "Job",
    "JobOrder",
    "JobRecord",
    "JobStep",
    "LedgerEntry",
    "LocustUsers",
    "Noun",
    "Outcome",
    "Phase",
    "Plan",
    "Profile",
    "RequestRecord",
    "Run",
    "Sample",
    "Scaling",
    "Severity",
    "Spec",
    "Stall",
    "Status",
    "Tenant",
    "ToolRecord",
    "ToolUse",
    "Verdict",
    "worst",
]
