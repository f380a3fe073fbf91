"""Answers end early, and nobody says so."""

from __future__ import annotations

from pydantic import Field

from fake_provider.call import Call, Cut, Then
from fake_provider.faults import Fault, half


class Truncate(Fault):
    """Answers that begin while it is active stop after some tokens."""

    after_tokens: int | None = Field(default=None, ge=0)
    """None: after half of the answer."""
    clean: bool = False
    """False: the connection closes inside the body, which HTTP shows. True: the HTTP message is well-formed,
    but the stream lacks its end (official SDKs raise nothing then); a plain body is half a JSON document."""

    def cut(self, call: Call) -> Cut | None:
        tokens = half(call) if self.after_tokens is None else min(self.after_tokens, call.output_tokens)
        return Cut(tokens, Then.END if self.clean else Then.CLOSE, "truncate")
