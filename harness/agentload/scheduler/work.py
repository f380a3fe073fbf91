"""How much work a request is: what the caller says, and what it is charged."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from agentload.scheduler.config import EstimationConfig

UNIT = 1_000_000
"""Micro-units in a work unit. Work is added up in whole micro-units, so that what is taken and what is given
back cancel exactly; only virtual time is a float."""


@dataclass(slots=True, kw_only=True)
class Request:
    """One attempt that asks to be served. Counts are never negative; times are nanoseconds on one clock."""

    id: int
    """Unique among all requests of one Admission; given by the caller."""
    tenant: str
    service_class: str
    input_tokens: int
    text_chars: int
    """Characters of the decoded text: the provider charges a token for every four."""
    max_output_tokens: int | None = None
    """`max_tokens` as sent; None when left out."""
    arrived_ns: int
    deadline_ns: int | None = None
    """Absolute. None: no deadline."""
    workflow: str = "chat"
    model: str = ""
    tool_calls: int = 0
    """Declared tool calls, in all turns."""
    tool_seconds: float = 0.0
    """Declared seconds of tool time, in all turns."""
    body_bytes: int = 0
    """What holding it in a queue costs in memory."""
    attempt: int = 0
    """0 for the first attempt; set right by admission where its idempotency key has come before."""
    max_attempts: int | None = None
    """Attempts that the caller's retry envelope allows, as far as they are configured. None: those."""
    not_before_ns: int | None = None
    """When the caller itself wants it to start, at the earliest. None: now."""
    idempotency_key: str | None = None
    """Names the logical request among its tenant's: equal for all attempts at it. None: nothing is known of
    earlier attempts but what the caller says."""
    run_id: str | None = None
    """Names what it is a step of, among its tenant's. None: it stands for itself."""


class WorkEstimate(msgspec.Struct, frozen=True):
    """What a request is expected to cost, dimension by dimension (the article's own fields)."""

    input_tokens: int
    max_output_tokens: int
    expected_tool_calls: int
    expected_tool_seconds: float
    deadline_ms: int | None
    """What is left at admission. None: no deadline."""
    service_class: str

    @property
    def token_budget(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.max_output_tokens

    def units_by_dimension(self, coefficients: EstimationConfig) -> dict[str, float]:
        """Work units of each dimension by itself, so that the one that binds can be seen."""
        return {
            "tokens": self.token_budget * coefficients.units_per_1000_tokens / 1_000,
            "tool_calls": self.expected_tool_calls * coefficients.units_per_tool_call,
            "tool_seconds": self.expected_tool_seconds * coefficients.units_per_tool_second,
        }

    def work_units(self, coefficients: EstimationConfig) -> float:
        """All dimensions in one number: by default tokens / 1000 + tool_calls / 4 + tool_seconds / 10."""
        return sum(self.units_by_dimension(coefficients).values())


class WorkMeter:
    """Work in micro-units, with the coefficients worked out once."""

    __slots__ = ("_per_call", "_per_second", "_per_token")

    def __init__(self, coefficients: EstimationConfig) -> None:
        self._per_token = coefficients.units_per_1000_tokens * UNIT / 1_000
        self._per_call = coefficients.units_per_tool_call * UNIT
        self._per_second = coefficients.units_per_tool_second * UNIT

    def work(self, request: Request, input_tokens: int, output_tokens: int) -> int:
        """Micro-units of tokens and tools as declared, at least 1: work that cost nothing would have no end.

        What a caller says of its tools decides how wide its reservation is, and what it is charged until its
        call ends; then it is charged for tokens alone (`tokens`). Nobody reports what the tools of a chat
        call took, they use nothing of ours or the provider's, and a charge that rests on the caller's word
        would give a larger share to whoever keeps silent about them. A turn that a tool leads to is a call of
        its own, and pays for itself, declared or not.
        """
        tools = request.tool_calls * self._per_call + request.tool_seconds * self._per_second
        return round((input_tokens + output_tokens) * self._per_token + tools) or 1

    def tokens(self, tokens: int) -> int:
        """Micro-units of tokens alone, as measured, at least 1: what a call costs in the end."""
        return round(tokens * self._per_token) or 1


def provider_tokens(request: Request) -> int:
    """What the provider's token bucket is asked for: max_tokens or a quarter of the characters, if more.

    Source: OpenAI's rate-limit guide ("the maximum of max_tokens and the estimated number of tokens based on
    the character count of your request").
    """
    by_characters, declared = (request.text_chars + 3) // 4, request.max_output_tokens
    return by_characters if declared is None or declared < by_characters else declared
