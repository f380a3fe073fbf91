"""The one careful request before the load, and what its answer shows: does the target speak as was said?

A gateway that refuses is asked again for a while, and then let pass: its answers to load are for the judge.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from agentload import flavours
from agentload.client.polling import where_asked
from agentload.client.wire import Ending, ReplyReader
from agentload.drivers.probe import Reply
from agentload.drivers.target_probe import AGAIN_S, ask, refuse_dead_upstream, refuse_no_api
from agentload.errors import UnreachableError
from agentload.flavours import NOT_JSON, Heard
from agentload.targets import Probe, Target

REFUSALS = frozenset({429, 503, 529})
REFUSED_S = 5.0
"""How long one that refuses is asked again: it may be warming up, or a limit of its own may be used up."""
PAUSE_S = 1.0
"""Between two such requests."""
_FIELDS_SHOWN, _FIELD_SHOWN = 5, 24


def ask_until_served(
    target: Target, request: Probe, wanted: Callable[[], bool] = lambda: True, seconds: float = REFUSED_S
) -> Reply:
    """The answer, of however many tries; the last refusal after `seconds`, or when no answer is `wanted`.

    Raises UnreachableError as `target_probe.ask` does.
    """
    until_s = time.monotonic() + seconds
    while True:
        reply = ask(target, request)
        if reply.status not in REFUSALS:
            return reply
        again_s = time.monotonic() + PAUSE_S
        while time.monotonic() < again_s:
            if time.monotonic() >= until_s or not wanted():
                return reply
            time.sleep(AGAIN_S)


def refuse_unusable(target: Target, request: Probe, reply: Reply, provider_url: str | None = None) -> None:
    """Raises UnreachableError, with what came and the mend, for an answer that is none of an API.

    Never for a refusal. `provider_url`: where our provider listens, which has seen no call of it; None: it
    has, or is somebody else's.
    """
    if provider_url is not None:
        refuse_dead_upstream(request, reply.status, provider_url)
    if reply.status not in REFUSALS:
        refuse_no_api(target, request, reply, needs_json=needs_json(target, reply))


def refuse_other_words(target: Target, request: Probe, reply: Reply) -> None:
    """Raises UnreachableError, with what came and the mend, for an answer that cannot be understood as one in
    the target's flavour; never for a refusal, and never for an error that is told as one, which is judged."""
    where = f"the target gateway at {request.url}: answered {reply.status}"
    if reply.status in (400, 415, 422):
        raise UnreachableError(
            f"{where} to a plain request (what came: {_fields(target, reply)}): does it know the model "
            f"{target.model!r}, and speak {target.flavour}? Say `model:` and `flavour:` in the target file"
        )
    why = _amiss(target, reply) if 200 <= reply.status < 300 else None
    if why is None:
        return
    spoken = flavours.spoken_in(reply.fields)
    if spoken is not None:
        raise UnreachableError(
            f"{where} in the words of {spoken}, and was asked in those of {target.flavour} ({why}): "
            f"say `flavour: {spoken}` in the target file"
        )
    raise UnreachableError(
        f"{where} with what is no answer of {target.flavour} ({why}; what came: {_fields(target, reply)}): "
        "are `flavour:` and path right in the target file?"
    )


def needs_json(target: Target, reply: Reply) -> bool:
    """Whether the answer must be a JSON object. It may be a stream that nobody has asked for; of work that is
    begun and asked after, a Location says enough."""
    if target.api.only_streams and reply.status == 200:
        return False
    return target.api.asks_after_s is None or bool(reply.body) or not reply.location


def _amiss(target: Target, reply: Reply) -> str | None:
    """Why it is no answer in these words, None where it may be one."""
    if target.api.asks_after_s is not None:
        return _not_begun(target, reply)
    if target.api.only_streams:
        return _no_stream(target, reply)
    if reply.status != 200 or flavours.spoken_in(reply.fields) == target.flavour:
        return None  # cut short by its bound of a token or so, an answer may hold no text yet
    heard = Heard()
    try:
        target.api.read_whole(reply.body, heard)
    except NOT_JSON:
        return "malformed-answer"
    return heard.error if heard.error is not None and heard.error.startswith("answer-without-") else None


def _no_stream(target: Target, reply: Reply) -> str | None:
    """One that ended without a word of text, and without an error of its own."""
    reader = ReplyReader(target.api.as_stream(False), 0, target.redactor(), target.api)
    reader.head(reply.status, [(b"content-type", reply.kind.encode("latin-1"))], 0.0)
    reader.feed(reply.body, 0)
    result = reader.result(Ending.COMPLETE, 0)
    said = result.reason is not None and result.reason != "malformed-answer"
    return None if said or reader.words_heard or reply.status != 200 else "answer-without-text"


def _not_begun(target: Target, reply: Reply) -> str | None:
    """Work that is asked after needs a name or a place; it may also have ended already."""
    try:
        standing = target.api.standing(reply.body)
    except NOT_JSON:
        standing = None
    if standing is not None and standing.progress is not None:
        return None
    if standing is not None and flavours.spoken_in(reply.fields) not in (None, target.flavour):
        return "another API's answer"
    return None if where_asked(target, standing, reply.location or None) else "answer-without-id"


def _fields(target: Target, reply: Reply) -> str:
    """The names of what came; its values may be anything."""
    redact, names = target.redactor(), list(reply.fields)
    shown = [redact(ascii(name)[1:-1])[:_FIELD_SHOWN] for name in names[:_FIELDS_SHOWN]]
    more = [] if len(names) <= _FIELDS_SHOWN else ["…"]
    return ", ".join([*shown, *more]) or "nothing"
