"""How answers about a durable job are understood: our own protocol, and any that a target maps. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Protocol

import msgspec

from agentload.client.polling import where_asked
from agentload.flavours import NOT_JSON, Progress
from agentload.targets import Target

_ID = r"\A[A-Za-z0-9_][A-Za-z0-9_.~:@!$&'()*+,;=%-]{0,255}\Z"
"""What fits into the path of a poll (RFC 3986, a segment) and cannot lead elsewhere."""
_MOST = 1e9
"""Seconds, or places in a queue; more is nothing that a client could wait for."""
_MOST_REASON = 120
"""Characters kept of why a job ended."""


class Shown(msgspec.Struct):
    """What an answer says of a job; the fields are those of our own gateway's `/v1/jobs`."""

    id: Annotated[str, msgspec.Meta(pattern=_ID)]
    state: str
    position: int | None = None
    eta_s: Annotated[float, msgspec.Meta(ge=-_MOST, le=_MOST)] | None = None
    reason: str | None = None
    ended_ms: int | None = None
    attempts: int = 0
    deliveries: int = 0
    results: list[dict[str, Any]] = []
    path: str = ""
    """Where it is asked after; empty: at its id."""


class JobWords(Protocol):
    """The contract."""

    def accepts(self, status: int) -> bool:
        """Whether a POST with this status has been accepted, if its body says which job it is."""
        ...

    def read(self, body: bytes, location: str | None) -> Shown | None:
        """What an answer says of its job; None: nothing that can be understood. A state that is terminal is
        one of `job_pursuit.TERMINAL`."""
        ...


class OwnWords:
    """Our own gateway's."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        """`redact` blanks secrets in what is kept of an answer."""
        self._redact = redact

    def accepts(self, status: int) -> bool:
        """202, and nothing else."""
        return status == 202

    def read(self, body: bytes, location: str | None) -> Shown | None:  # noqa: ARG002
        """The body as it is."""
        try:
            shown = _SHOWN.decode(body)
        except NOT_JSON:
            return None
        shown.path = ""
        shown.reason = _kept(shown.reason, self._redact)
        return shown


_SHOWN = msgspec.json.Decoder(Shown)
_STATES = {Progress.DONE: "completed", Progress.FAILED: "failed", Progress.EXPIRED: "expired"}


class MappedWords:
    """A target's whose flavour asks after work: a job is one request of that flavour."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._redact = target.redactor()

    def accepts(self, status: int) -> bool:
        """Any success: some answer 200 or 201."""
        return 200 <= status < 300

    def read(self, body: bytes, location: str | None) -> Shown | None:
        """By the names that the target file maps. Where the body has no id, the Location tells which."""
        try:
            standing = self._target.api.standing(body)
        except NOT_JSON:
            standing = None
        path = where_asked(self._target, standing, location)
        progress = None if standing is None else standing.progress
        if path is None and progress is None:
            return None
        if standing is None:
            return Shown(id=path or "", state="", path=path or "")
        shown = Shown(id=standing.id or path if path else "", state="", path=path or "")
        shown.state = "" if progress is None else _STATES.get(progress, "open")
        shown.reason = _kept(standing.reason, self._redact) if progress in _STATES else None
        shown.eta_s = standing.eta_s if abs(standing.eta_s or 0.0) <= _MOST else None
        shown.position = standing.position if abs(standing.position or 0) <= _MOST else None
        return shown


def words_of(target: Target) -> JobWords:
    """Those that durable jobs are spoken of in at this target."""
    return OwnWords(target.redactor()) if target.api.takes_steps else MappedWords(target)


def _kept(reason: str | None, redact: Callable[[str], str]) -> str | None:
    """What a record may hold of a gateway's words: no secret, and not all of a long text."""
    return None if reason is None else redact(reason)[:_MOST_REASON]
