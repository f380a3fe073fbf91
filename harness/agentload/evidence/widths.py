"""How wide a request may be, in the work units of a gateway's pool, as far as it can be told from outside.

What a gateway has learnt of a caller is its own secret; the most that it may have reserved is not: the
declared tokens or, where its calls turned out to be longer, what they were. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

from agentload.model import RequestRecord, Run, Tenant
from agentload.scheduler.config import EstimationConfig
from agentload.scheduler.work import UNIT

_TOKENS_PER_WORD = 2.5
"""A gateway counts a token for every four characters; our prompts' words have ten, their space included."""


class Widths:
    """The most micro-units that each attempt of a run may have been reserved."""

    def __init__(self, run: Run) -> None:
        self._coefficients = run.profile.gateway.estimation
        self._promised = promises_units(run)
        self._longest: dict[str | None, int] = {}
        """Tenant → the longest answer that it was given."""
        self._prompts: dict[str | None, int] = {}
        """Tenant → its longest prompt, for requests that do not say."""
        for call in run.ledger:
            self._prompts[call.tenant] = max(self._prompts.get(call.tenant, 0), call.input_tokens)
            self._longest[call.tenant] = max(self._longest.get(call.tenant, 0), call.output_tokens)
        self._tools = {tenant.name: _tool_units(tenant, self._coefficients) for tenant in run.profile.tenants}

    def of(self, record: RequestRecord) -> int:
        """Micro-units, at most; 0 where the gateway promises nothing in units."""
        if not self._promised:
            return 0
        longest, declared = self._longest.get(record.tenant, 0), record.declared_output_tokens
        if declared is None:
            learnt = math.ceil(longest * self._coefficients.safety_multiplier)
            declared = max(self._coefficients.default_output_tokens, learnt)
        prompt = record.input_tokens or self._prompts.get(record.tenant, 0)
        tokens = prompt * _TOKENS_PER_WORD + max(declared, longest)
        units = tokens * self._coefficients.units_per_1000_tokens / 1_000
        return math.ceil((units + self._tools.get(record.tenant, 0.0)) * UNIT)


def promises_units(run: Run) -> bool:
    """Whether the pools' units are the gateway's own: of the bundled one, or declared."""
    pools = run.profile.gateway.pools.values()
    return run.promises is None or any("capacity_units" in pool.model_fields_set for pool in pools)


def _tool_units(tenant: Tenant, coefficients: EstimationConfig) -> float:
    """Work units of the tools that one request of the tenant declares, at most."""
    return max(
        (
            float(params.get("tool_calls", 0)) * coefficients.units_per_tool_call
            + float(params.get("tool_seconds", 0)) * coefficients.units_per_tool_second
            for params in _parts(tenant.workload.params if tenant.workload else {})
        ),
        default=0.0,
    )


def _parts(params: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A workload's parameters, or those of each part of a mix."""
    yield params
    for part in params.get("parts", ()):
        if isinstance(part, Mapping):
            yield cast("Mapping[str, Any]", part)
