"""What can go wrong with the bundled gateway itself: one fault per file, named after it. Pure.

A fault is one act at its start and one at its end, which heals it. The live driver does them to the process,
the simulated one to its counterpart in virtual time.
"""

from __future__ import annotations

from abc import ABC
from enum import StrEnum
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from agentload.registry import Seam


class Act(StrEnum):
    """What can be done to a gateway."""

    KILL = "kill"
    """SIGKILL: all state is lost, every connection breaks."""
    START = "start"
    """A new process on the same port, with the same configuration and nothing in its memory."""
    PAUSE = "pause"
    """SIGSTOP: the kernel still accepts connections and holds bytes, nobody reads them."""
    RESUME = "resume"
    """SIGCONT: it goes on where it was, and finds the time passed."""


class GatewayFault(BaseModel, ABC):
    """The contract. Parameters, where there are any, are pydantic fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    begins: ClassVar[Act]
    ends: ClassVar[Act]


SEAM: Seam[GatewayFault] = Seam(__name__, GatewayFault)
