"""Tiny runs with durable jobs, made by hand: the examples and counterexamples of the checks of jobs."""

from __future__ import annotations

from agentload.evidence.synthetic import MS, healthy, profile
from agentload.model import (
    NS,
    Fault,
    JobOrder,
    JobRecord,
    JobStep,
    Outcome,
    Plan,
    RequestRecord,
    Run,
    Spec,
    ToolRecord,
    ToolUse,
)
from agentload.scheduler.jobs_config import JobsSettings

LEASE_S = 1.0
MAX_ATTEMPTS = 3


class JobScene:
    """Jobs of one tool step each, and one kill of the gateway from 5 s to 5.5 s of twenty."""

    def __init__(self, *, killed: bool = True) -> None:
        chosen = profile(phases={"load": 20.0}, tenants={"a": 1.0})
        order = JobOrder(
            steps=(JobStep(tool=ToolUse(side_effect=True)),), deadline_s=10, max_attempts=MAX_ATTEMPTS
        )
        tenant = chosen.tenants[0].model_copy(
            update={"job": order, "users": None, "arrivals": Spec(kind="poisson", params={"rate": 5})}
        )
        kill = Fault(kind="gateway-kill", at_s=5.0, seconds=0.5)
        self.profile = chosen.model_copy(
            update={
                "tenants": (tenant,),
                "gateway": chosen.gateway.model_copy(update={"jobs": JobsSettings(lease_s=LEASE_S)}),
                "faults": (kill,) if killed else (),
            }
        )
        self.jobs: list[JobRecord] = []
        self.tools: list[ToolRecord] = []

    def job(
        self, at_ms: float, took_ms: float | None, *, eta_s: float | None = None, position: int = 1
    ) -> JobRecord:
        """Accepted 2 ms after it was due, completed after `took_ms`; None: never seen to end."""
        seq, at_ns = len(self.jobs), round(at_ms * MS)
        job = JobRecord(
            seq=seq,
            tenant="a",
            service_class="standard",
            phase="load",
            due_ns=at_ns,
            deadline_ns=at_ns + 10 * NS,
            key=f"k-{seq}",
            steps=1,
            max_attempts=MAX_ATTEMPTS,
            sent_ns=at_ns,
            posts=1,
            status=202,
            accepted_ns=at_ns + 2 * MS,
            id=f"job_{seq}",
            eta_s=eta_s,
            position=None if eta_s is None else position,
            told_ns=None if eta_s is None else at_ns + 2 * MS,
            deliveries=1,
        )
        if took_ms is None:
            job.gave_up_ns = job.answered_ns = at_ns + 15 * NS
        else:
            job.state, job.ended_ns = "completed", at_ns + round(took_ms * MS)
        self.jobs.append(job)
        return job

    def call(
        self, job: JobRecord, at_ms: float, took_ms: float, *, ending: str = "completed", effect: bool = True
    ) -> ToolRecord:
        """A call of its tool."""
        at_ns = round(at_ms * MS)
        call = ToolRecord(
            call=len(self.tools) + 1,
            tool="tool",
            arrived_ns=at_ns,
            ended_ns=at_ns + round(took_ms * MS),
            ending=ending,
            status=200 if ending == "completed" else 0,
            key=f"{job.id}:0",
            job=job.id,
            step=0,
            ref=f"{job.seq}:0",
            side_effect=True,
            effect_ns=at_ns + round(took_ms * MS) if effect else None,
        )
        self.tools.append(call)
        if ending == "completed":
            job.winners = {"0": call.call}
        return call

    def run(self) -> Run:
        """The finished run."""
        records = [
            RequestRecord(
                seq=job.seq,
                attempt=0,
                tenant="a",
                service_class="standard",
                phase="load",
                due_ns=job.due_ns,
                sent_ns=job.due_ns,
                ended_ns=job.due_ns + 2 * MS,
                outcome=Outcome.ANSWERED,
                final=True,
                first_due_ns=job.due_ns,
                status=202,
            )
            for job in self.jobs
        ]
        return Run(
            profile=self.profile,
            plan=Plan(seed=1, arrivals=(), closed_users=0, fingerprint="by hand"),
            driver="simulated",
            records=records,
            ledger=[],
            samples=[],
            health=healthy(len(records)),
            jobs=self.jobs,
            tools=self.tools,
        )
