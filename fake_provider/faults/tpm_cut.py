"""The provider lowers (or raises) the token limit for a while; buckets keep their fill ratio."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fake_provider.faults import Fault


class TpmCut(Fault):
    """Tokens per minute times `factor`. Limits belong to API keys, so it cannot hit one tenant only."""

    by_tenant: ClassVar[bool] = False
    factor: float = Field(gt=0, le=10)

    def tokens_factor(self) -> float:
        return self.factor
