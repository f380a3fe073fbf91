"""Which checks a run against this target will decide, and why the others will not. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum

import msgspec

from agentload import checks
from agentload.checks import Check, Need, WithoutLedger
from agentload.doctor.findings import STREAMS_IN_PIECES_NS, carriage, refusals
from agentload.doctor.observed import Kind, Seen
from agentload.model import Outcome, Profile, Severity
from agentload.promises import DENIED_BY, SAID_BY, Truth, denial, denials
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
    decides: bool = True
    """False: a run that does not come to a verdict here is inconclusive for it, unless something fails."""


_SAID_BY = {
    "resident_bytes": "process",
    **{value: f"metrics.{key}" for key, value in GAUGES.items()},
}
"""A value of the gateway's samples → what says where it is in a target file; others only the bundled has."""


def prospects(seen: Seen) -> list[Prospect]:
    """One for every check there is, by name."""
    every = ((name, checks.SEAM.get(name)) for name in checks.SEAM.names())
    return [_prospect(name, check, check.rests_on, check.better_with, seen) for name, check in every]


def own_prospects(profile: Profile, seen: Seen) -> list[Prospect]:
    """One for each check that this profile asks for, with the parameters it has there; in its order."""
    return [_own(spec.kind, checks.make(spec), seen) for spec in profile.checks]


def _own(name: str, check: Check, seen: Seen) -> Prospect:
    found = _prospect(name, type(check), check.rests(), check.better(), seen)
    pageless = Need.HEALTH_PAGE in check.needs and not seen.health_page
    unheard = Need.DEPARTURES in check.needs and not seen.can_call_off
    open_end = found.chance is Chance.NO or found.because == _FAILS_ONLY
    asked = not (pageless or unheard) and check.is_asked(seen.gauges_named, seen.promises)
    lacking = open_end and asked and check.severity is Severity.MUST
    return msgspec.structs.replace(found, decides=not lacking)


def anybody_served(seen: Seen) -> bool:
    """Without that nothing can be said of any check."""
    return any(one.outcome is Outcome.ANSWERED for one in seen.asked)


def summary(prospects: Sequence[Prospect]) -> str:
    """`7 of 8 checks decidable, provider-limit in part`: all of a profile's in one line."""
    whole = sum(one.chance is Chance.YES and not one.because for one in prospects)
    said = [f"{whole} of {len(prospects)} checks decidable"]
    for how, names in (
        ("in part", [one.check for one in prospects if one.chance is Chance.YES and one.because]),
        ("perhaps", [one.check for one in prospects if one.chance is Chance.PERHAPS]),
        ("not", [one.check for one in prospects if one.chance is Chance.NO]),
    ):
        if names:
            said.append(f"{_and(counted(names))} {how}")
    return ", ".join(said)


def counted(names: Sequence[str]) -> list[str]:
    """Each name once; of one that a profile asks for several times, how often: `weighted-share (2 ×)`."""
    return [f"{name} ({count} ×)" if count > 1 else name for name, count in Counter(names).items()]


def _and(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _prospect(
    name: str, check: type[Check], rests: frozenset[Truth], better: frozenset[Truth], seen: Seen
) -> Prospect:
    for obstacle in (_nobody_served, _no_ledger, _no_marker, _no_gauges):
        if because := obstacle(check, seen):
            return Prospect(name, Chance.NO, because)
    if because := _denied(rests, seen):
        return Prospect(name, Chance.NO, because)
    if unsaid := _unsaid(rests, seen):
        return Prospect(name, Chance.NO, UNDECLARED, unsaid)
    if (part := _foreign(check, seen)) is not None:
        return Prospect(name, *part)
    for need in sorted(check.needs):
        if (doubt := _NEEDS[need](seen)) is not None:
            return Prospect(name, *doubt)
    if less := _unsaid(better, seen, every=True):
        return Prospect(name, Chance.YES, IN_PART, less)
    if seen.promises is not None and (denied := denials(better, seen.promises)):
        return Prospect(name, Chance.YES, f"the target declares {denied}")
    return Prospect(name, Chance.YES)


UNDECLARED = "rest on what the target file declares (or `declares: profile`)"
IN_PART = "the target file does not declare all that they judge"
"""What would have to be declared, each says."""


def _unsaid(truths: Collection[Truth], seen: Seen, *, every: bool = False) -> str:
    """What is not declared of these; nothing where one is, unless each of them counts by itself: then what is
    denied is not missed."""
    if seen.promises is None:
        return ""
    known = seen.promises.known | (seen.promises.denied if every else frozenset())
    missing = [truth for truth in Truth if truth in truths and truth not in known]
    wanting = bool(missing) and (every or len(missing) == len(truths))
    return (", " if every else " or ").join(SAID_BY[truth] for truth in missing) if wanting else ""


def _denied(rests: frozenset[Truth], seen: Seen) -> str | None:
    """What is declared not to be promised is nothing to hold against anybody."""
    if seen.promises is None or not rests or rests & seen.promises.known:
        return None
    denied = [denial(truth, seen.promises) for truth in Truth if truth in rests & seen.promises.denied]
    return f"the target declares `{denied[0]}`" if denied else None


def _nobody_served(_: type[Check], seen: Seen) -> str | None:
    return None if anybody_served(seen) else "nobody is served: see above"


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
    if unread := [_SAID_BY[value] for value in missing if value in seen.gauges_named and value in _SAID_BY]:
        return f"{' and '.join(sorted(unread))} cannot be read: see above"
    if all(value in _SAID_BY for value in missing):
        said_by = " and ".join(sorted(_SAID_BY[value] for value in missing))
        return f"needs {said_by} in the target file"
    return "needs counters that only the bundled gateway has"


_FAILS_ONLY = "it can fail by what clients see, and pass only with our provider's ledger"
_Special = tuple[Chance, str] | None


def _foreign(check: type[Check], seen: Seen) -> _Special:
    """What is judged in part, or in one way only, where the provider is somebody else's."""
    if not seen.external or check.without_ledger is WithoutLedger.NOTHING:
        return None
    said = {
        WithoutLedger.FAILURES: _FAILS_ONLY,
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
    streams = [one for one in seen.of(Kind.STREAMED) if "event-stream" in one.media_type or one.text_ns]
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
    return Chance.NO, "needs durable jobs: say declares.jobs if it has any (POST /v1/jobs), or flavour: jobs"


def _knows_jobs_calls(seen: Seen) -> _Special:
    """Where a job is a chat call, its call must be known by its marker; tools of ours are known anyway."""
    if not seen.asks_after:
        return None
    if seen.external:
        return Chance.NO, "rests on our provider's ledger, and the provider is somebody else's"
    carried = [carriage(seen, one) for one in seen.of(Kind.CAREFUL)]
    return (
        (Chance.NO, "must know for which job each call is, and the marker gets lost")
        if ("lost" in carried or not seen.calls)
        else None
    )


def _tells_etas(seen: Seen) -> _Special:
    if not seen.asks_after or any(one.eta for one in seen.asked):
        return None
    return Chance.NO, "its jobs are told no ETA: jobs.eta_s says where one stands (or without: [job_etas])"


def _hears_departures(seen: Seen) -> _Special:
    if seen.can_call_off:
        return None
    return (
        Chance.NO,
        "needs jobs.cancel in the target file (or cancels: true): clients cannot say that they leave; no run "
        "fails for it",
    )


def _may_queue(seen: Seen) -> _Special:
    """Told by what is declared: a burst of one tenant may meet other bounds first."""
    promises, bounds = seen.promises, {Truth.QUEUE_REQUESTS, Truth.QUEUE_AGE}
    if promises is None or bounds & promises.known:
        return None
    if bounds & promises.denied:
        denied = DENIED_BY[Truth.QUEUE_REQUESTS]
        return Chance.PERHAPS, f"once it queues: the target declares `{denied}`, and no run fails for it"
    return Chance.PERHAPS, "once it queues (one that does not says `without: [queue]`)"


def _may_be_killed(seen: Seen) -> _Special:
    return None if seen.can_be_killed else (Chance.NO, "needs process.restart in the target file")


def _has_health_page(seen: Seen) -> _Special:
    return None if seen.health_page else (Chance.NO, "needs health in the target file; no run fails for it")


_NEEDS: Mapping[Need, Callable[[Seen], _Special]] = {
    Need.REFUSALS: _needs_refusals,
    Need.RETRY_AFTER: _needs_promises,
    Need.STREAMS: _needs_streams,
    Need.FIRST_TOKENS: _sees_first_tokens,
    Need.JOBS: _has_jobs,
    Need.JOB_CALLS: _knows_jobs_calls,
    Need.ETAS: _tells_etas,
    Need.DEPARTURES: _hears_departures,
    Need.QUEUE: _may_queue,
    Need.GATEWAY_FAULTS: _may_be_killed,
    Need.HEALTH_PAGE: _has_health_page,
    Need.ACKNOWLEDGEMENT: _only_ours,
}
