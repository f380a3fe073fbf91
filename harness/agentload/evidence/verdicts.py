"""How a check says what it found: one constructor for verdicts, and the words for numbers in sentences."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

from agentload.checks import Check
from agentload.evidence.statistics import binomial_tail
from agentload.model import NS, Evidence, RequestRecord, Status, Verdict

MOST_EVIDENCE = 5
"""Worst cases shown with a verdict."""
MOOT = "moot"
"""Among the details of a verdict that no gateway of this nature could get: see `moot`."""
UNLIKELY = 0.001
"""A gateway that keeps its bound is called bad no more often than this."""


def check_name(check: type[Check]) -> str:
    """The name users type: the file's name with hyphens."""
    stem = check.__module__.rsplit(".", 1)[-1].removeprefix("agentload_plugin_checks_")
    return stem.replace("_", "-")


def conclude(
    check: Check,
    status: Status,
    because: str,
    *,
    measured: float | None = None,
    bound: float | None = None,
    unit: str = "",
    n: int = 0,
    evidence: Iterable[Evidence] = (),
    details: dict[str, Any] | None = None,
) -> Verdict:
    """A verdict; an infinite `measured` becomes None and `censored`."""
    infinite = measured is not None and math.isinf(measured)
    return Verdict(
        check=check_name(type(check)),
        status=status,
        severity=check.severity,
        because=because,
        measured=None if infinite else measured,
        censored=infinite,
        bound=bound,
        unit=unit,
        n=n,
        evidence=list(evidence)[:MOST_EVIDENCE],
        details=details or {},
    )


def undecided(check: Check, because: str, *, n: int = 0, details: dict[str, Any] | None = None) -> Verdict:
    """Inconclusive; `because` says what would make it decidable."""
    return conclude(check, Status.INCONCLUSIVE, because, n=n, details=details)


def moot(check: Check, because: str) -> Verdict:
    """Inconclusive for want of what the target declares not to have, and showed not: no run fails for it."""
    return undecided(check, because, details={MOOT: True})


def status_of_share(bad: int, n: int, allowed: float) -> Status:
    """Whether `bad` of `n` is more than a share of `allowed` (0..1): passed, failed or too few to tell.

    Fails only when so many would come by chance with a probability under 0.001 (exact binomial tail) from a
    gateway at the very bound.
    """
    if bad <= allowed * n:
        return Status.PASSED
    return Status.FAILED if binomial_tail(bad, n, allowed) < UNLIKELY else Status.INCONCLUSIVE


def evidence_of(record: RequestRecord, note: str) -> Evidence:
    """A request to look at, at the instant it ended."""
    return Evidence(note=note, seq=record.seq, at_ns=record.ended_ns)


def milliseconds(ns: float) -> str:
    """`12.3 ms`, or `never` for a latency without end."""
    return "never" if math.isinf(ns) else f"{ns / 1e6:.1f} ms"


def seconds(ns: float) -> str:
    """`1.25 s`; what would round to nothing in milliseconds."""
    if 0 < abs(ns) < 10_000_000:
        return milliseconds(ns)
    return f"{ns / NS:.2f} s" if ns else "0 s"


def plural(count: int, noun: str) -> str:
    """`1 request`, `2 requests`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def finite(value: float, digits: int = 3) -> float | None:
    """Rounded for a report; None for infinities, which JSON has no word for."""
    return None if math.isinf(value) or math.isnan(value) else round(value, digits)


def percent_of(part: int, whole: int) -> str:
    """`12 of 300 (4.0 %)`."""
    return f"{part:,} of {whole:,} ({100 * part / whole:.1f} %)" if whole else "0 of 0"


def listed(words: Collection[str], most: int = 4) -> str:
    """`a, b and 3 more`."""
    shown = list(words)[:most]
    rest = len(words) - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more" if rest else "")
