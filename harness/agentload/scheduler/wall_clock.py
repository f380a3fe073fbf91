"""The date, for a core that only knows how much time has passed."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from agentload.scheduler.budget_config import Per

NS = 1_000_000_000
EPOCH_NS = 1_767_225_600 * NS
"""1 January 2026, in nanoseconds of Unix time: what the clock shows at 0 where nobody says otherwise."""
_LENGTH_NS = {Per.MINUTE: 60 * NS, Per.HOUR: 3_600 * NS, Per.DAY: 86_400 * NS}
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)  # leap seconds excepted, which no clock here can show


class WallClock:
    """Turns instants of the monotonic clock into dates and back. It reads no clock."""

    __slots__ = ("_offset_ns",)

    def __init__(self, offset_ns: int = EPOCH_NS) -> None:
        """`offset_ns`: Unix time in nanoseconds when the monotonic clock is at 0."""
        self._offset_ns = offset_ns

    def text(self, at_ns: int) -> str:
        """An instant as RFC 3339 in UTC, rounded up to a millisecond: never before the instant itself."""
        milliseconds = -(-(at_ns + self._offset_ns) // 1_000_000)
        date = datetime.fromtimestamp(milliseconds // 1_000, UTC)
        return f"{date.isoformat()[:19]}.{milliseconds % 1_000:03d}Z"

    def read(self, text: str) -> int:
        """The instant that a date in RFC 3339 means. Raises ValueError for anything else."""
        if not _RFC_3339.fullmatch(text):
            raise ValueError("must be a date such as 2026-10-22T09:15:32Z")
        date = datetime.fromisoformat(text.upper())
        seconds = int(date.replace(microsecond=0).timestamp())
        return seconds * NS + date.microsecond * 1_000 - self._offset_ns

    def window_end_ns(self, now_ns: int, per: Per) -> int | None:
        """When the present window ends; None where there is no end. Windows begin at whole UTC units."""
        if per is Per.TOTAL:
            return None
        wall_ns = now_ns + self._offset_ns
        length_ns = _LENGTH_NS.get(per)
        if length_ns is not None:
            return (wall_ns // length_ns + 1) * length_ns - self._offset_ns
        date = datetime.fromtimestamp(wall_ns // NS, UTC)
        year, month = (date.year + 1, 1) if date.month == 12 else (date.year, date.month + 1)
        return int(datetime(year, month, 1, tzinfo=UTC).timestamp()) * NS - self._offset_ns
