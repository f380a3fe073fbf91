"""Which provider stands behind the target: ours, to be started or running already, or somebody else's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec
from pydantic import model_validator

from agentload.model import Noun

EXTERNAL = "external"


class ProviderSection(Noun):
    """`provider:` of a target file: `external`, or a mapping of one entry."""

    listens: str | None = None
    running: str | None = None
    external: bool = False

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.listens is not None) + (self.running is not None) + self.external != 1:
            raise ValueError("needs either listens or running, not both")
        return self

    def expectation(self) -> ProviderExpectation:
        """What a run has to know of it."""
        return ProviderExpectation(listens=self.listens, running=self.running, external=self.external)


def spelt_out(written: Mapping[str, Any]) -> dict[str, Any]:
    """A target file's content with `provider: external` as the mapping that it stands for."""
    provider = written.get("provider")
    return {**written, "provider": {EXTERNAL: True}} if provider == EXTERNAL else dict(written)


class ProviderExpectation(msgspec.Struct, frozen=True, kw_only=True):
    """Which provider stands behind the gateway, and where. None of the three: ours, at any free port."""

    listens: str | None = None
    """`HOST:PORT` where agentload shall start its provider, because the gateway calls it there."""
    running: str | None = None
    """URL of a fake provider that runs already."""
    external: bool = False
    """Somebody else's: it keeps no ledger for us, and what is sent may cost real money."""

    @property
    def port(self) -> int:
        """The port of `listens`; 0, any free one, when it does not say."""
        return 0 if self.listens is None else int(self.listens.rpartition(":")[2])
