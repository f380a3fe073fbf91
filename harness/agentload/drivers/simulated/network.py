"""What lies between the parts, and how fine their timers are: fixed numbers, nothing is left to chance.

A one-way delay of 100 µs is about what a message over loopback takes through two event loops on a quiet
machine. It is the same for all, so messages of one sender never overtake each other, and what leaves together
arrives together: ties are as common as in life.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentload.model import NS


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The numbers. Times in nanoseconds."""

    one_way_ns: int = 100_000
    """From client to gateway and back."""
    upstream_extra_ns: int = 0
    """From gateway to provider and back it takes so much longer; an odd number leaves hardly any ties."""
    timer_grain_ns: int = 1_000_000
    """Timers of gateway and provider run out this coarsely, rounded up, as uvloop's do; 1 is exact."""
    commit_ns: int = 2_000_000
    """Until what the jobs of a gateway have put into their store is safe, with what came meanwhile."""
    piece_tokens: int = 128
    """Tokens of a stream that travel in one event after the first one: as often as the gateway charges the
    overrun. 1: every chunk by itself."""
    piece_ns: int = NS
    """And no piece spans more than this, so that no silence looks like a stall."""
    sample_ns: int = NS // 10
    """Between two readings of the gateway's gauges; 0: none."""
    settle_ns: int = NS // 10
    """After the last client is done: what is under way still arrives."""

    @property
    def upstream_one_way_ns(self) -> int:
        """From gateway to provider, and back."""
        return self.one_way_ns + self.upstream_extra_ns

    def timer_ns(self, now_ns: int, due_ns: int) -> int:
        """When a timer that is set now for `due_ns` runs out."""
        grain = self.timer_grain_ns
        return now_ns + -(-max(0, due_ns - now_ns) // grain) * grain
