"""Token buckets, what a call costs, and the rate-limit headers that say so."""

from __future__ import annotations

import math

NS = 1_000_000_000
Headers = list[tuple[bytes, bytes]]
"""Header fields as ASGI has them: lower-case names, in order."""

EPSILON = 1e-6
"""A bucket that lacks less than this grants: else rounding asks for waits of 1e-18 s, over and over."""


class Bucket:
    """A token bucket that fills continuously. It may go into debt, by charges that were not asked for first.

    `per_minute` is the limit; the bucket holds `bucket_s` seconds of it and starts full.
    """

    __slots__ = ("_at_ns", "_per_ns", "bucket_s", "level", "per_minute")

    def __init__(self, per_minute: float, bucket_s: float, now_ns: int) -> None:
        self.per_minute = per_minute
        self.bucket_s = bucket_s
        self._per_ns = per_minute / 60 / NS
        self._at_ns = now_ns
        self.level = self.capacity

    @property
    def capacity(self) -> float:
        """Tokens in a full bucket: the largest call it can ever grant."""
        return self.per_minute / 60 * self.bucket_s

    def refill(self, now_ns: int) -> None:
        """Brings the level up to date; a clock that steps back changes nothing."""
        if now_ns > self._at_ns:
            self.level = min(self.capacity, self.level + (now_ns - self._at_ns) * self._per_ns)
            self._at_ns = now_ns

    def wait_ns(self, n: float, now_ns: int) -> int | None:
        """How long until `n` tokens could be taken: 0 is now, None is never (more than a full bucket)."""
        if n > self.capacity + EPSILON:
            return None
        self.refill(now_ns)
        lacking = n - self.level
        return 0 if lacking <= EPSILON else math.ceil(lacking / self._per_ns)

    def take(self, n: float) -> None:
        """Takes `n` tokens, into debt if need be."""
        self.level -= n

    def full_in_ns(self) -> int:
        """How long until the bucket is full, seen from its last refill."""
        return math.ceil(max(0.0, self.capacity - self.level) / self._per_ns)

    def used(self) -> float:
        """OpenAI's Used: (used + requested - limit) * 60 / limit is the wait in seconds."""
        return self.per_minute - self.level

    def resize(self, per_minute: float, now_ns: int) -> None:
        """Another limit from now on; the bucket stays as full, in proportion, as it was."""
        self.refill(now_ns)
        self.level *= per_minute / self.per_minute
        self.per_minute = per_minute
        self._per_ns = per_minute / 60 / NS


def openai_cost(text_chars: int, max_tokens: int | None) -> int:
    """Tokens that OpenAI charges against TPM at admission.

    "The maximum of max_tokens and the estimated number of tokens based on the character count of your
    request" (https://platform.openai.com/docs/guides/rate-limits): here a token for every four characters.
    """
    return max(max_tokens or 0, -(-text_chars // 4))


def go_duration(duration_ns: int) -> str:
    """A duration as Go prints it, truncated to milliseconds: `0s`, `12ms`, `7.66s`, `2m59.56s`, `1h0m1s`."""
    total_ms = max(0, duration_ns) // 1_000_000
    if total_ms == 0:
        return "0s"
    if total_ms < 1000:
        return f"{total_ms}ms"
    total_s, ms = divmod(total_ms, 1000)
    minutes, seconds = divmod(total_s, 60)
    fraction = f".{ms:03d}".rstrip("0") if ms else ""
    if minutes == 0:
        return f"{seconds}{fraction}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}{fraction}s" if hours else f"{minutes}m{seconds}{fraction}s"


_REQUESTS = (b"requests",)
_TOKENS = (b"tokens", b"project-tokens")
_NAMES = {
    name: tuple(b"x-ratelimit-%s-%s" % (field, name) for field in (b"limit", b"remaining", b"reset"))
    for name in (*_REQUESTS, *_TOKENS)
}


def rate_limit_headers(requests: Bucket | None, tokens: Bucket | None) -> Headers:
    """OpenAI's `x-ratelimit-*` fields; `reset` is the time until full, `remaining` is rounded down.

    The `project-tokens` fields came in June 2026; here a project has its organisation's limit.
    """
    limit: Headers = []
    remaining: Headers = []
    reset: Headers = []
    for names, bucket in ((_REQUESTS, requests), (_TOKENS, tokens)):
        if bucket is None:
            continue
        per_minute, left = b"%d" % bucket.per_minute, _whole(bucket.level)
        full = _duration(bucket.full_in_ns())
        for name in names:
            limit_name, remaining_name, reset_name = _NAMES[name]
            limit.append((limit_name, per_minute))
            remaining.append((remaining_name, left))
            reset.append((reset_name, full))
    return limit + remaining + reset


def _duration(duration_ns: int) -> bytes:
    return go_duration(duration_ns).encode()


def _whole(level: float) -> bytes:
    return b"%d" % max(0.0, level + EPSILON)
