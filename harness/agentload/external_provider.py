"""Runs in front of somebody else's provider: what they may cost, and what makes no sense there. Pure."""

from __future__ import annotations

from agentload.errors import UsageError
from agentload.faults import is_gateways
from agentload.model import NS, Plan, Profile

LOOK_LINE = (
    "the provider is somebody else's, and a look at the target may cost real money: one small request for "
    "each tenant, a stream, a call that is left, and a burst"
)


def spend_line(profile: Profile, plan: Plan) -> str:
    """One line: requests and tokens of the plan, and what could not be counted ahead.

    Every word of ours is one token in the common vocabularies; what a provider puts around a message is not
    counted. An answer may be as long as `max_tokens` allows, and a real model is not told the planned length.
    """
    jobs = [arrival.job for arrival in plan.arrivals]
    sent = sum(job.input_tokens for job in jobs)
    bounded = [job.declared_output_tokens for job in jobs if job.declared_output_tokens is not None]
    said = (
        f"the provider is somebody else's, and a run of {profile.name} may cost real money: "
        f"{len(jobs):,} requests with about {sent:,} input and up to {sum(bounded):,} output tokens"
    )
    more = [*_unbounded(len(jobs) - len(bounded)), *_closed(profile, plan), "retries"]
    return f"{said}; and what cannot be counted ahead: {', '.join(more)}"


def refuse_ours(target: str, ours: str | None) -> None:
    """`ours`: the option by which our provider was asked for, too. Raises UsageError."""
    if ours is not None:
        where = f"--target {target}: provider: external"
        raise UsageError(f"{where}: is somebody else's, and {ours} names ours: leave out one of the two")


def refuse_unmeant(target: str, cost: str) -> None:
    """Nobody spends somebody's money by mistake: `cost` is told, and how to say that it is meant.

    Another host that may be loaded (`--allow-host`) is no consent: who pays is another question.
    Raises UsageError.
    """
    raise UsageError(f"--target {target}: provider: external: {cost}: if you mean it, say --allow-cost")


def refuse_faults(chosen: Profile) -> None:
    """What goes wrong at our provider cannot go wrong at somebody else's. Raises UsageError."""
    for place, fault in enumerate(chosen.faults):
        if not is_gateways(fault.kind):
            raise UsageError(
                f"{chosen.name}: faults[{place}]: {fault.kind} happens to our provider, and the target has "
                "`provider: external`: choose a profile without faults, such as noisy-neighbor"
            )


def _unbounded(count: int) -> list[str]:
    return [f"the answers of {count:,} requests without max_tokens"] if count else []


def _closed(profile: Profile, plan: Plan) -> list[str]:
    if not plan.closed_users:
        return []
    seconds = profile.duration_ns / NS
    return [f"{plan.closed_users:,} closed-loop users who ask again and again for up to {seconds:g} s"]
