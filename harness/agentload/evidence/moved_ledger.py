"""The same run, had the provider's clock been another: for what is known of it only to half a round trip."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agentload.model import LedgerEntry, Run, ToolRecord

_CALL_TIMES = ("arrived_ns", "queued_ns", "started_ns", "ended_ns", "not_before_ns")
_TOOL_TIMES = ("arrived_ns", "ended_ns", "effect_ns")


def with_ledger_moved(run: Run, by_ns: int) -> Run:
    """The run as it would be with all that the provider wrote down `by_ns` later; negative: earlier."""
    return msgspec.structs.replace(
        run,
        ledger=[msgspec.structs.replace(call, **_moved(call, _CALL_TIMES, by_ns)) for call in run.ledger],
        tools=[msgspec.structs.replace(call, **_moved(call, _TOOL_TIMES, by_ns)) for call in run.tools],
    )


def _moved(call: LedgerEntry | ToolRecord, names: Iterable[str], by_ns: int) -> dict[str, int]:
    times: dict[str, int | None] = {name: getattr(call, name) for name in names}
    return {name: at_ns + by_ns for name, at_ns in times.items() if at_ns is not None}
