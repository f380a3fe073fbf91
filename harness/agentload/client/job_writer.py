"""What a client of durable jobs sends: the body that begins one, and both requests over HTTP/1.1. Pure.

To our own protocol a job is a list of steps; to any other it is one request of the target's flavour.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentload.client.request_writer import chat_body, idempotency_key, marker_of, plain_head
from agentload.model import NS, Arrival, JobOrder, JobStep, ToolUse
from agentload.targets import Target
from fake_provider.marker import message

PATH = "/v1/jobs"
_MS = 1_000_000


def tool_ref(arrival: Arrival, step: int) -> str:
    """The client's own name of a step, kept in the tools' ledger: the same at every delivery."""
    return f"{arrival.seq}:{step}"


def job_body(arrival: Arrival, order: JobOrder, run: int, place: int, model: str) -> bytes:
    """The body of POST /v1/jobs: the same bytes for every POST of a job, so that a key has one body.

    Every chat step is a call of the size that the arrival's workload drew, and carries the run's marker.
    """
    body: dict[str, Any] = {
        "steps": [_step(arrival, step, index, run, place, model) for index, step in enumerate(order.steps)],
        "workflow": arrival.job.workflow,
        "service_class": arrival.service_class,
    }
    if order.max_attempts is not None:
        body["max_attempts"] = order.max_attempts
    return msgspec.json.encode(body)


def _step(arrival: Arrival, step: JobStep, index: int, run: int, place: int, model: str) -> dict[str, Any]:
    if step.tool is not None:
        return {"tool": _tool(step.tool, tool_ref(arrival, index))}
    plain = msgspec.structs.replace(arrival.job, stream=False)
    return {"chat": msgspec.Raw(chat_body(plain, marker_of(run, place, arrival, 0), model))}


def _tool(tool: ToolUse, ref: str) -> dict[str, Any]:
    payload: dict[str, Any] = {"ref": ref}
    if tool.fail_first:
        payload["fail_first"] = tool.fail_first
    if tool.hang_first:
        payload["hang"] = tool.hang_first
    asked: dict[str, Any] = {
        "name": tool.name,
        "seconds": tool.seconds,
        "side_effect": tool.side_effect,
        "payload": payload,
    }
    return asked if tool.timeout_s is None else {**asked, "timeout_s": tool.timeout_s}


def deadline_ms(arrival: Arrival, order: JobOrder, now_ns: int) -> int:
    """What is left of the job's deadline: not in the body, which must be the same at every POST."""
    return max(1, (arrival.due_ns + round(order.deadline_s * NS) - now_ns) // _MS)


class JobWriter:
    """Writes the requests for one target."""

    def __init__(self, target: Target, run: int) -> None:
        self._target = target
        self._run = run
        self._path = PATH if target.api.asks_after_s is None else target.path

    def key(self, arrival: Arrival) -> str:
        """What names a job at the gateway, in every POST; empty where the target has no field for it."""
        return "" if self._target.api.key_field is None else idempotency_key(self._run, arrival)

    def post(self, arrival: Arrival, order: JobOrder, place: int, now_ns: int) -> bytes:
        """The whole POST, sent now. Raises ProfileError when an environment variable is missing."""
        body, field = self._body(arrival, order, place), self._target.api.key_field
        own = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            *([] if field is None else [(field, self.key(arrival))]),
            ("X-Deadline-Ms", str(deadline_ms(arrival, order, now_ns))),
        ]
        return plain_head(self._target, self._target.api.method, self._path, arrival, own) + body

    def poll(self, arrival: Arrival, job_id: str, path: str = "") -> bytes:
        """The whole GET, to `path`, or at its id. Raises ProfileError as `post` does."""
        return plain_head(self._target, "GET", path or f"{self._path}/{job_id}", arrival)

    def _body(self, arrival: Arrival, order: JobOrder, place: int) -> bytes:
        target, model = self._target, arrival.model or self._target.model
        if target.api.takes_steps:
            return job_body(arrival, order, self._run, place, model)
        plain = msgspec.structs.replace(arrival, job=msgspec.structs.replace(arrival.job, stream=False))
        prompt = message(marker_of(self._run, place, arrival, 0), arrival.job.input_tokens)
        return target.api.request_body(prompt, plain, model)
