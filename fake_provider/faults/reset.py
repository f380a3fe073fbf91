"""The connection is reset: a real RST, before the answer or in the middle of it."""

from __future__ import annotations

from pydantic import Field

from fake_provider.call import Call, Cut, Then
from fake_provider.faults import AtArrival, Fault, ResetConnection


class ResetFault(Fault):
    """Resets each call's connection at once, or after so many tokens of its answer."""

    after_tokens: int | None = Field(default=None, ge=0)
    """None: at arrival, before any byte of an answer and before admission."""

    def at_arrival(self, call: Call) -> AtArrival | None:  # noqa: ARG002
        return ResetConnection() if self.after_tokens is None else None

    def cut(self, call: Call) -> Cut | None:
        if self.after_tokens is None:
            return None
        return Cut(min(self.after_tokens, call.output_tokens), Then.RESET, "reset")
