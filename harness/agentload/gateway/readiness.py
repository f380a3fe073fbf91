"""Whether it makes sense to send this gateway traffic. PURE.

Alive is not ready: a gateway whose every upstream call fails is healthy and useless. The evidence fades, so
that a gateway taken out of rotation is tried again.
"""

from __future__ import annotations

MIN_FAILURES = 5
"""Fewer failures in a row say little."""


class Readiness:
    """Watches how upstream calls end."""

    def __init__(self, window_ns: int) -> None:
        """`window_ns`: how long without a single success, and how long since the last failure, counts."""
        self.draining = False
        self._window_ns = window_ns
        self._failures = 0
        self._failing_since_ns = 0
        self._last_failure_ns = 0

    def observe(self, now_ns: int, *, failed: bool) -> None:
        """One upstream call has ended; `failed` when the provider is to blame."""
        if not failed:
            self._failures = 0
            return
        if self._failures == 0:
            self._failing_since_ns = now_ns
        self._failures += 1
        self._last_failure_ns = now_ns

    def problem(self, now_ns: int) -> str | None:
        """Why not to send traffic here, in words; None when ready."""
        if self.draining:
            return "shutting down"
        failing_ns = self._last_failure_ns - self._failing_since_ns
        recent = now_ns - self._last_failure_ns <= self._window_ns
        if self._failures >= MIN_FAILURES and recent and failing_ns >= self._window_ns:
            return f"the last {self._failures} upstream calls failed"
        return None
