"""What a run offers: every arrival, drawn before the clock starts."""

from __future__ import annotations

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The size of one logical request, as drawn from its tenant's workload."""

    input_tokens: int
    output_tokens: int
    """What the model will really produce (the marker tells our provider)."""
    declared_output_tokens: int | None
    """`max_tokens` as sent, or None when the caller leaves it out."""
    stream: bool = False
    workflow: str = "chat"
    tool_calls: int = 0
    tool_ns: int = 0
    deadline_ns: int | None = None
    """Relative to the due time; sent as `X-Deadline-Ms`. None: no deadline."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One logical request of an open loop: who wants what, and when."""

    seq: int
    tenant: str
    service_class: str
    phase: str
    due_ns: int
    job: Job
    run: str | None = None
    """What it is a step of, sent as `X-Run-Id`: a closed loop's user is one run. None: of nothing."""
    model: str | None = None
    """The model that it asks for. None: the target's own."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Every arrival of a run, in order of (due_ns, seq), drawn before the clock starts.

    Closed loops cannot be listed ahead (their times depend on the answers); their jobs are keyed draws, so
    user u's k-th job is the same whatever the answers do. Both are covered by the fingerprint.
    """

    seed: int
    arrivals: tuple[Arrival, ...]
    closed_users: int
    """Closed-loop users over all tenants; user g's k-th job has seq len(arrivals) + k * closed_users + g."""
    fingerprint: str
    """SHA-256, hex: equal fingerprints mean equal offered demand."""
