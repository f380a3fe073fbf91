"""Answers take longer: first token and every token after it."""

from __future__ import annotations

from pydantic import Field

from fake_provider.faults import Fault


class Slow(Fault):
    """Times of answers that begin while it is active are multiplied by `factor`."""

    factor: float = Field(gt=0)

    def slow_down_factor(self) -> float:
        return self.factor
