"""Budgets and prices, as an operator writes them."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from agentload.scheduler.section import Section


class Per(StrEnum):
    """For how long a budget is: a fixed stretch of UTC time, or all the time there is."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    TOTAL = "total"


class PriceConfig(Section):
    """What the provider charges for a million tokens of a model, in whatever currency budgets are in."""

    input_per_million: float = Field(ge=0)
    output_per_million: float = Field(ge=0)


class BudgetConfig(Section):
    """What may be spent in a window; a request that might exceed any of it is refused (402)."""

    tokens: int | None = Field(default=None, gt=0)
    """Input and output tokens."""
    cost: float | None = Field(default=None, gt=0)
    """Money, at `prices`; exact to a millionth."""
    calls: int | None = Field(default=None, gt=0)
    """Calls to the provider: retries and steps count alike."""
    per: Per = Per.TOTAL

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.tokens is None and self.cost is None and self.calls is None:
            raise ValueError("needs tokens, cost or calls")
        return self


class BudgetsConfig(Section):
    """Whose spending is bounded; a request must fit into every budget that it falls under."""

    everybody: BudgetConfig | None = Field(default=None, alias="global")
    """All tenants together."""
    tenant: BudgetConfig | None = None
    """Each tenant that has no budget of its own (`tenants.T.budget`)."""
    run: BudgetConfig | None = None
    """Each run, which is what a tenant's requests with the same X-Run-Id are."""
    remembered: int = Field(default=10_000, ge=1)
    """Runs, and tenants without a contract, whose spending is kept, at most; the longest unused go first."""

    def of(self, own: BudgetConfig | None) -> BudgetConfig | None:
        """A tenant's budget, whether it has one of its own or not."""
        return self.tenant if own is None else own
