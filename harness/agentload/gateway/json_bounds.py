"""What bodies from outside may hold: how deep they are nested, and how large their numbers may be. PURE."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a body that it cannot read. RecursionError: nested a thousand times or more."""
MAX_TOKENS = 1_000_000_000
"""Of one text, at most: far above every model's window, far below where sums lose digits or do not fit."""
MAX_TOTAL_TOKENS = 2**53
"""Of a whole job, at most: what JSON's numbers can still say exactly (RFC 8259, 6)."""


def why_unreadable(error: Exception) -> str:
    """One of UNREADABLE in words for whoever sent the body."""
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error)
