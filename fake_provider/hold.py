"""Whose provider this is for the moment: two runs at once would empty each other's ledgers and buckets.

Whoever drives a run holds the provider and says so again and again; a hold that nobody renews lapses.
"""

from __future__ import annotations

LONGEST_S = 600.0


class Hold:
    """One holder at a time, known by its run number. Told the time, on the provider's clock."""

    def __init__(self) -> None:
        self.run: int | None = None
        self._until_ns = 0

    def left_s(self, now_ns: int) -> float:
        """How long it still lasts; 0 when nobody holds it."""
        return max(0.0, (self._until_ns - now_ns) / 1e9) if self.run is not None else 0.0

    def bars(self, run: int, now_ns: int) -> bool:
        """Whether another run holds it."""
        return self.run != run and self.left_s(now_ns) > 0

    def take(self, run: int, now_ns: int, seconds: float) -> None:
        """`run` has it for so long from now; 0 lets it go."""
        self.run = run if seconds > 0 else None
        self._until_ns = now_ns + round(seconds * 1e9)
