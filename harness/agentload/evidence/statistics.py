"""Small exact statistics: percentiles that may be infinite, sample floors, two exact tests, a slope.

Pure and dependency-free; samples are a few thousand values, so plain Python is fast enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentload.model import Distribution

NS_PER_MS = 1_000_000


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest-rank percentile (0 < percent <= 100) of at least one value; +infinity may be among them.

    The smallest value that at least `percent` % of the sample do not exceed: always one that was measured.
    Raises ValueError without values or for a percent out of range.
    """
    return percentiles(values, (percent,))[0]


def percentiles(values: Sequence[float], percents: Sequence[float]) -> list[float]:
    """Several nearest-rank percentiles with one sort, in the order asked for."""
    if not values:
        raise ValueError("no percentile of no values")
    ascending = sorted(values)
    return [ascending[_rank(percent, len(ascending)) - 1] for percent in percents]


def _rank(percent: float, n: int) -> int:
    if not 0 < percent <= 100:
        raise ValueError(f"a percentile lies in (0, 100], got {percent:g}")
    # Rounding first keeps 7 % of 100 at rank 7: in floats, 0.07 * 100 is a little more than 7.
    return max(1, math.ceil(round(percent / 100 * n, 9)))


def sample_floor(percent: float) -> int:
    """Fewest samples from which a percentile may be judged: 20 for p50, 72 for p95, 368 for p99.

    Above the median: the smallest n with (percent/100)**n <= 2.5 %, so that the sample reaches beyond the
    percentile at all with 97.5 % probability.
    """
    return max(20, math.ceil(math.log(0.025) / math.log(percent / 100)))


def enough(n: int, percent: float) -> bool:
    """Whether `n` samples may be judged by this percentile."""
    return n >= sample_floor(percent)


def distribution(latencies_ns: Sequence[float]) -> Distribution:
    """p50 … p99.9 in milliseconds, each None below its floor; `censored` when one of them is +infinity."""
    percents = [p for p in (50.0, 95.0, 99.0, 99.9) if enough(len(latencies_ns), p)]
    found = dict(zip(percents, percentiles(latencies_ns, percents), strict=True)) if percents else {}

    def stated(percent: float) -> float | None:
        value = found.get(percent)
        return None if value is None or math.isinf(value) else value / NS_PER_MS

    return Distribution(
        p50=stated(50.0),
        p95=stated(95.0),
        p99=stated(99.0),
        p999=stated(99.9),
        n=len(latencies_ns),
        censored=any(math.isinf(value) for value in found.values()),
    )


def binomial_tail(successes: int, trials: int, probability: float) -> float:
    """P(X >= successes) for X ~ Binomial(trials, probability): the exact one-sided p-value of "too many"."""
    if successes <= 0:
        return 1.0
    if not 0 < probability < 1:
        return 1.0 if probability >= 1 and successes <= trials else 0.0
    log_p, log_q = math.log(probability), math.log1p(-probability)
    logs = [_log_choose(trials, k) + k * log_p + (trials - k) * log_q for k in range(successes, trials + 1)]
    return min(1.0, math.fsum(math.exp(value) for value in logs))


def fisher_lower(successes_before: int, n_before: int, successes_after: int, n_after: int) -> float:
    """Fisher's exact test, one-sided: how likely so few successes afterwards are if nothing changed.

    P(X <= successes_after) for X hypergeometric with the margins of the 2 × 2 table.
    """
    total, successes = n_before + n_after, successes_before + successes_after
    lowest = max(0, successes - n_before)
    whole = _log_choose(total, n_after)
    logs = [
        _log_choose(successes, k) + _log_choose(total - successes, n_after - k) - whole
        for k in range(lowest, successes_after + 1)
    ]
    return min(1.0, math.fsum(math.exp(value) for value in logs))


def _log_choose(n: int, k: int) -> float:
    if not 0 <= k <= n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Least-squares slope of y over x; 0 for fewer than two distinct x."""
    n = len(xs)
    if n < 2:
        return 0.0
    mean_x, mean_y = math.fsum(xs) / n, math.fsum(ys) / n
    spread = math.fsum((x - mean_x) ** 2 for x in xs)
    if spread == 0:
        return 0.0
    return math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
