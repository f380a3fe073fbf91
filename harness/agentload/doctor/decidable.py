"""Which checks a run against this target will decide, and why the others will not. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum

import msgspec

from agentload import checks
from agentload.checks import Check, Need, WithoutLedger
from agentload.doctor.findings import STREAMS_IN_PIECES_NS, carriage, refusals
from agentload.doctor.observed import Kind, Seen
from agentload.model import Outcome
from agentload.promises import DENIED_BY, SAID_BY, Truth
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
    say: str = ""
    """What to declare for it."""


_SAID_BY = {
    "resident_bytes": "process",
    **{value: f"metrics.{key}" for key, value in GAUGES.items()},
}
"""A value of the gateway's samples → what says where it is in a target file; others only the bundled has."""


def prospects(seen: Seen) -> list[Prospect]:
    """One for every check there is, by name."""
    return [_prospect(name, checks.SEAM.get(name), seen) for name in checks.SEAM.names()]


def _prospect(name: str, check: type[Check], seen: Seen) -> Prospect:
    for obstacle in (_nobody_served, _no_ledger, _no_marker, _no_gauges, _denied):
        if because := obstacle(check, seen):
            return Prospect(name, Chance.NO, because)
    if unsaid := _unsaid(check.rests_on, seen):
        return Prospect(name, Chance.NO, UNDECLARED, unsaid)
    if (part := _foreign(check, seen)) is not None:
        return Prospect(name, *part)
    for need in sorted(check.needs):
        if (doubt := _NEEDS[need](seen)) is not None:
            return Prospect(name, *doubt)
    if less := _unsaid(check.better_with, seen, every=True):
        return Prospect(name, Chance.YES, _IN_PART, less)
    return Prospect(name, Chance.YES)


UNDECLARED = "rest on what the target file declares (or `declares: profile`)"
_IN_PART = "in part, and whole where the target file declares what stands beside them"


def _unsaid(truths: Collection[Truth], seen: Seen, *, every: bool = False) -> str:
    """What is not declared of these; nothing where one is, unless each of them counts by itself."""
    if seen.promises is None:
        return ""
    missing = [truth for truth in Truth if truth in truths and truth not in seen.promises.known]
    wanting = bool(missing) and (every or len(missing) == len(truths))
    return (" and " if every else " or ").join(SAID_BY[truth] for truth in missing) if wanting else ""


def _denied(check: type[Check], seen: Seen) -> str | None:
    """What is declared not to be promised is nothing to hold against anybody."""
    if seen.promises is None or not check.rests_on or check.rests_on & seen.promises.known:
        return None
    denied = [DENIED_BY[truth] for truth in Truth if truth in check.rests_on & seen.promises.denied]
    return f"the target declares `{denied[0]}`" if denied else None


def _nobody_served(_: type[Check], seen: Seen) -> str | None:
    served = any(one.outcome is Outcome.ANSWERED for one in seen.asked)
    return None if served else "nobody is served: see above"


def _no_ledger(check: type[Check], seen: Seen) -> str | None:
    if seen.external and (check.needs_ledger or check.needs_attribution):
        if check.without_ledger is not WithoutLedger.NOTHING:
            return None
        return "rests on our provider's ledger, and the provider is somebody else's"
    needed = check.needs_ledger or check.needs_attribution
    return "rests on our provider's ledger, and it saw no call" if needed and not seen.calls else None


def _no_marker(check: type[Check], seen: Seen) -> str | None:
    """Attribution is lost when calls come unmarked, or answers without a call."""
    if not check.needs_attribution or seen.external:
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


def _foreign(check: type[Check], seen: Seen) -> _Special:
    """What is judged in part, or in one way only, where the provider is somebody else's."""
    if not seen.external or check.without_ledger is WithoutLedger.NOTHING:
        return None
    said = {
        WithoutLedger.FAILURES: "it can fail by what clients see, and pass only with our provider's ledger",
        WithoutLedger.PART: "only what clients see of it: the rest needs our provider's ledger",
    }
    return Chance.PERHAPS, said[check.without_ledger]


def _only_ours(seen: Seen) -> _Special:
    return (Chance.NO, "needs the acknowledgement that only our provider gives") if seen.external else None


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


def _has_jobs(seen: Seen) -> _Special:
    if seen.promises is None or Truth.JOBS in seen.promises.known:
        return None
    if Truth.JOBS in seen.promises.denied:
        return Chance.NO, f"the target declares `{DENIED_BY[Truth.JOBS]}`"
    return Chance.NO, "needs durable jobs (POST /v1/jobs): say declares.jobs if it has any"


def _may_be_killed(seen: Seen) -> _Special:
    return None if seen.can_be_killed else (Chance.NO, "needs process.restart in the target file")


_NEEDS: Mapping[Need, Callable[[Seen], _Special]] = {
    Need.REFUSALS: _needs_refusals,
    Need.RETRY_AFTER: _needs_promises,
    Need.STREAMS: _needs_streams,
    Need.FIRST_TOKENS: _sees_first_tokens,
    Need.JOBS: _has_jobs,
    Need.GATEWAY_FAULTS: _may_be_killed,
    Need.ACKNOWLEDGEMENT: _only_ours,
}
