"""What happens to a job (events), and what it wants done (effects). PURE."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from agentload.gateway.jobs.model import StepEnd
from agentload.gateway.jobs.store import Change, Fenced, Outcome

# --------------------------------------------------------------------------- what happens to it


class Saved(msgspec.Struct, frozen=True):
    """What became of the write that was under way."""

    outcome: Outcome


class NotSaved(msgspec.Struct, frozen=True):
    """The store could not be written."""


class Asked(msgspec.Struct, frozen=True):
    """Its step has been put before admission (a tool's: before the gate)."""


class Granted(msgspec.Struct, frozen=True):
    """Its step may be begun, as soon as the lease is safe."""


class Ended(msgspec.Struct, frozen=True):
    """Its step has ended, or was not let in."""

    end: StepEnd


class Renewed(msgspec.Struct, frozen=True):
    """Its lease holds on until then."""

    leased_until_ns: int


class NotRenewed(msgspec.Struct, frozen=True):
    """The renewal of its lease was fenced: somebody else has it."""

    fenced: Fenced


class TimeUp(msgspec.Struct, frozen=True):
    """Its timer has run out."""


class Cancel(msgspec.Struct, frozen=True):
    """Its caller wants no more of it."""


class Release(msgspec.Struct, frozen=True):
    """The process is about to leave: whatever is under way is given back."""


# --------------------------------------------------------------------------- what it wants done


class Write(msgspec.Struct, frozen=True):
    """Save this, and tell the job what became of it."""

    change: Change


class Begin(msgspec.Struct, frozen=True):
    """The lease is safe: begin what was granted."""


class Abandon(msgspec.Struct, frozen=True):
    """End whatever is under way or was asked for, at once."""


class Wait(msgspec.Struct, frozen=True):
    """It is ready for its next step, as soon as its `not_before` has come."""


Effect: TypeAlias = Write | Begin | Abandon | Wait
Effects: TypeAlias = list[Effect]
