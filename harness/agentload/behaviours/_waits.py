"""Waits that several programs take from one library."""

from __future__ import annotations

from random import Random


def exponential_jitter_s(number: int, random: Random, longest_s: float = float("inf")) -> float:
    """`tenacity.wait_exponential_jitter(1, longest, jitter=1)` after `number` retries: 2^i + U(0, 1) s."""
    jitter = random.uniform(0, 1)
    return min(2.0 ** min(number, 1000) + jitter, longest_s)
