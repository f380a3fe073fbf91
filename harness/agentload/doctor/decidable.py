"""Which checks a run against this target will decide, and why the others will not. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from agentload import checks
from agentload.checks import Check
from agentload.doctor.findings import STREAMS_IN_PIECES_NS, carriage, refusals
from agentload.doctor.observed import Kind, Seen
from agentload.model import Outcome
from agentload.targets._metrics import GAUGES


class Chance(StrEnum):
    """How likely a check is to be decided."""

    YES = "yes"
    PERHAPS = "perhaps"
    NO = "no"


class Prospect(msgspec.Struct, frozen=True):
    """One check's."""

    check: str
    chance: Chance
    because: str = ""
    told: str = ""
    """What the gateway must have been told for it."""


_SAID_BY = {
    "resident_bytes": "process",
    **{value: f"metrics.{key}" for key, value in GAUGES.items()},
}
"""A value of the gateway's samples → what says where it is in a target file; others only the bundled has."""
_JOBS = "needs durable jobs (POST /v1/jobs) in a gateway that may be killed: the bundled one"
_OF_JOBS = ("eta-honest", "exactly-once", "lease-reclaim", "nothing-lost")
_TOLD = {
    "budget": "budgets",
    "class-borrow": "classes, by X-Service-Class",
    "class-floor": "classes",
    "class-reclaim": "classes",
    "concurrency-cap": "slots",
    "deadline": "X-Deadline-Ms",
    "estimate-drift": "weights",
    "isolation": "pools",
    "nested-timeouts": "time-outs",
    "retry-identity": "X-Attempt, most attempts",
    "service-gap": "weights",
    "tenant-limit": "limits",
    "weighted-share": "weights",
    "work-conserving": "slots",
}
"""What a gateway must have been told as the profile has it, else the verdict is about another gateway."""
_REFUSAL = ("refusal-latency", "retry-after-present")
_PROMISE = ("retry-after-syntax", "retry-after-honest", "retry-after-spread")


def prospects(seen: Seen) -> list[Prospect]:
    """One for every check there is, by name."""
    return [_prospect(name, checks.SEAM.get(name), seen) for name in checks.SEAM.names()]


def _prospect(name: str, check: type[Check], seen: Seen) -> Prospect:
    for obstacle in (_nobody_served, _no_ledger, _no_marker, _no_gauges):
        if because := obstacle(check, seen):
            return Prospect(name, Chance.NO, because)
    if name in _OF_JOBS:
        return Prospect(name, Chance.NO, _JOBS)
    special = _SPECIAL.get(name, _nothing)(seen)
    if special is not None:
        return Prospect(name, *special)
    if name in _TOLD:
        return Prospect(name, Chance.PERHAPS, "if it has been told the same as the profile says", _TOLD[name])
    return Prospect(name, Chance.YES)


def _nobody_served(_: type[Check], seen: Seen) -> str | None:
    served = any(one.outcome is Outcome.ANSWERED for one in seen.asked)
    return None if served else "nobody is served: see above"


def _no_ledger(check: type[Check], seen: Seen) -> str | None:
    needed = check.needs_ledger or check.needs_attribution
    return "rests on our provider's ledger, and it saw no call" if needed and not seen.calls else None


def _no_marker(check: type[Check], seen: Seen) -> str | None:
    """Attribution is lost when calls come unmarked, or answers without a call."""
    if not check.needs_attribution:
        return None
    carried = [carriage(seen, one) for one in seen.of(Kind.CAREFUL, Kind.STREAMED)]
    if "lost" in carried or seen.unmarked * 100 > len(seen.calls):
        return "must know whose each call is, and the marker gets lost"
    return "must see each call, and answers come from a cache" if "cached" in carried else None


def _no_gauges(check: type[Check], seen: Seen) -> str | None:
    missing = [value for value in check.needs_samples if value not in seen.gauges]
    if not missing:
        return None
    if all(value in _SAID_BY for value in missing):
        said_by = " and ".join(sorted(_SAID_BY[value] for value in missing))
        return f"needs {said_by} in the target file"
    return "needs counters that only the bundled gateway has"


_Special = tuple[Chance, str] | None


def _nothing(_: Seen) -> _Special:
    return None


def _needs_refusals(seen: Seen) -> _Special:
    return None if refusals(seen) else (Chance.PERHAPS, "once it refuses something: the burst was let in")


def _needs_promises(seen: Seen) -> _Special:
    refused = refusals(seen)
    if refused and all(one.retry_after is None for one in refused):
        return Chance.NO, "its refusals carry no Retry-After (and retry-after-present fails for it)"
    return _needs_refusals(seen)


def _needs_streams(seen: Seen) -> _Special:
    streams = [one for one in seen.of(Kind.STREAMED) if "event-stream" in one.media_type]
    return None if streams else (Chance.NO, "it does not stream")


def _sees_first_tokens(seen: Seen) -> _Special:
    held = [one for one in seen.of(Kind.STREAMED) if one.text_ns]
    if held and held[0].text_ns[-1] - held[0].text_ns[0] < STREAMS_IN_PIECES_NS:
        return Chance.PERHAPS, "it buffers streams: clients that leave mid-stream leave after its end"
    return None


_SPECIAL: Mapping[str, Callable[[Seen], _Special]] = {
    **dict.fromkeys(_REFUSAL, _needs_refusals),
    **dict.fromkeys(_PROMISE, _needs_promises),
    "stream-integrity": _needs_streams,
    "cancel-upstream": _sees_first_tokens,
}
NAMED = (*_OF_JOBS, *_TOLD, *_SPECIAL)
"""All checks that anything particular is known of; the rest need no more than what every run has."""
