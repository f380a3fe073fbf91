"""Randomness by key instead of by stream: what one call draws never depends on which calls came before it."""

from __future__ import annotations

import math
from hashlib import blake2b
from statistics import NormalDist

_STANDARD = NormalDist()


def uniform(key: str) -> float:
    """A number in the open interval (0, 1) that belongs to `key`: the same in every process and version."""
    digest = blake2b(key.encode(), digest_size=7).digest()
    # 52 bits, so that adding a half is exact and neither 0 nor 1 can come out.
    return ((int.from_bytes(digest, "big") >> 4) + 0.5) / (1 << 52)


def lognormal(u: float, mean: float, cv: float) -> float:
    """The value at quantile `u` of the lognormal with that mean and coefficient of variation."""
    if cv == 0 or mean == 0:
        return mean
    variance = math.log1p(cv * cv)
    return mean * math.exp(math.sqrt(variance) * _STANDARD.inv_cdf(u) - variance / 2)
