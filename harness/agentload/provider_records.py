"""What the provider says of calls, in its own words and on its own clock, as records of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from agentload.clock_alignment import ClockAlignment
from agentload.errors import UnreachableError
from agentload.model import LedgerEntry, ToolRecord

_TIMES = ("arrived_ns", "queued_ns", "started_ns", "ended_ns", "not_before_ns")
_FIELDS = frozenset(LedgerEntry.__struct_fields__)
_MOST = 2**62
"""Of any number, either way: files hold 64 bits."""
_ODD = (AttributeError, KeyError, TypeError, ValueError, OverflowError, msgspec.ValidationError)
T = TypeVar("T")


class StrangeRecordError(UnreachableError):
    """What no provider of ours says: of another version perhaps, or somebody else's."""

    def __init__(self) -> None:
        super().__init__("the provider's record of a call is not agentload's, or of another version")


def ledger_from_provider(
    entries: Iterable[Mapping[str, Any]],
    tenants: Sequence[str],
    t0_ns: int,
    clock: ClockAlignment | None = None,
) -> list[LedgerEntry]:
    """The provider's entries (tenant numbers, its own monotonic times) with names and the run's clock.

    `clock`: the provider's against ours; None where they are one. A tenant number that the run never gave out
    counts as no marker at all. Fields of a newer provider are ignored. Raises StrangeRecordError.
    """
    return [_ledger_entry(entry, tenants, t0_ns, clock) for entry in entries]


def on_the_run(theirs_ns: int, t0_ns: int, clock: ClockAlignment | None) -> int:
    """An instant of the provider's monotonic clock on the run's clock."""
    return (theirs_ns if clock is None else clock.ours_ns(theirs_ns)) - t0_ns


def _ledger_entry(
    entry: Mapping[str, Any], tenants: Sequence[str], t0_ns: int, clock: ClockAlignment | None
) -> LedgerEntry:
    values = _on_the_run(entry, _FIELDS, _TIMES, t0_ns, clock)
    index = values.get("tenant")
    known = isinstance(index, int) and 0 <= index < len(tenants)
    values["tenant"] = tenants[index] if known and index is not None else None
    if not known:
        values["seq"] = values["attempt"] = None
    return _made(values, LedgerEntry)


def _on_the_run(
    entry: Mapping[str, Any],
    fields: frozenset[str],
    times: Sequence[str],
    t0_ns: int,
    clock: ClockAlignment | None,
) -> dict[str, Any]:
    """What of an entry goes into its record, with the run's times."""
    try:
        values = {name: value for name, value in entry.items() if name in fields}
        for name in times:
            if values.get(name) is not None:
                values[name] = on_the_run(values[name], t0_ns, clock)
    except _ODD as error:
        raise StrangeRecordError from error
    return values


def _made(values: dict[str, Any], kind: type[T]) -> T:
    """The record, every field of its type and within 64 bits."""
    try:
        if any(isinstance(value, int) and abs(value) > _MOST for value in values.values()):
            raise OverflowError
        return msgspec.convert(values, kind)
    except _ODD as error:
        raise StrangeRecordError from error


_TOOL_TIMES = ("arrived_ns", "ended_ns", "effect_ns")
_TOOL_FIELDS = frozenset(ToolRecord.__struct_fields__)


def tools_from_provider(
    entries: Iterable[Mapping[str, Any]], t0_ns: int, clock: ClockAlignment | None = None
) -> list[ToolRecord]:
    """The fake tools' entries (the provider's monotonic times) on the run's clock.

    Raises StrangeRecordError.
    """
    return [_tool_record(entry, t0_ns, clock) for entry in entries]


def _tool_record(entry: Mapping[str, Any], t0_ns: int, clock: ClockAlignment | None) -> ToolRecord:
    return _made(_on_the_run(entry, _TOOL_FIELDS, _TOOL_TIMES, t0_ns, clock), ToolRecord)
