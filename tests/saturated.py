"""A saturated gateway in forty lines, independent of the product's scheduler: truth for the fairness checks.

Closed-loop users without think time, `slots` calls in service at once, and three ways to choose who is next.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Literal

from agentload.evidence.synthetic import RunBuilder, profile
from agentload.model import Outcome, Run

Policy = Literal["sfq", "round-robin", "fifo"]
Cost = Callable[[str, Random], int]


def saturated_run(
    policy: Policy,
    weights: Mapping[str, float],
    cost: Cost,
    *,
    slots: int = 16,
    users: int = 30,
    seconds: float = 20.0,
    service_ms: float = 250.0,
    ms_per_token: float = 0.0,
    seed: int = 1,
) -> Run:
    """Every tenant keeps `users` requests in flight for `seconds`; all but `slots` of them wait.

    `fifo` serves in order of arrival; `round-robin` gives each tenant one turn; `sfq` is start-time fair
    queueing by cost: least max(V, F) first, F += cost/weight (Goyal et al., 1996).
    """
    random, build = Random(seed), RunBuilder(profile(tenants=weights, phases={"load": seconds}))
    waiting: dict[str, deque[tuple[float, int, int]]] = {t: deque() for t in weights}  # (since, order, cost)
    finish, served_at, virtual, order = dict.fromkeys(weights, 0.0), dict.fromkeys(weights, 0), 0.0, 0

    def send(tenant: str, at_ms: float) -> None:
        nonlocal order
        order += 1
        waiting[tenant].append((at_ms, order, cost(tenant, random)))

    def choose() -> str:
        if policy == "fifo":
            return min(waiting, key=lambda t: waiting[t][0][1] if waiting[t] else 1 << 60)
        if policy == "round-robin":
            return min(waiting, key=lambda t: served_at[t])
        return min(waiting, key=lambda t: (max(virtual, finish[t]), t))

    for user in range(users * len(weights)):
        send(list(weights)[user % len(weights)], 0.0)
    ending: list[tuple[float, int, str]] = [(0.0, -k, "") for k in range(slots)]
    heapq.heapify(ending)
    turn = 0
    while ending[0][0] < seconds * 1000:
        now_ms, _, freed = heapq.heappop(ending)
        if freed:
            send(freed, now_ms)
        tenant = choose()
        since_ms, _, tokens = waiting[tenant].popleft()
        virtual = max(virtual, finish[tenant])
        finish[tenant] = virtual + tokens / weights[tenant]
        turn += 1
        served_at[tenant] = turn
        length_ms = max(1.0, service_ms * (0.5 + random.random()) + ms_per_token * tokens)
        build.answered(
            tenant,
            since_ms,
            wait_ms=now_ms - since_ms,
            service_ms=length_ms,
            input_tokens=tokens // 2,
            output_tokens=tokens - tokens // 2,
        )
        heapq.heappush(ending, (now_ms + length_ms, turn, tenant))
    for tenant, queue in waiting.items():
        for since_ms, _, _ in queue:
            build.ended(tenant, since_ms, Outcome.UNFINISHED, after_ms=seconds * 1000 - since_ms)
    return build.run()
