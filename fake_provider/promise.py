"""What a refusal tells its caller about coming back, as the configuration wants it said."""

from __future__ import annotations

import math

from msgspec.structs import replace

from fake_provider.budget import NS
from fake_provider.call import Refusal
from fake_provider.reply import NS_PER_MS


def promising(refusal: Refusal, wait_ns: int, *, style: str, unix_ns: int) -> Refusal:
    """The refusal with the wait in it; `style` is `ProviderConfig.retry_after`, `unix_ns` is now."""
    if style == "none":
        return refusal
    if style == "date":
        return replace(refusal, retry_at_s=-(-(unix_ns + wait_ns) // NS))
    milliseconds = max(1, math.ceil(wait_ns / NS_PER_MS)) if style == "milliseconds" else None
    return replace(refusal, retry_after_s=max(1, math.ceil(wait_ns / NS)), retry_after_ms=milliseconds)


def not_before_ns(refusal: Refusal, *, now_ns: int, epoch_ns: int) -> int | None:
    """The instant that a refusal names, on the provider's clock; None: it names none."""
    if refusal.retry_at_s is not None:
        return refusal.retry_at_s * NS - epoch_ns
    promised_ns = refusal.promised_ns()
    return None if promised_ns is None else now_ns + promised_ns
