"""One recorded run, judged for a target that declares nothing, something wrong, and what is right.

The gateway is the bundled one, told what its profile says; only what the judge is told of it differs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest

from agentload import profile
from agentload.judge import judge
from agentload.model import Run, Status
from agentload.simulate import simulate
from agentload.targets._declares import as_declared

PASS, FAIL, OPEN = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE
Section = dict[str, Any] | str | None

GOLD = {f"gold{of}": {"weight": 5} for of in ("", "-heavy")}
SILVER = {f"silver{of}": {"weight": 3} for of in ("", "-heavy")}
BRONZE = {f"bronze{of}": {"weight": 2} for of in ("", "-heavy")}
CLASSES = {
    "guaranteed": {"nominal_share": 0.5, "min_units": 25},
    "standard": {"nominal_share": 0.3},
    "batch": {"nominal_share": 0.2, "borrows": 2.0},
}
GREEDY = {
    "guaranteed": {"nominal_share": 0.9, "min_units": 85},
    "standard": {"nominal_share": 0.05},
    "batch": {"nominal_share": 0.05, "borrows": False},
}
POOLS = {
    "shared": {"slots": 16, "classes": {"premium": {"nominal_share": 0.6, "min_units": 40}, "standard": {}}},
    "dedicated": {"slots": 8, "classes": {"contract": {}}},
}

WRONG: dict[str, Section] = {
    "limit-edges": {
        "slots": 10,
        "tenants": {
            "edges": {"requests_per_minute": 300, "burst_s": 1},
            "bulk": {"tokens_per_minute": 20_000, "burst_s": 1},
        },
    },
    "weighted-fair": {"fairness": "tokens"},
    "priority-flood": {"slots": 16, "classes": GREEDY, "queue": {"requests": 10}},
    "runaway-agent": {"budgets": {"run": {"tokens": 300}}, "queue": {"requests": 256}, "max_attempts": 3},
    "noisy-neighbor": {
        "queue": {"requests": 30, "age_s": 1},
        "upstream": {"tokens_per_minute": 60_000, "bucket_s": 2},
        "retry_after": False,
    },
    "deadlines": {"deadlines": False},
    "isolation": {"pools": {"shared": POOLS["shared"]}},
    "tenant-churn": {"tenants": {"returner": {"weight": 9}, "guest-a": {"weight": 1}}},
}
RIGHT: dict[str, Section] = {
    "limit-edges": {
        "slots": 48,
        "tenant_slots": 40,
        "tenants": {
            "edges": {"requests_per_minute": 600, "burst_s": 2},
            "bulk": {"tokens_per_minute": 60_000, "burst_s": 4},
        },
        "idempotency_keys": True,
    },
    "weighted-fair": {"tenants": GOLD | SILVER | BRONZE},
    "priority-flood": {"slots": 16, "classes": CLASSES, "queue": {"requests": 192, "age_s": 30}},
    "runaway-agent": {"budgets": {"run": {"tokens": 1_000}}, "queue": {"requests": 64}, "max_attempts": 6},
    "noisy-neighbor": {
        "queue": {"requests": 256, "age_s": 30},
        "upstream": {"tokens_per_minute": 153_600, "bucket_s": 2},
        "retry_after": True,
    },
    "deadlines": {"deadlines": True},
    "isolation": {"pools": POOLS},
    "tenant-churn": {"fairness": "tokens"},
}
TABLE: dict[str, dict[str, tuple[Status, Status, Status]]] = {
    # check: (nothing declared, wrongly, rightly)
    "limit-edges": {
        "tenant-limit": (OPEN, FAIL, PASS),
        "retry-identity": (OPEN, OPEN, PASS),
        "concurrency-cap": (OPEN, FAIL, PASS),
        "retry-after-present": (PASS, PASS, PASS),
        "retry-after-syntax": (PASS, PASS, PASS),
        "status-codes": (PASS, PASS, PASS),
    },
    "weighted-fair": {
        "weighted-share": (OPEN, FAIL, PASS),
        "service-gap": (OPEN, FAIL, PASS),
        "no-starvation": (PASS, PASS, PASS),
    },
    "priority-flood": {
        "class-borrow": (OPEN, FAIL, PASS),
        "class-floor": (OPEN, FAIL, PASS),
        "class-reclaim": (OPEN, FAIL, PASS),
        "no-starvation": (PASS, PASS, PASS),
        "bounded-queue": (PASS, FAIL, PASS),
        "status-codes": (PASS, PASS, PASS),
    },
    "runaway-agent": {
        "budget": (OPEN, FAIL, PASS),
        "retry-identity": (OPEN, FAIL, PASS),
        "status-codes": (PASS, PASS, PASS),
        "bounded-queue": (PASS, PASS, PASS),
        "no-starvation": (PASS, PASS, PASS),
    },
    "noisy-neighbor": {
        "victim-latency": (PASS, PASS, PASS),
        "victim-goodput": (PASS, PASS, PASS),
        "no-starvation": (PASS, PASS, PASS),
        "bounded-queue": (PASS, FAIL, PASS),
        "retry-after-present": (PASS, PASS, PASS),
        "retry-after-syntax": (PASS, PASS, PASS),
        "refusal-latency": (PASS, PASS, PASS),
        "provider-limit": (PASS, FAIL, PASS),
    },
    "deadlines": {
        "deadline": (OPEN, OPEN, PASS),
        "nested-timeouts": (OPEN, OPEN, PASS),
        "overload-goodput": (PASS, PASS, PASS),
        "bounded-queue": (PASS, PASS, PASS),
        "status-codes": (PASS, PASS, PASS),
    },
    "isolation": {
        "isolation": (OPEN, OPEN, PASS),
        "class-floor": (OPEN, PASS, PASS),
        "victim-goodput": (PASS, PASS, PASS),
        "no-starvation": (PASS, PASS, PASS),
        "retry-after-present": (PASS, PASS, PASS),
        "status-codes": (PASS, PASS, PASS),
    },
    "tenant-churn": {
        "idle-credit": (OPEN, PASS, PASS),
        "rebalance": (OPEN, FAIL, PASS),
        "weighted-share": (OPEN, FAIL, PASS),
        "no-starvation": (PASS, PASS, PASS),
        "bounded-queue": (PASS, PASS, PASS),
        "status-codes": (PASS, PASS, PASS),
        "bounded-memory": (OPEN, OPEN, OPEN),
    },
}
WORST = (FAIL, OPEN, PASS)


@cache
def recorded(name: str) -> Run:
    return simulate(profile.quick(profile.load(profile.find(name))), 1)


def statuses(run: Run, section: Section) -> dict[str, Status]:
    """Each check's, the worst where a profile asks it several times."""
    target = {"host": "127.0.0.1", "name": "gateway.yaml", "declares": section}
    judged, promises = as_declared(run.profile, target)
    found: dict[str, Status] = {}
    for one in judge(msgspec.structs.replace(run, profile=judged, promises=promises)):
        found[one.check] = min(one.status, found.get(one.check, PASS), key=WORST.index)
    return found


@pytest.mark.parametrize("name", TABLE)
def test_the_same_run_is_judged_by_what_is_declared(name: str) -> None:
    run = recorded(name)
    nothing, wrong, right = (statuses(run, section) for section in (None, WRONG[name], RIGHT[name]))
    assert {check: (nothing[check], wrong[check], right[check]) for check in nothing} == TABLE[name]
    assert statuses(run, "profile") == {one.check: one.status for one in judge(run)} | right
