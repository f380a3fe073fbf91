"""What follows from what was seen, one sentence each. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from statistics import median

import msgspec

from agentload.doctor.observed import Asked, Kind, Seen
from agentload.model import Outcome
from agentload.targets._metrics import key_of

STREAMS_IN_PIECES_NS = 20_000_000
"""Text of a stream of 24 tokens, 10 ms each, that comes within less was held back."""
CLOSED_SOON_NS = 120_000_000
"""A call that ends so soon after its client was called off (as `cancel-upstream` has it)."""
MOST_BURST = 200
"""So many requests at once may be asked for."""
SKEW_S = 2.0
"""Date has whole seconds, and an answer takes a moment."""


class Grade(StrEnum):
    """How it bears on a run."""

    GOOD = "good"
    NOTE = "note"
    """Worth knowing; verdicts stand."""
    UNSURE = "unsure"
    """Some verdicts will be inconclusive for it."""
    BAD = "bad"
    """To be mended first."""


class Finding(msgspec.Struct, frozen=True):
    """One row."""

    about: str
    grade: Grade
    said: str


def findings(seen: Seen) -> list[Finding]:
    """All of them, the most fundamental first."""
    looks: list[Callable[[Seen], Finding]] = [
        reachable,
        authenticated,
        provider_behind,
        provider_takes,
        marker,
        identity,
        usage,
        streaming,
        departure,
        posted_again,
        refusal,
        http_version,
        clock,
        own_values,
    ]
    of_calls = (provider_takes, marker, identity, departure)
    looks = [look for look in looks if not (seen.external and look in of_calls)]
    return [look(seen) for look in looks if seen.asks_after or look is not posted_again]


def reachable(seen: Seen) -> Finding:
    """Something answers at all."""
    waited = [one for one in seen.asked if one.kind is not Kind.LEFT]
    silent = [one for one in waited if one.status == 0]
    if not silent:
        said = f"all {len(waited)} requests got an answer"
        if not any(one.outcome is Outcome.ANSWERED for one in waited):
            said += f", and none was served: {_counted(str(one.status) for one in waited)}"
        return Finding("reachable", Grade.GOOD, said)
    said = f"{len(silent)} of {len(waited)} requests got none ({_counted(one.failure for one in silent)})"
    return Finding("reachable", Grade.BAD, said)


def authenticated(seen: Seen) -> Finding:
    """Every tenant is let in, and served."""
    careful = seen.of(Kind.CAREFUL)
    if seen.trouble is not None:
        said = f"nobody is served ({_names(careful)}): {seen.trouble}"
        return Finding("authenticated", Grade.BAD, said)
    shut = [one for one in careful if one.status in (401, 403)]
    if shut:
        said = f"{_names(shut)}: {_counted(str(one.status) for one in shut)}: are these keys known to it? "
        said += "(`keys:` or `headers:` of the target file say whose is whose)"
        return Finding("authenticated", Grade.BAD, said)
    unserved = [one for one in careful if one.outcome is not Outcome.ANSWERED]
    if unserved:
        why = _counted(_ending(one) for one in unserved)
        return Finding("authenticated", Grade.BAD, f"let in, but not served: {_names(unserved)}: {why}")
    return Finding("authenticated", Grade.GOOD, f"{len(careful)} tenants asked, each served")


def provider_behind(seen: Seen) -> Finding:
    """Our provider is what the gateway calls."""
    if seen.external:
        said = "somebody else's (external), as the target file says: verdicts rest on what clients see"
        return Finding("provider", Grade.NOTE, said)
    if seen.calls:
        return Finding("our provider", Grade.GOOD, f"saw {len(seen.calls)} calls")
    if seen.trouble is not None:
        return Finding("our provider", Grade.UNSURE, "saw no call: mend first what stands above")
    answered = any(one.outcome is Outcome.ANSWERED for one in seen.asked)
    other = "answers come from somewhere else" if answered else "nothing is answered"
    said = f"saw no call; {other}: is the gateway's upstream {seen.provider_url}?"
    said += " (--provider-port fixes the port)" if seen.any_port else ""
    return Finding("our provider", Grade.BAD, said)


def provider_takes(seen: Seen) -> Finding:
    """What our provider takes in this profile: a gateway in front of it should not offer more."""
    return Finding("provider", Grade.GOOD, seen.provider_takes)


def marker(seen: Seen) -> Finding:
    """Whether what our provider gets can be told apart: exact, folded, lost, cached or duplicated."""
    if not seen.calls:
        return Finding("marker", Grade.UNSURE, "cannot be told: see above")
    kinds = Counter(carriage(seen, one) for one in seen.of(Kind.CAREFUL, Kind.STREAMED))
    kinds.pop(None, None)
    if not kinds:
        return Finding("marker", Grade.UNSURE, "no answered request by which to tell")
    said = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    worst = max(kinds, key=lambda kind: list(_CARRIAGE).index(str(kind)))
    grade, meaning = _CARRIAGE[str(worst)]
    return Finding("marker", grade, f"{said}: {meaning}")


_CARRIAGE = {
    "exact": (Grade.GOOD, "each call at our provider is known by its request, word for word"),
    "folded": (
        Grade.NOTE,
        "known, but the message comes changed (another size): tokens differ from the plan",
    ),
    "duplicated": (Grade.BAD, "one request made several calls, with nothing wrong"),
    "cached": (Grade.UNSURE, "answered without a call: switch the cache off, or shares mean nothing"),
    "lost": (Grade.UNSURE, "calls come without their marker: does something rewrite the last user message?"),
}
"""From good to bad."""


def carriage(seen: Seen, asked: Asked) -> str | None:
    """What became of a request's marker on its way; None for a request that was not answered."""
    if asked.outcome is not Outcome.ANSWERED:
        return None
    calls = seen.calls_for(asked)
    if len(calls) > 1:
        return "duplicated"
    if not calls:
        return "lost" if seen.unmarked else "cached"
    return "exact" if calls[0].input_tokens == asked.input_tokens else "folded"


def identity(seen: Seen) -> Finding:
    """Whether our provider is called with one key or with each tenant's."""
    keys, tenants = seen.upstream_keys, len({one.tenant for one in seen.asked})
    if not keys:
        said = "cannot be told: our provider has no limits for each key, or met none"
        return Finding("identity upstream", Grade.NOTE, said)
    if keys == 1:
        said = "one key for all: our provider's limit is shared, and the marker alone says whose a call is"
        return Finding("identity upstream", Grade.GOOD, said)
    said = (
        f"{keys} keys for {tenants} tenants: each has the provider's whole limit to itself, so it never binds"
    )
    return Finding("identity upstream", Grade.NOTE, said)


def usage(seen: Seen) -> Finding:
    """Token counts come back, of plain answers and of streams."""
    answered = [one for one in seen.asked if one.outcome is Outcome.ANSWERED]
    without = [one for one in answered if not one.usage]
    if not answered:
        return Finding("usage", Grade.UNSURE, "no answer to look at")
    if without:
        kinds = _counted(one.kind for one in without)
        return Finding("usage", Grade.NOTE, f"missing in {len(without)} of {len(answered)} answers ({kinds})")
    return Finding("usage", Grade.GOOD, f"reported in all {len(answered)} answers")


def streaming(seen: Seen) -> Finding:
    """Tokens arrive as they are made."""
    if not seen.streams:
        return Finding("streaming", Grade.NOTE, "not in this flavour: there is no time to the first token")
    streams = [one for one in seen.of(Kind.STREAMED) if one.outcome is Outcome.ANSWERED]
    if not streams:
        return Finding("streaming", Grade.UNSURE, "no stream was answered")
    times = streams[0].text_ns
    if "event-stream" not in streams[0].media_type and not times:
        return Finding(
            "streaming", Grade.NOTE, f"asked for, answered as {streams[0].media_type or 'nothing known'}"
        )
    spread_ns = times[-1] - times[0] if times else 0
    if spread_ns < STREAMS_IN_PIECES_NS:
        said = "the whole text came at once: it is buffered, so time to first token is that of the last"
        return Finding("streaming", Grade.NOTE, said)
    return Finding("streaming", Grade.GOOD, f"in {len(times)} pieces over {spread_ns / 1e6:.0f} ms")


def departure(seen: Seen) -> Finding:
    """What becomes of the call of a client that has left."""
    seen_to_end = [(call, one) for one in seen.of(Kind.LEFT) for call in seen.calls_for(one)]
    if not seen_to_end:
        return Finding("client leaves", Grade.NOTE, "no call of it was seen")
    [(call, one), *_] = seen_to_end
    if call.ended_ns is None:
        return Finding(
            "client leaves", Grade.NOTE, "its call is still open at our provider: cancel-upstream will fail"
        )
    after_ns = call.ended_ns - one.ended_ns
    if not seen.can_call_off and after_ns > 0:
        said = "its call goes on: no request calls work off (jobs.cancel), so cancel-upstream is not judged"
        return Finding("client leaves", Grade.NOTE, said)
    if after_ns > CLOSED_SOON_NS:
        said = f"its call goes on for {after_ns / 1e6:.0f} ms ({call.ending}): cancel-upstream will fail"
        if one.called_off is not None:
            said += f" (it was called off; the answer was {one.called_off or 'none'})"
        return Finding("client leaves", Grade.NOTE, said)
    if call.ending == "cancelled":
        return Finding("client leaves", Grade.GOOD, "its call ends at our provider, too")
    return Finding("client leaves", Grade.NOTE, "cannot be told: its call ended before, or just then")


def posted_again(seen: Seen) -> Finding:
    """How a job is known that is posted again, because nobody heard whether it had been accepted."""
    if seen.job_key is not None:
        said = f"a job that is posted again is known by its {seen.job_key}"
        return Finding("posted again", Grade.GOOD, said)
    said = "no idempotency key is named (jobs.key): exactly-once leaves out jobs that must be posted again"
    return Finding("posted again", Grade.NOTE, said)


def refusals(seen: Seen) -> list[Asked]:
    """What was turned away in the burst."""
    return [one for one in seen.of(Kind.BURST) if one.status in (402, 413, 429, 503, 529)]


def refusal(seen: Seen) -> Finding:
    """What a refusal looks like, and whose it is."""
    refused, burst = refusals(seen), len(seen.of(Kind.BURST))
    if not burst:
        return Finding("refusals", Grade.NOTE, "not looked for: no burst is sent where nobody is served")
    if not refused:
        said = f"none in a burst of {burst}: more load may show what one looks like"
        said += f" (--burst {MOST_BURST})" if burst < MOST_BURST else ""
        return Finding("refusals", Grade.NOTE, said)
    passed_on = sum(any(call.status == one.status for call in seen.calls_for(one)) for one in refused)
    bare = sum(one.retry_after is None for one in refused)
    said = f"{len(refused)} of {burst}: {_counted(_ending(one) for one in refused)}"
    said += f"; Retry-After {_counted(one.retry_after or 'missing' for one in refused)}"
    said += f"; {_counted(one.media_type or 'no media type' for one in refused)}"
    if passed_on:
        said += f"; {passed_on} are the provider's own, passed on"
    return Finding("refusals", Grade.NOTE if bare else Grade.GOOD, said)


def http_version(seen: Seen) -> Finding:
    """Load is sent as HTTP/1.1."""
    versions = Counter(one.http_version for one in seen.asked if one.http_version)
    if set(versions) <= {"HTTP/1.1"}:
        return Finding("HTTP", Grade.GOOD if versions else Grade.UNSURE, "1.1" if versions else "no answer")
    said = f"{_counted(versions.elements())}: without HTTP/1.1 each request costs a connection"
    return Finding("HTTP", Grade.NOTE, said)


def clock(seen: Seen) -> Finding:
    """Dates in Retry-After are told by the gateway's clock."""
    skews = [one.clock_skew_s for one in seen.asked if one.clock_skew_s is not None]
    if not skews:
        return Finding(
            "clock", Grade.NOTE, "no Date in its answers: a Retry-After with a date is read by ours"
        )
    skew_s = median(skews)  # a Date may be as old as the answer's head: one slow answer says nothing
    if abs(skew_s) <= SKEW_S:
        return Finding("clock", Grade.GOOD, "within 2 s of ours")
    return Finding(
        "clock", Grade.NOTE, f"{skew_s:+.0f} s from ours: dates in Retry-After are read that wrong"
    )


def own_values(seen: Seen) -> Finding:
    """What the target says of itself: its metrics, and its process's memory."""
    if not seen.gauges_named:
        said = "none named: metrics and process of the target file would make more checks decidable"
        return Finding("its own values", Grade.NOTE, said)
    if seen.metrics_trouble:
        return Finding("its own values", Grade.BAD, seen.metrics_trouble)
    missing = [key_of(name) for name in seen.gauges_named if name not in seen.gauges]
    if missing:
        said = f"{', '.join(missing)} cannot be read: are the series of metrics, and the process, right?"
        return Finding("its own values", Grade.UNSURE, said)
    return Finding("its own values", Grade.GOOD, f"{', '.join(map(key_of, seen.gauges))} can be read")


def _ending(one: Asked) -> str:
    what = str(one.status) if one.status else "no answer"
    why = one.reason or one.failure
    if one.status == 200 and why is not None and why.startswith("answer-without-"):
        why += " (is the flavour right?)"
    return f"{what} {why}" if why else what


def _counted(items: Iterable[str | None]) -> str:
    counted = Counter(str(item) for item in items)
    return ", ".join(f"{count} × {item}" for item, count in counted.most_common(3))


def _names(asked: Sequence[Asked]) -> str:
    names = list(dict.fromkeys(one.tenant for one in asked))
    return ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
