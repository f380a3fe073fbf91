"""What a gateway is known to promise: a check may hold nothing else against it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Literal

import msgspec

ShareUnit = Literal["tokens", "seconds", "requests"]
"""In which a gateway divides what it has: tokens, seconds in service at the provider, or calls."""


class Truth(StrEnum):
    """One thing that a gateway may have been told, and a check may rest on."""

    WEIGHTS = "weights"
    SLOTS = "slots"
    TENANT_SLOTS = "tenant slots"
    TENANT_LIMITS = "limits of tenants"
    BUDGETS = "budgets"
    QUEUE_REQUESTS = "bound of its queue"
    QUEUE_AGE = "longest wait in its queue"
    CLASSES = "service classes"
    POOLS = "pools"
    DEADLINES = "deadlines"
    RETRY_AFTER = "Retry-After"
    UPSTREAM = "upstream limit"
    MAX_ATTEMPTS = "most attempts"
    IDEMPOTENCY_KEYS = "memory of idempotency keys"
    MAX_REQUEST_TOKENS = "largest request"
    JOBS = "durable jobs"
    JOB_LEASES = "leases of jobs"
    JOB_ETAS = "ETAs of jobs"


SAID_BY: Mapping[Truth, str] = {
    Truth.WEIGHTS: "tenants.T.weight",
    Truth.SLOTS: "slots",
    Truth.TENANT_SLOTS: "tenant_slots",
    Truth.TENANT_LIMITS: "tenants.T.requests_per_minute",
    Truth.BUDGETS: "tenants.T.budget",
    Truth.QUEUE_REQUESTS: "queue.requests",
    Truth.QUEUE_AGE: "queue.age_s",
    Truth.CLASSES: "classes",
    Truth.POOLS: "pools",
    Truth.DEADLINES: "deadlines",
    Truth.RETRY_AFTER: "retry_after",
    Truth.UPSTREAM: "upstream",
    Truth.MAX_ATTEMPTS: "max_attempts",
    Truth.IDEMPOTENCY_KEYS: "idempotency_keys",
    Truth.MAX_REQUEST_TOKENS: "max_request_tokens",
    Truth.JOBS: "jobs",
    Truth.JOB_LEASES: "jobs.lease_s",
    Truth.JOB_ETAS: "jobs",
}
"""The key below `declares:` of a target file by which each is said (`fairness` beside the weights)."""
WITHOUT: Mapping[str, tuple[Truth, ...]] = {
    "weights": (Truth.WEIGHTS,),
    "slots": (Truth.SLOTS,),
    "tenant_slots": (Truth.TENANT_SLOTS,),
    "limits": (Truth.TENANT_LIMITS,),
    "budgets": (Truth.BUDGETS,),
    "queue": (Truth.QUEUE_REQUESTS, Truth.QUEUE_AGE),
    "classes": (Truth.CLASSES,),
    "pools": (Truth.POOLS,),
    "deadlines": (Truth.DEADLINES,),
    "retry_after": (Truth.RETRY_AFTER,),
    "upstream": (Truth.UPSTREAM,),
    "max_attempts": (Truth.MAX_ATTEMPTS,),
    "idempotency_keys": (Truth.IDEMPOTENCY_KEYS,),
    "max_request_tokens": (Truth.MAX_REQUEST_TOKENS,),
    "jobs": (Truth.JOBS, Truth.JOB_LEASES, Truth.JOB_ETAS),
    "job_leases": (Truth.JOB_LEASES,),
    "job_etas": (Truth.JOB_ETAS,),
}
"""What a target may list below `declares.without`: it makes no such promise."""
DENIED_BY: Mapping[Truth, str] = {
    **{truth: f"without: [{word}]" for word, truths in WITHOUT.items() for truth in truths},
    Truth.WEIGHTS: "fairness: none",
    Truth.DEADLINES: "deadlines: false",
    Truth.RETRY_AFTER: "retry_after: false",
    Truth.IDEMPOTENCY_KEYS: "idempotency_keys: false",
    Truth.JOBS: "jobs: false",
}
"""How a target says that it makes no such promise, in the shortest way."""
_LIST = "without: ["
_OF_JOBS = frozenset({Truth.JOB_LEASES, Truth.JOB_ETAS})
"""Who has no jobs has none of these."""


class Promises(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody's gateway is known to promise. What the numbers are, the run's profile says."""

    known: frozenset[Truth] = frozenset()
    denied: frozenset[Truth] = frozenset()
    """What it is known not to promise: `deadlines: false`."""
    fairness: ShareUnit = "tokens"
    max_request_tokens: int | None = None
    """A request of more, prompt and declared output together, is refused for good."""
    where: str = "a target file"
    """Where more could be said."""


def denial(truth: Truth, promises: Promises) -> str:
    """How this target says that it makes no such promise, which it denies."""
    return DENIED_BY[Truth.JOBS if truth in _OF_JOBS and Truth.JOBS in promises.denied else truth]


def denials(truths: Iterable[Truth], promises: Promises) -> str:
    """How it says so of those that it denies, all in one: `without: [queue, upstream]`; empty for none."""
    denied = frozenset(truths) & promises.denied
    ways = list(dict.fromkeys(denial(truth, promises) for truth in Truth if truth in denied))
    bare = [way.removeprefix(_LIST).removesuffix("]") for way in ways if way.startswith(_LIST)]
    listed = [f"{_LIST}{', '.join(bare)}]"] if bare else []
    return " and ".join(f"`{way}`" for way in [*(way for way in ways if not way.startswith(_LIST)), *listed])


def is_not_asked(truths: Iterable[Truth], promises: Promises) -> bool:
    """Whether the target says outright that it promises nothing of the kind: then nobody breaks it."""
    rests = frozenset(truths)
    return bool(rests) and rests <= promises.denied


def judged_without(truths: Iterable[Truth], promises: Promises, said: str) -> str:
    """` (judged without declares.max_attempts, which the target does not say)`, or empty.

    `truths`: what the check judges more with; left out is what `said` (the verdict's sentence) names already.
    """
    unsaid = frozenset(truths) - promises.known
    why = {
        "which the target does not say": unsaid - promises.denied,
        f"which {denials(unsaid, promises)} leaves out": unsaid & promises.denied,
    }
    notes = [f"{_listed(of, said)}{because}" for because, of in why.items() if _listed(of, said)]
    return f" (judged without {'; '.join(notes)})" if notes else ""


def _listed(truths: Collection[Truth], said: str) -> str:
    """`declares.slots and declares.upstream, `, but for what is said already."""
    keys = [f"declares.{SAID_BY[truth]}" for truth in Truth if truth in truths]
    missing = [key for key in keys if key not in said]
    if not missing:
        return ""
    return " and ".join([", ".join(missing[:-1]), missing[-1]] if missing[1:] else missing) + ", "


def undeclared(truths: Iterable[Truth], promises: Promises) -> str:
    """One sentence: what a check rests on and the target does not say, and where to say it."""
    missing = [truth for truth in Truth if truth in set(truths)]
    denied = [denial(truth, promises) for truth in missing if truth in promises.denied]
    if denied:
        return f"the target declares `{denied[0]}`: there is no promise that could be kept or broken"
    nouns = " and no ".join(missing)
    keys = " or ".join(f"declares.{SAID_BY[truth]}" for truth in missing)
    return f"the target declares no {nouns}: say {keys} (or `declares: profile`) in {promises.where}"
