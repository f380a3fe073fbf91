"""What a client sends: one request over HTTP/1.1, as bytes; its body is in the target's flavour. Pure.

A load generator writes thousands of requests a second that differ in little more than their prompts, so what
a tenant's requests have in common is put into words once.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentload import __version__
from agentload.client.logical import AttemptStart
from agentload.flavours import Framing, openai_chat
from agentload.model import Arrival, Job
from agentload.targets import Target
from fake_provider.marker import Marker, message

MOST_HEADS = 10_000
"""Kinds of requests whose heads are kept: some tenants name a new workflow every time."""
_ACCEPTS = {
    Framing.SSE: "text/event-stream",
    Framing.LINES: "application/x-ndjson, application/json;q=0.5",
    Framing.TEXT: "*/*",
}
"""The media types of streams."""
SEQ_BITS = 24
"""What a marker holds of a request's number."""
_Kind = tuple[str, str, str, bool, int]
"""Tenant, class, workflow, stream, attempt as the client numbers it."""


def marker_of(run: int, tenant_index: int, arrival: Arrival, attempt: int) -> Marker:
    """What tells our provider whose call it is. `tenant_index` is the tenant's place in the profile."""
    return Marker(
        run=run,
        tenant=tenant_index,
        seq=arrival.seq % 2**SEQ_BITS,
        attempt=min(attempt, 255),
        output_tokens=arrival.job.output_tokens,
    )


def idempotency_key(run: int, arrival: Arrival) -> str:
    """What names a logical request at the gateway: the same for all attempts, and no other run's."""
    return f"{run:04x}-{arrival.seq}"


def chat_body(job: Job, marker: Marker, model: str) -> bytes:
    """An OpenAI chat completion request of exactly `job.input_tokens` prompt tokens, unlike any other one."""
    return openai_chat.chat_body(message(marker, job.input_tokens), job, model)


class RequestWriter:
    """Writes the requests for one target."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._flavour = target.api
        self._heads: dict[_Kind, tuple[str, str]] = {}
        """What requests of a kind have in common. It holds keys: show it to nobody."""

    def write(
        self, arrival: Arrival, marker: Marker, now_ns: int, start: AttemptStart | None = None
    ) -> bytes:
        """The whole request of one attempt; the marker says which, and `start` what the client says of it.

        Raises ProfileError when an environment variable is missing (see `Target.check_tenants`).
        """
        job, target = arrival.job, self._target
        model = arrival.model or target.model
        body = self._flavour.request_body(message(marker, job.input_tokens), arrival, model)
        said = marker.attempt if start is None or start.said_number is None else start.said_number
        kind = (
            arrival.tenant,
            arrival.service_class,
            job.workflow,
            self._flavour.as_stream(job.stream),
            said,
        )
        before_length, after_length = self._heads.get(kind) or self._write_head(kind)
        moving = job.tool_calls or job.deadline_ns is not None or arrival.run is not None
        own = _lines(target.moving_headers(arrival, now_ns)) if moving else ""
        if start is not None and start.sends_key:
            own += f"Idempotency-Key: {idempotency_key(marker.run, arrival)}\r\n"
        return f"{before_length}{len(body)}{after_length}{own}\r\n".encode("latin-1") + body

    def write_poll(self, arrival: Arrival, path: str) -> bytes:
        """A question after work that a request has begun. Raises as `write` does."""
        return plain_head(self._target, "GET", path, arrival)

    def write_cancel(self, arrival: Arrival, method: str, path: str) -> bytes:
        """What calls such work off. Raises as `write` does."""
        own = [] if method == "DELETE" else [("Content-Length", "0")]
        return plain_head(self._target, method, path, arrival, own)

    def _write_head(self, kind: _Kind) -> tuple[str, str]:
        """Up to the length of the body, and after it."""
        tenant, service_class, workflow, stream, attempt = kind
        target = self._target
        fields = [
            ("Host", target.authority),
            ("User-Agent", f"agentload/{__version__}"),
            ("Content-Type", "application/json"),
            ("Accept", _ACCEPTS[self._flavour.framing] if stream else "application/json"),
            ("Accept-Encoding", "identity"),
        ]
        before_length = f"{self._flavour.method} {target.path} HTTP/1.1\r\n{_lines(fields)}Content-Length: "
        standing = target.standing_headers(tenant, service_class, workflow, attempt)
        if len(self._heads) >= MOST_HEADS:
            self._heads.clear()
        head = self._heads[kind] = (before_length, f"\r\n{_lines(standing)}")
        return head


def plain_head(
    target: Target, method: str, path: str, arrival: Arrival, own: Sequence[tuple[str, str]] = ()
) -> bytes:
    """The head of a request that is answered in JSON, in the name of the arrival's tenant; `own` is its own.

    Raises ProfileError when an environment variable is missing (see `Target.check_tenants`).
    """
    fields = [
        ("Host", target.authority),
        ("User-Agent", f"agentload/{__version__}"),
        ("Accept", "application/json"),
        ("Accept-Encoding", "identity"),
        *own,
        *target.standing_headers(arrival.tenant, arrival.service_class, arrival.job.workflow, 0),
    ]
    return f"{method} {path} HTTP/1.1\r\n{_lines(fields)}\r\n".encode("latin-1")


def _lines(fields: list[tuple[str, str]]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in fields])
