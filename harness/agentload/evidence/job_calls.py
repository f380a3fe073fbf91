"""What was done for durable jobs, as our provider saw it: calls of their tools, or their own chat calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentload.evidence.durable import by_ref, orders
from agentload.faults import FaultWindow
from agentload.model import CallEnding, JobRecord, LedgerEntry, Profile, Run, ToolRecord


def are_chats(profile: Profile) -> bool:
    """Whether each job is one chat call: so it is of every gateway that knows no steps of ours. Then the call
    itself is what must be done once; else the tools are, which have side effects of their own."""
    found = orders(profile).values()
    return bool(found) and all(len(order.steps) == 1 and order.steps[0].chat for order in found)


def calls_of(run: Run) -> list[ToolRecord]:
    """Calls for the jobs, in order of arrival. A chat call that was answered to its end has had its effect:
    it is paid for, and told. One that a kill or a fault cut off has not."""
    return _chats(run) if are_chats(run.profile) else run.tools


def twice_done(same: Sequence[ToolRecord], faults: Iterable[FaultWindow], commit_ns: int) -> bool:
    """Whether a chat call was made again although it had been answered, with time to write that down.

    `same`: calls of one job, in order of arrival. Who is killed between an answer's last byte and the end of
    its own transaction cannot know that there was one: answers within `commit_ns` of a fault prove nothing.
    """
    windows = [(fault.start_ns - commit_ns, fault.end_ns + commit_ns) for fault in faults]
    whole = [call.effect_ns for call in same if call.effect_ns is not None]
    return any(not any(start <= at <= end for start, end in windows) for at in whole[:-1])


def known_again(job: JobRecord) -> bool:
    """Whether the gateway could know a job that was posted more than once: by its key."""
    return bool(job.key) or job.posts < 2


def _chats(run: Run) -> list[ToolRecord]:
    tenants = orders(run.profile)
    own = (call for call in run.ledger if call.tenant in tenants and call.seq is not None)
    return [_as_tool(call) for call in own if call.started_ns is not None]


def _as_tool(call: LedgerEntry) -> ToolRecord:
    done = call.ending is CallEnding.COMPLETED
    return ToolRecord(
        call=call.call,
        tool="chat",
        arrived_ns=call.arrived_ns,
        ended_ns=call.ended_ns,
        ending=str(call.ending),
        status=call.status,
        ref=f"{call.seq}:0",
        side_effect=True,
        effect_ns=call.ended_ns if done else None,
    )


def of_jobs(run: Run) -> dict[str, list[ToolRecord]]:
    """The same by job and step, `SEQ:STEP`, each in order of arrival."""
    return by_ref(calls_of(run))
