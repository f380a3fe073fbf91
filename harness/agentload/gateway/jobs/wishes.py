"""What the jobs want of the gateway's core; `front.py` sees to it. PURE."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from agentload.gateway.envelope import Envelope


class AskAdmission(msgspec.Struct, frozen=True):
    """Submit a chat step's request to the gateway's core, and hold back its call until LetGo."""

    request_id: int
    envelope: Envelope


class LetGo(msgspec.Struct, frozen=True):
    """The lease is safe: make the call that was held back."""

    request_id: int


class CallOff(msgspec.Struct, frozen=True):
    """Nobody wants that request any more."""

    request_id: int


Wish: TypeAlias = AskAdmission | LetGo | CallOff
