"""What a call costs, by the configured prices. PURE."""

from __future__ import annotations

from collections.abc import Callable

from agentload.scheduler.budget_config import PriceConfig
from agentload.scheduler.config import GatewayConfig


def price_of(config: GatewayConfig) -> Callable[[str, int, int], float] | None:
    """(model, input tokens, output tokens) → money; None where nothing has a price.

    A model without a price costs as much as the dearest, as budgets have it.
    """
    prices = config.prices
    if not prices:
        return None
    dearest = PriceConfig(
        input_per_million=max(price.input_per_million for price in prices.values()),
        output_per_million=max(price.output_per_million for price in prices.values()),
    )

    def cost(model: str, input_tokens: int, output_tokens: int) -> float:
        price = prices.get(model, dearest)
        return (input_tokens * price.input_per_million + output_tokens * price.output_per_million) / 1e6

    return cost
