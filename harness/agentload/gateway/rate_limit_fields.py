"""`RateLimit-Policy` and `RateLimit`, which tell a tenant of its own limits. PURE.

draft-ietf-httpapi-ratelimit-headers-10: lists of structured fields. `q` units are granted in `w` seconds, `r`
of them may be used now, and all that may come at once is there again in `t` seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from agentload.gateway.headers import Headers
from agentload.model import NS
from agentload.scheduler.tenant_limits import Quota

_WINDOW_S = 60


def rate_limit_fields(now_ns: int, quotas: Iterable[Quota]) -> Headers:
    """Both fields, for at least one quota."""
    named = list(quotas)
    policies = ", ".join(f'"{one.name}";q={math.floor(one.per_minute)};w={_WINDOW_S}' for one in named)
    states = ", ".join(
        f'"{one.name}";r={max(0, math.floor(one.bucket.level(now_ns)))};t={_full_in_s(now_ns, one)}'
        for one in named
    )
    return ((b"ratelimit-policy", policies.encode()), (b"ratelimit", states.encode()))


def _full_in_s(now_ns: int, quota: Quota) -> int:
    return max(0, math.ceil((quota.bucket.full_ns - now_ns) / NS))
