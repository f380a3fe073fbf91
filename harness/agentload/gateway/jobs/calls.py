"""A job's steps as calls: what admission is asked, what the provider and the tools are sent. PURE."""

from __future__ import annotations

import msgspec

from agentload.gateway.envelope import Envelope, UpstreamCall
from agentload.gateway.headers import IDEMPOTENCY_KEY
from agentload.gateway.jobs.model import NS, ChatCall, Job, JobSpec, ToolCall
from agentload.gateway.jobs.protocol import StartTool
from agentload.scheduler.config import EstimationConfig
from agentload.scheduler.work import Request, WorkEstimate


def declared_units(spec: JobSpec, coefficients: EstimationConfig) -> float:
    """Work units of all its steps, as they declare them; each is asked at admission again, when it is due."""
    chats = [step.chat for step in spec.steps if step.chat is not None]
    default = coefficients.default_output_tokens
    return WorkEstimate(
        input_tokens=sum(chat.input_tokens for chat in chats),
        max_output_tokens=sum(chat.max_output_tokens or default for chat in chats),
        expected_tool_calls=len(spec.steps) - len(chats),
        expected_tool_seconds=spec.tool_seconds,
        deadline_ms=round(spec.deadline_s * 1_000),
        service_class=spec.service_class,
    ).work_units(coefficients)


def chat_envelope(
    job: Job, chat: ChatCall, *, request_id: int, key: str, now_ns: int, wall_offset_ns: int
) -> Envelope:
    """The step as any other request of its tenant and class, with the run's deadline and attempts."""
    request = Request(
        id=request_id,
        tenant=job.tenant,
        service_class=job.service_class,
        workflow=job.workflow,
        model=chat.model,
        input_tokens=chat.input_tokens,
        text_chars=chat.text_chars,
        max_output_tokens=chat.max_output_tokens,
        body_bytes=len(chat.body),
        arrived_ns=now_ns,
        deadline_ns=job.deadline_at_ns - wall_offset_ns,
        attempt=job.failures,
        max_attempts=job.max_attempts,
        run_id=job.id,
    )
    headers = ((IDEMPOTENCY_KEY, key.encode()),)
    return Envelope(request=request, call=UpstreamCall(body=chat.body, headers=headers))


def tool_call(
    job: Job, tool: ToolCall, *, call_id: int, key: str, timeout_s: float, connect_s: float
) -> StartTool:
    """The step as a call of its tool, with every timeout cut to what is left."""
    asked = {
        "seconds": tool.seconds,
        "side_effect": tool.side_effect,
        "payload": msgspec.Raw(tool.payload),
    }
    return StartTool(
        call_id=call_id,
        name=tool.name,
        headers=(
            (b"content-type", b"application/json"),
            (IDEMPOTENCY_KEY, key.encode()),
            (b"x-job-id", job.id.encode()),
            (b"x-job-step", b"%d" % job.step),
            (b"x-attempt", b"%d" % job.failures),
        ),
        body=msgspec.json.encode(asked),
        connect_timeout_ns=round(min(connect_s, timeout_s) * NS),
        timeout_ns=round(timeout_s * NS),
    )
