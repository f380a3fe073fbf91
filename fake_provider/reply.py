"""When each token of an answer is due, and what it says. Due times are absolute, so nothing drifts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fake_provider.config import LatencyConfig
from fake_provider.keyed import lognormal
from fake_provider.marker import ACK_TOKENS, Marker, ack
from fake_provider.words import filler

NS_PER_MS = 1_000_000

Draw = Callable[[str], float]
"""Purpose → a number in (0, 1) that belongs to this call and this purpose."""


class ReplyTiming(msgspec.Struct, frozen=True, gc=False):
    """The due times of one answer, on the provider's clock."""

    first_ns: int
    """When token 0 is due."""
    step_ns: int
    """From one token to the next."""
    output_tokens: int
    """Tokens in the whole answer, at least 1."""
    chunk_tokens: int = 1
    """Tokens in one chunk of a stream (the first token always goes by itself)."""

    @classmethod
    def plan(
        cls,
        latency: LatencyConfig,
        *,
        now_ns: int,
        input_tokens: int,
        output_tokens: int,
        draw: Draw,
        slow: float = 1.0,
    ) -> ReplyTiming:
        """The timing of a call that enters service at `now_ns`; `slow` stretches all of it.

        Time to first token = lognormal(first_token_ms, first_token_cv) + prefill per input token.
        """
        first_ms = lognormal(draw("first_token"), latency.first_token_ms, latency.first_token_cv)
        prefill_ms = latency.prefill_ms_per_1000_tokens * input_tokens / 1000
        step_ns = round(latency.inter_token_ms * slow * NS_PER_MS)
        return cls(
            first_ns=now_ns + round((first_ms + prefill_ms) * slow * NS_PER_MS),
            step_ns=step_ns,
            output_tokens=output_tokens,
            chunk_tokens=chunk_tokens(latency.chunk_ms, step_ns, output_tokens),
        )

    def token_ns(self, i: int) -> int:
        """When token `i`, counted from 0, is due."""
        return self.first_ns + i * self.step_ns

    def tokens_until(self, now_ns: int) -> int:
        """How many tokens are due by that time."""
        if now_ns < self.first_ns:
            return 0
        passed = (now_ns - self.first_ns) // self.step_ns if self.step_ns else self.output_tokens
        return min(1 + passed, self.output_tokens)

    @property
    def end_ns(self) -> int:
        """When the last token is due: a plain call's whole answer, too."""
        return self.token_ns(self.output_tokens - 1)

    def chunk_end(self, sent: int) -> int:
        """How many tokens are out once the chunk that follows `sent` tokens is."""
        size = self.chunk_tokens if sent else 1
        return min(sent + size, self.output_tokens)


def chunk_tokens(chunk_ms: float, step_ns: int, output_tokens: int) -> int:
    """Tokens to a chunk, so that chunks lie at least `chunk_ms` apart; one token each for `chunk_ms` 0."""
    if chunk_ms == 0:
        return 1
    chunk_ns = round(chunk_ms * NS_PER_MS)
    return max(1, -(-chunk_ns // step_ns)) if step_ns else output_tokens


def answer_text(marker: Marker | None, offset: int, first: int, last: int) -> str:
    """Tokens `first` up to (without) `last` of an answer: the acknowledgement of the marker, then filler.

    An answer shorter than the acknowledgement is its beginning; one without a marker is all filler.
    """
    opening = ack(marker).split() if marker is not None and first < ACK_TOKENS else []
    words = opening[first:last]
    text = " ".join(words) if first == 0 else "".join(f" {word}" for word in words)
    length = ACK_TOKENS if marker is not None else 0
    begin = max(first, length)
    return text + filler(max(0, last - begin), offset, skip=max(0, begin - length))
