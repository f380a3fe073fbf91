"""The log: one line for each event worth one, as text or as JSON. Formatting only.

A request leaves a line when it was refused, failed, or waited for longer than `server.slow_wait_s`. Fields
are stable; there is no text of a prompt or an answer, no key and no header of a client's among them. Whatever
a client can name (tenant, model) is quoted, so that no line break of its own ever ends a line of ours.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

from agentload.gateway.jobs.model import Job
from agentload.gateway.protocol import Record

FORMATS = ("text", "json")
FIELDS = "agentload_fields"
"""The attribute of a LogRecord that holds the fields of an event."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/")


def request_fields(record: Record) -> dict[str, Any]:
    """What is logged of a request. `wait_cause` says why it waited, `reason` how it ended."""
    return {
        "event": "request",
        "request": record.request_id,
        "tenant": record.tenant,
        "class": record.service_class,
        "model": record.model,
        "attempt": record.attempt,
        "status": record.status,
        "outcome": record.outcome.value,
        "reason": record.reason,
        "wait_cause": record.wait_cause,
        "waited_ms": round(record.waited_ns / 1e6, 1),
        "upstream_ms": round(record.upstream_ns / 1e6, 1),
        "retry_after_s": record.retry_after_s,
        "input_tokens": record.input_tokens,
        "output_tokens": record.output_tokens,
    }


def job_fields(job: Job) -> dict[str, Any]:
    """What is logged of a durable job that ended other than completed."""
    return {
        "event": "job",
        "job": job.id,
        "tenant": job.tenant,
        "class": job.service_class,
        "state": job.state.value,
        "reason": job.reason,
        "steps_done": job.step,
        "steps_total": job.steps_total,
        "deliveries": job.deliveries,
        "failures": job.failures,
    }


def worth_a_line(record: Record, slow_wait_ns: int) -> bool:
    """Whether it was refused, failed, or slow."""
    return record.reason != "ok" or record.waited_ns >= slow_wait_ns


class JsonLines(logging.Formatter):
    """One JSON object a line: `ts` (RFC 3339, UTC), `level`, `event`, and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message holds."""
        fields: dict[str, Any] | None = getattr(record, FIELDS, None)
        if fields is None:
            fields = {"event": "log", "logger": record.name, "message": record.getMessage()}
            if record.exc_info:
                fields["exception"] = self.formatException(record.exc_info)
        line = {"ts": _timestamp(record.created), "level": record.levelname.lower(), **fields}
        return msgspec.json.encode(line).decode()


class TextLines(logging.Formatter):
    """`ts level key=value …`, values quoted as JSON where they hold more than letters and digits."""

    def format(self, record: logging.LogRecord) -> str:
        """One line for an event; only a traceback goes on, on lines of its own."""
        fields: dict[str, Any] | None = getattr(record, FIELDS, None)
        start = f"{_timestamp(record.created)} {record.levelname}"
        if fields is None:
            message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
            if record.exc_info:
                message += f"\n{self.formatException(record.exc_info)}"
            return f"{start} {message}"
        shown = (f"{name}={_shown(value)}" for name, value in fields.items() if value not in (None, ""))
        return f"{start} {' '.join(shown)}"


def _shown(value: object) -> str:
    text = str(value)
    return text if _PLAIN.issuperset(text) else msgspec.json.encode(text).decode()


def _timestamp(created_s: float) -> str:
    return datetime.fromtimestamp(created_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def configure(log_format: str, level: str, stream: Any) -> None:
    """Everything that this process logs goes to `stream`, in this format."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=level.upper())
    if level != "debug":  # how the server starts and stops is told by its one line on standard output
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
