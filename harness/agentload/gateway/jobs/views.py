"""The answers about jobs: status, headers, body. PURE."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from agentload.gateway import answers
from agentload.gateway.answers import Answer
from agentload.gateway.failures import Failure
from agentload.gateway.headers import Headers
from agentload.gateway.jobs.model import Job, JobState
from agentload.model import Outcome

PATH = "/v1/jobs/"


class Standing(msgspec.Struct, frozen=True):
    """Where a job stands among the others."""

    state: JobState
    """As its caller is told: a parked one is DEFERRED."""
    position: int | None
    eta_s: float | None
    not_before_ns: int


def accepted(job: Job, standing: Standing, *, preferred: bool) -> Answer:
    """202: the row is safe. `preferred`: the caller asked for this with `Prefer: respond-async`."""
    body = {
        "id": job.id,
        "state": standing.state,
        "position": standing.position,
        "eta_s": _seconds(standing.eta_s),
    }
    more = ((b"preference-applied", b"respond-async"),) if preferred else ()
    return _json(202, body, ((b"location", (PATH + job.id).encode()), *more))


def shown(job: Job, standing: Standing) -> Answer:
    """200: everything there is to say about a job."""
    results = [_result(job, index) for index in range(len(job.results))]
    done = job.state is JobState.COMPLETED and bool(job.results)
    body: dict[str, Any] = {
        "id": job.id,
        "object": "job",
        "state": standing.state,
        "workflow": job.workflow,
        "service_class": job.service_class,
        "created_ms": _ms(job.created_at_ns),
        "deadline_ms": _ms(job.deadline_at_ns),
        "position": standing.position,
        "eta_s": _seconds(standing.eta_s),
        "steps_total": job.steps_total,
        "steps_done": job.step,
        "attempts": job.failures,
        "max_attempts": job.max_attempts,
        "deliveries": job.deliveries,
        "not_before_ms": _ms(standing.not_before_ns),
        "estimated_work_units": round(job.estimated_units, 3),
        "idempotency_key": job.key,
        "total_tokens": job.total_tokens,
        "reason": job.reason or None,
        "message": job.message or None,
        "ended_ms": _ms(job.ended_at_ns),
        "result": msgspec.Raw(job.results[-1].output) if done else None,
        "results": results,
    }
    return _json(200, body, ())


def _result(job: Job, index: int) -> dict[str, Any]:
    result = job.results[index]
    return {
        "step": result.step,
        "kind": result.kind,
        "status": result.status,
        "output": msgspec.Raw(result.output),
        "input_tokens": result.input_tokens,
        "output_tokens": result.output_tokens,
        "seconds": result.seconds,
    }


def _ms(at_ns: int) -> int | None:
    return at_ns // 1_000_000 if at_ns else None


def _seconds(value: float | None) -> float | None:
    return None if value is None else math.ceil(value * 1_000) / 1_000


def _json(status: int, body: dict[str, Any], more: Headers) -> Answer:
    data = msgspec.json.encode(body)
    headers = (
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(data)),
        (b"cache-control", b"no-store"),
        *more,
    )
    return Answer(status, headers, data)


# --------------------------------------------------------------------------- refusals


def _failure(status: int, reason: str, message: str, *, again: bool) -> Failure:
    refused = status in (429, 503)
    return Failure(
        status=status,
        reason=reason,
        message=message,
        outcome=Outcome.REJECTED if refused else Outcome.FAILED,
        may_retry=again,
        worked=False,
        upstream=False,
    )


UNKNOWN_JOB = _failure(404, "unknown_job", "there is no such job", again=False)
JOBS_OFF = _failure(
    404,
    "jobs_not_configured",
    "this gateway keeps no jobs (start it with --jobs-db PATH, or configure `jobs:`)",
    again=False,
)
CONFLICT = _failure(
    409, "idempotency_conflict", "this Idempotency-Key came with another body before", again=False
)
TENANT_FULL = _failure(429, "tenant_queue_full", "this tenant has as many jobs as it may", again=True)
CLASS_FULL = _failure(429, "class_queue_full", "too many jobs of this service class wait", again=True)
JOBS_FULL = _failure(503, "jobs_full", "this gateway holds as many bytes of jobs as it may", again=True)
STORE_DOWN = _failure(
    503, "store_unavailable", "the job could not be made safe; nothing was kept", again=True
)
CANCEL_UNSAFE = _failure(
    503, "store_unavailable", "the job was stopped, but this could not be made safe yet", again=True
)
UNMEETABLE = _failure(
    504, "deadline_unmeetable", "its tools alone are expected to take longer than its deadline", again=False
)
SHUTTING_DOWN = _failure(503, "shutting_down", "the gateway is shutting down", again=True)


def refusal(failure: Failure, retry_after_s: int | None = None) -> Answer:
    """A refusal or failure; `retry_after_s` only where coming back makes sense."""
    return answers.of_failure(failure, retry_after_s)
