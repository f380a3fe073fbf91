"""What one attempt over the network brought. Pure."""

from __future__ import annotations

import msgspec

from agentload.client.logical import AttemptResult


class Call(msgspec.Struct, frozen=True, gc=False):
    """Made by whoever makes the attempts, for whoever writes them down."""

    result: AttemptResult
    ended_ns: int
    body_bytes: int = 0
    token_arrivals_ns: list[int] = []
    """When the text of a stream came."""
