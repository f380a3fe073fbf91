"""What a check decided."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Severity(StrEnum):
    """Only `must` fails a run."""

    MUST = "must"
    SHOULD = "should"


class Status(StrEnum):
    """The three answers."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing a person can go and look at: a request, an instant, and what is to be seen there."""

    note: str
    seq: int | None = None
    at_ns: int | None = None


class Verdict(msgspec.Struct, kw_only=True):
    """What a check found, with the numbers it rests on."""

    check: str
    status: Status
    because: str
    """One sentence a person can act on; for inconclusive ones, what would make it decidable."""
    severity: Severity = Severity.MUST
    measured: float | None = None
    """None when nothing could be measured, or when the measured value is infinite (`censored`)."""
    bound: float | None = None
    unit: str = ""
    n: int = 0
    censored: bool = False
    """True when `measured` is None because the value is +infinity (requests never answered)."""
    evidence: list[Evidence] = msgspec.field(default_factory=list)
    details: dict[str, Any] = msgspec.field(default_factory=dict)
    """More numbers, by name; everything a report shows beside the verdict."""


def worst(statuses: list[Status]) -> Status:
    """The verdict over several: failed > inconclusive > passed; no statuses at all is inconclusive."""
    for status in (Status.FAILED, Status.INCONCLUSIVE):
        if status in statuses:
            return status
    return Status.PASSED if statuses else Status.INCONCLUSIVE
