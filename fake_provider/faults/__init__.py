"""What can go wrong at the provider: one fault per file, each the only class of its file, named after it.

A fault is active while start_ns <= now < end_ns, for everybody or for one tenant. It may refuse calls as they
arrive, change answers as they begin, hold tokens back, or cut the provider's limits; whatever it does not
override, it leaves alone. Parameters are pydantic fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fake_provider.call import Call, Cut, Reason
from fake_provider.config import FaultSpec
from fake_provider.plugins import find, folders, names

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class RefuseCall:
    """Answer a call with an error instead of admitting it."""

    status: int
    reason: Reason
    retry_after_s: int | None = None
    code: str | None = None
    """Instead of the API's usual code for the reason."""


@dataclass(frozen=True, slots=True)
class ResetConnection:
    """Reset a call's connection instead of answering."""


AtArrival = RefuseCall | ResetConnection


class Fault(BaseModel):
    """The contract, harmless by default."""

    model_config = ConfigDict(extra="forbid")

    start_ns: int
    end_ns: int | None = None
    """First instant at which it is over; None: it stays until it is taken away."""
    tenant: int | None = Field(default=None, ge=0, le=65_535)
    """Marker number of the one tenant it hits; None: every call, marked or not."""

    by_tenant: ClassVar[bool] = True
    """Whether it can hit one tenant only."""
    holds_tokens: ClassVar[bool] = False
    """Whether tokens that become due while it is active are held back until it is over."""
    extensive_slots: ClassVar[tuple[str, ...]] = ()
    """Parameters that are calls at once: a provider with twice the slots would have them twice as large."""

    @model_validator(mode="after")
    def _tenant_makes_sense(self) -> Self:
        if self.tenant is not None and not self.by_tenant:
            raise ValueError(f"{self.kind} hits everybody: it takes no tenant")
        return self

    @property
    def kind(self) -> str:
        """The file's name, with hyphens."""
        return type(self).__module__.rpartition(".")[2].replace("_", "-")

    def active(self, now_ns: int) -> bool:
        """Whether `now_ns` lies in its window."""
        return self.start_ns <= now_ns and (self.end_ns is None or now_ns < self.end_ns)

    def concerns(self, call: Call) -> bool:
        """Whether the call is of the tenant it hits."""
        return self.tenant is None or self.tenant == call.tenant

    def at_arrival(self, call: Call) -> AtArrival | None:  # noqa: ARG002
        """What happens to a call that arrives while the fault is active; None: nothing."""
        return None

    def slow_down_factor(self) -> float:
        """What the times of answers that begin while it is active are multiplied by."""
        return 1.0

    def cut(self, call: Call) -> Cut | None:  # noqa: ARG002
        """How an answer that begins while it is active will end early; None: it will not."""
        return None

    def tokens_factor(self) -> float:
        """What the token limits are multiplied by while it is active."""
        return 1.0

    def slots(self) -> int | None:
        """How many slots there are, at most, while it is active; None: as many as ever."""
        return None


def kinds() -> list[str]:
    """The names of all faults, sorted; those in `FOLDER/faults` of AGENTLOAD_PLUGINS among them."""
    return names(__name__, folders("faults"))


def of_kind(kind: str) -> type[Fault]:
    """The class of that name. Raises LookupError, with a suggestion, for an unknown one."""
    return find(__name__, Fault, kind, folders("faults"))


def make(spec: FaultSpec, now_ns: int) -> Fault:
    """The fault a spec asks for, counted from `now_ns`.

    Raises LookupError for an unknown kind and pydantic.ValidationError for wrong parameters.
    """
    fault = of_kind(spec.kind)
    start_ns = now_ns + round(spec.after_s * NS)
    end_ns = None if spec.seconds is None else start_ns + round(spec.seconds * NS)
    times = {"start_ns": start_ns, "end_ns": end_ns, "tenant": spec.tenant}
    return fault.model_validate({**spec.params, **times})


_REASONS = {
    403: Reason.PERMISSION,
    408: Reason.TIMEOUT,
    429: Reason.SLOW_DOWN,
    504: Reason.TIMEOUT,
    529: Reason.OVERLOADED,
}


def reason_of(status: int) -> Reason:
    """Why a call gets that status, where nothing else is said."""
    return _REASONS.get(status, Reason.SERVER_ERROR)


def half(call: Call) -> int:
    """Half the tokens of an answer, at least one: where it is cut unless a fault says otherwise."""
    return max(1, call.output_tokens // 2)
