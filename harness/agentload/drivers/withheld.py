"""What the caps have kept users of somebody's own code from, or made them wait for. Pure.

Nothing of it was planned, so that it makes no run doubtful; but whoever reads the report must know that the
load was the caps' and not the code's.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Why(StrEnum):
    """By which promise."""

    HOST = "host"
    """A request to a host that is neither the target's nor allowed."""
    REDIRECT = "redirect"
    """The target's answer points to one."""
    RATE = "rate"
    """It waited for `--max-rate`."""
    CONNECTIONS = "connections"
    """It waited for `--max-connections`."""
    BYTES = "bytes"
    """The answer was longer than `--max-answer-bytes`."""


class Withheld(msgspec.Struct, kw_only=True):
    """One kind of it, of one tenant."""

    tenant: str
    why: Why
    where: str = ""
    """The host, where that is why."""
    n: int = 0
    waited_ns: int = 0
    """In all."""


class WithheldBook:
    """Counts it, in one worker."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, Why, str], Withheld] = {}

    def add(self, tenant: str, why: Why, where: str = "", n: int = 1, waited_ns: int = 0) -> None:
        """Some more of it."""
        key = (tenant, why, where)
        kind = self._kinds.setdefault(key, Withheld(tenant=tenant, why=why, where=where))
        kind.n += n
        kind.waited_ns += waited_ns

    def kinds(self) -> list[Withheld]:
        """All of it so far."""
        return list(self._kinds.values())


def told(kinds: Iterable[Withheld]) -> list[str]:
    """A line for the user for each kind, over all workers."""
    book = WithheldBook()
    for kind in kinds:
        book.add(kind.tenant, kind.why, kind.where, kind.n, kind.waited_ns)
    summed = sorted(book.kinds(), key=lambda kind: (kind.tenant, kind.why, kind.where))
    return [f"{kind.tenant}: {_said(kind)}" for kind in summed]


def _said(kind: Withheld) -> str:
    n = f"{kind.n:,}"
    waited = f"waited, {kind.waited_ns / 1e9:.1f} s in all, for"
    match kind.why:
        case Why.HOST:
            return (
                f"{n} × refused: {kind.where} is neither the target nor allowed (--allow-host {kind.where})"
            )
        case Why.REDIRECT:
            return f"{n} × no redirect to {kind.where} followed (--allow-host {kind.where})"
        case Why.RATE:
            return f"{n} × {waited} --max-rate: the load was the cap's, not the code's"
        case Why.CONNECTIONS:
            return f"{n} × {waited} --max-connections: the load was the cap's, not the code's"
        case Why.BYTES:
            return f"{n} × an answer was longer than --max-answer-bytes, and not heard out"
