"""Requests about jobs, as they come over the wire. PURE."""

from __future__ import annotations

import math
from hashlib import sha256

import msgspec

from agentload.gateway.envelope import CHARS_PER_TOKEN, EnvelopeReader, Rejected, read_body
from agentload.gateway.headers import IDEMPOTENCY_KEY, Headers, first
from agentload.gateway.jobs.model import ChatCall, JobBody, JobSpec, Step, StepBody, ToolCall
from agentload.gateway.json_bounds import UNREADABLE, why_unreadable
from agentload.scheduler.jobs_config import JobsSettings

MAX_KEY = 255
_BODY = msgspec.json.Decoder(JobBody)


class JobReader:
    """Turns requests into job specifications."""

    def __init__(self, who: EnvelopeReader, settings: JobsSettings, max_body_bytes: int) -> None:
        self._who = who
        self._settings = settings
        self._max_body_bytes = max_body_bytes

    def tenant(self, headers: Headers) -> str:
        """Who is asking. Raises Rejected."""
        return self._who.tenant(headers)

    def job(self, headers: Headers, body: bytes) -> JobSpec:
        """The body of POST /v1/jobs. Raises Rejected."""
        self._check_size(body)
        return self._spec(headers, self._decoded(body), body)

    def chat(self, headers: Headers, body: bytes) -> JobSpec:
        """The body of a chat call, as a job of one step. Raises Rejected."""
        self._check_size(body)
        read_body(body, self._max_body_bytes)
        asked = JobBody(steps=[StepBody(chat=msgspec.json.decode(body, type=dict[str, msgspec.Raw]))])
        return self._spec(headers, asked, body, workflow="chat")

    def _check_size(self, body: bytes) -> None:
        if len(body) > self._max_body_bytes:
            message = f"the request body is longer than {self._max_body_bytes} bytes"
            raise Rejected(413, "body_too_long", message)

    def _decoded(self, body: bytes) -> JobBody:
        try:
            return _BODY.decode(body)
        except msgspec.ValidationError as error:
            raise Rejected(400, "invalid_request", f"not a job: {error}") from None
        except UNREADABLE as error:
            message = f"the request body is not JSON: {why_unreadable(error)}"
            raise Rejected(400, "invalid_json", message) from None

    def _spec(self, headers: Headers, asked: JobBody, body: bytes, workflow: str = "job") -> JobSpec:
        settings = self._settings
        if len(asked.steps) > settings.step_limit:
            message = f"steps: at most {settings.step_limit}, got {len(asked.steps)}"
            raise Rejected(400, "too_many_steps", message)
        headers = (*_said_in_body(asked), *headers)
        tenant, service_class = self._who.identify(headers)
        deadline_ms, max_attempts = self._who.bounds(headers)
        workflow = (first(headers, b"x-workflow") or workflow)[:64]
        return JobSpec(
            tenant=tenant,
            service_class=service_class,
            workflow=workflow,
            steps=tuple(self._step(index, step) for index, step in enumerate(asked.steps)),
            deadline_s=settings.deadline_s if deadline_ms is None else deadline_ms / 1_000,
            max_attempts=min(max_attempts or settings.max_attempts, settings.max_attempts),
            max_total_tokens=_least(asked.max_total_tokens, settings.max_total_tokens),
            key=_key(headers),
            digest=_digest(body, service_class, workflow),
            bytes=len(body),
        )

    def _step(self, index: int, step: StepBody) -> Step:
        if (step.chat is None) == (step.tool is None):
            raise Rejected(400, "invalid_request", f"steps[{index}]: must have either chat or tool")
        if step.chat is not None:
            return Step(chat=self._chat(index, step.chat))
        tool = step.tool
        assert tool is not None
        return Step(
            tool=ToolCall(
                name=tool.name,
                seconds=tool.seconds,
                side_effect=tool.side_effect,
                payload=bytes(tool.payload),
                timeout_s=tool.timeout_s,
            )
        )

    def _chat(self, index: int, asked: dict[str, msgspec.Raw]) -> ChatCall:
        plain = {name: value for name, value in asked.items() if name not in ("stream", "stream_options")}
        body = msgspec.json.encode(plain)
        try:
            chat = read_body(body, self._max_body_bytes)
        except Rejected as rejected:
            failure = rejected.failure
            raise Rejected(
                failure.status, failure.reason, f"steps[{index}].chat: {failure.message}"
            ) from None
        chars = chat.text_chars
        return ChatCall(
            body=body,
            model=chat.model,
            input_tokens=max(1, math.ceil(chars / CHARS_PER_TOKEN)),
            text_chars=chars,
            max_output_tokens=chat.max_output_tokens,
        )


def _said_in_body(asked: JobBody) -> Headers:
    """What the body says in a header's place, ahead of the headers: the first field counts."""
    fields = (
        (b"x-workflow", asked.workflow),
        (b"x-service-class", asked.service_class),
        (b"x-deadline-ms", asked.deadline_ms),
        (b"x-max-attempts", asked.max_attempts),
    )
    return tuple((name, str(value).encode()) for name, value in fields if value is not None)


def _key(headers: Headers) -> str | None:
    key = first(headers, IDEMPOTENCY_KEY)
    if key is not None and not 1 <= len(key) <= MAX_KEY:
        raise Rejected(400, "invalid_header", f"Idempotency-Key: must have 1 to {MAX_KEY} characters")
    return key


def _digest(body: bytes, *said: str) -> str:
    return sha256(b"\0".join((*(text.encode() for text in said), body))).hexdigest()


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


def prefers_async(headers: Headers) -> bool:
    """Whether the request says `Prefer: respond-async` (RFC 7240: a list, names in any case)."""
    for name, value in headers:
        if name == b"prefer":
            for preference in value.decode("ascii", "replace").split(","):
                if preference.split(";")[0].split("=")[0].strip().lower() == "respond-async":
                    return True
    return False
