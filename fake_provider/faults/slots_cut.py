"""The provider has fewer slots for a while; calls already in service keep theirs to their end."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fake_provider.faults import Fault


class SlotsCut(Fault):
    """At most `to` calls are in service. Slots are everybody's, so it cannot hit one tenant only."""

    by_tenant: ClassVar[bool] = False
    extensive_slots: ClassVar[tuple[str, ...]] = ("to",)
    to: int = Field(ge=0)

    def slots(self) -> int | None:
        return self.to
