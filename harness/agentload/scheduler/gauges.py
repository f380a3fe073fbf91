"""A snapshot as flat numbers: what is sampled many times a second, live and in virtual time."""

from __future__ import annotations

from agentload.scheduler.snapshot import Counters, Snapshot

REFUSED = "counted.refused."
"""Before a reason."""
COUNTED = "offered refused admitted dispatched completed failed expired cancelled evicted provider_refusals"


def gauges(seen: Snapshot) -> dict[str, float]:
    """What waits and runs, units last; output so far, and what of it was not expected; and how many requests
    there have been, under `counted.`."""
    classes = seen.classes.values()
    return {
        "waiting": float(seen.waiting),
        "in_flight": float(seen.running),
        "oldest_age_s": seen.oldest_wait_ns / 1e9,
        "waiting_units": sum(one.waiting_units for one in classes),
        "waiting_bytes": float(sum(one.waiting_bytes for one in classes)),
        "tenants_held": float(seen.tenants_held),
        "output_tokens": float(seen.counters.output_tokens),
        "underestimated_output_tokens": float(seen.counters.underestimated_output_tokens),
        **counted(seen.counters),
    }


def counted(counters: Counters) -> dict[str, float]:
    """The counters by name, and refusals by reason."""
    numbers = {f"counted.{name}": float(getattr(counters, name)) for name in COUNTED.split()}
    return numbers | {REFUSED + reason.value: float(n) for reason, n in counters.refused_by.items()}
