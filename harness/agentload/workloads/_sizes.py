"""How many tokens: one number, a range, or a distribution; and what the size-drawing workloads share."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import exp, log, log1p, sqrt
from random import Random
from statistics import NormalDist
from typing import Annotated, Any, Self, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from agentload.model import NS, Job
from agentload.workloads import Workload
from fake_provider.marker import MARKER_TOKENS

MAX_OUTPUT_TOKENS = 65_535
"""The marker tells the provider the wanted output in 16 bits."""

_NORMAL = NormalDist()
_SMALLEST = 2.0**-53


class TokenCount(BaseModel):
    """A number of tokens: `24`, `{min: 8, max: 24}` (uniform, both ends included) or
    `{mean: 300, cv: 1.2, clip: 8}` (lognormal, cut off at clip × mean).

    Cutting lowers the mean by less than 1 % for cv ≤ 1.2 and clip 8. One draw each, by inverse CDF.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    min: int | None = Field(default=None, ge=1, le=1_000_000)
    max: int | None = Field(default=None, ge=1, le=1_000_000)
    mean: float | None = Field(default=None, ge=1, le=1_000_000)
    cv: float = Field(default=0.0, ge=0, le=10)
    """Coefficient of variation: standard deviation over mean."""
    clip: float = Field(default=8.0, gt=1, le=1000)
    """Nothing is larger than so many times the mean."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.mean is None and (self.min is None or self.max is None):
            raise ValueError("needs min and max, or mean (with cv)")
        if self.mean is not None and (self.min is not None or self.max is not None):
            raise ValueError("takes min and max, or mean, not both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is larger than max {self.max}")
        return self

    def draw(self, random: Random) -> int:
        """At least 1."""
        u = random.random()
        if self.mean is None:
            low, high = self.min or 1, self.max or 1
            return low + int(u * (high - low + 1))
        return _whole(min(lognormal(self.mean, self.cv, u), self.clip * self.mean))

    @property
    def is_constant(self) -> bool:
        """Every draw gives the same number."""
        return self.cv == 0 if self.mean is not None else self.min == self.max

    @property
    def smallest(self) -> int:
        """The least that can be drawn: exact for ranges and constants, 1 for distributions."""
        if self.mean is not None:
            return _whole(self.mean) if self.cv == 0 else 1
        return self.min or 1


def _from_number(value: Any) -> Any:
    if isinstance(value, dict | TokenCount):
        return cast("Any", value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"mean": value}
    raise ValueError(f"must be a number of tokens, {{min, max}} or {{mean, cv, clip}}, got {value!r}")


def _from_bool(value: Any) -> Any:
    return float(value) if isinstance(value, bool) else value


Tokens = Annotated[TokenCount, BeforeValidator(_from_number)]
StreamShare = Annotated[float, BeforeValidator(_from_bool), Field(ge=0, le=1)]


class ChatWorkload(Workload):
    """What all chat workloads share; a subclass says how many tokens come out."""

    input_tokens: Tokens = TokenCount(mean=24)
    """Prompt tokens, at least 13 (the marker that tells the provider whose call it is)."""
    max_tokens: int | None = Field(default=None, ge=1, le=MAX_OUTPUT_TOKENS)
    """The bound that the caller declares, and at which the model stops; None: not sent."""
    stream: StreamShare = 0.0
    """Share of the requests that ask for a stream: 0 to 1, or true and false."""
    deadline_s: float | None = Field(default=None, gt=0, le=3600)
    """Sent as `X-Deadline-Ms`: the answer is worthless later than this after the request was due."""
    workflow: str = Field(default="chat", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=48)
    new_workflows: bool = False
    """Every request names a workflow that has never been there before: its caller wants to stay unknown."""
    tool_calls: int = Field(default=0, ge=0, le=100_000)
    """Tool calls that the caller declares (`X-Expected-Tool-Calls`); no tool is called."""
    tool_seconds: float = Field(default=0.0, ge=0, le=86_400)
    """Seconds of tool time that it declares, beside the calls."""

    @model_validator(mode="after")
    def _marker_fits(self) -> Self:
        if self.input_tokens.smallest < MARKER_TOKENS and self.input_tokens.cv == 0:
            raise ValueError(f"input_tokens must be at least {MARKER_TOKENS}, the size of the marker")
        return self

    def job(self, random: Random, output_tokens: Callable[[Random], int]) -> Job:
        """Three draws, in the order input, output, stream; a fourth for the name of a new workflow."""
        entered = max(MARKER_TOKENS, self.input_tokens.draw(random))
        wanted = min(output_tokens(random), self.max_tokens or MAX_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS)
        streams = random.random() < self.stream
        return Job(
            input_tokens=entered,
            output_tokens=wanted,
            declared_output_tokens=self.max_tokens,
            stream=streams,
            workflow=f"{self.workflow}-{random.getrandbits(48):x}" if self.new_workflows else self.workflow,
            tool_calls=self.tool_calls,
            tool_ns=round(self.tool_seconds * NS),
            deadline_ns=None if self.deadline_s is None else round(self.deadline_s * NS),
        )


def lognormal(mean: float, cv: float, u: float) -> float:
    """The u-quantile of the lognormal distribution with this mean and coefficient of variation."""
    if cv == 0:
        return mean
    variance = log1p(cv * cv)
    return mean * exp(sqrt(variance) * _NORMAL.inv_cdf(max(u, _SMALLEST)) - variance / 2)


def clipped_pareto(mean: float, alpha: float, clip: float, u: float) -> float:
    """The u-quantile of a Pareto distribution, cut at clip × mean, scaled so that `mean` holds after it."""
    least = mean * _pareto_least(alpha, clip)
    return min(least * exp(-log1p(-u) / alpha), clip * mean)


@lru_cache
def _pareto_least(alpha: float, clip: float) -> float:
    """The smallest value of a Pareto(alpha) whose mean is 1 after cutting at `clip`, by bisection.

    E[min(X, clip)] = least + the integral of (least/x)^alpha from least to clip, which grows with least.
    """

    def mean(least: float) -> float:
        return least + least / (alpha - 1) * (1 - exp((alpha - 1) * log(least / clip)))

    low, high = 1e-9, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < 1 else (low, middle)
    return high


def _whole(tokens: float) -> int:
    return max(1, round(tokens))
