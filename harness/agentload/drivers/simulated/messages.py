"""What travels between the parts: numbers instead of text, equal in every count to what the text would be.

A live run writes a message of so many words, and gateway and provider count them again. Here the counts
travel: `Submission` is a client's request, a frame is a piece of a provider's answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from struct import Struct
from typing import NamedTuple

import msgspec

from agentload.client.logical import AttemptStart
from agentload.client.wire import chat_body, idempotency_key, marker_of
from agentload.gateway.envelope import CHARS_PER_TOKEN, Envelope, UpstreamCall
from agentload.model import Arrival, Job
from agentload.scheduler.work import Request
from agentload.targets import DEFAULT_MODEL
from fake_provider.call import CallRequest
from fake_provider.marker import MARKER_TOKENS, Marker, message_chars

NO_KEY = "anonymous"
"""What the provider calls a caller without an API key, as the bundled gateway is."""
_MS = 1_000_000
_PLAIN = UpstreamCall(body=b"", stream=False)
_STREAMED = UpstreamCall(body=b"", stream=True)


# --------------------------------------------------------------------------- what is asked


class Submission(NamedTuple):
    """One attempt as its client sends it."""

    arrival: Arrival
    marker: Marker
    text_chars: int
    body_bytes: int
    deadline_ms: int | None
    """`X-Deadline-Ms`."""
    said_attempt: int
    """`X-Attempt`."""
    key: str | None = None
    """`Idempotency-Key`."""

    def envelope(self, now_ns: int, request_id: int) -> Envelope:
        """As the gateway reads it when it comes in."""
        arrival = self.arrival
        job, deadline_ms = arrival.job, self.deadline_ms
        request = Request(
            id=request_id,
            tenant=arrival.tenant,
            service_class=arrival.service_class,
            workflow=job.workflow,
            model=arrival.model or DEFAULT_MODEL,
            input_tokens=ceil(self.text_chars / CHARS_PER_TOKEN),
            text_chars=self.text_chars,
            max_output_tokens=job.declared_output_tokens,
            tool_calls=job.tool_calls,
            tool_seconds=float(f"{job.tool_ns / 1000 / _MS:g}") if job.tool_calls else 0.0,
            body_bytes=self.body_bytes,
            arrived_ns=now_ns,
            deadline_ns=None if deadline_ms is None else now_ns + deadline_ms * _MS,
            attempt=self.said_attempt,
            idempotency_key=self.key,
            run_id=arrival.run,
        )
        return Envelope(request=request, call=_STREAMED if job.stream else _PLAIN)

    def call_request(self) -> CallRequest:
        """As the provider reads it when the gateway has passed it on."""
        job = self.arrival.job
        return CallRequest(
            api_key=NO_KEY,
            model=self.arrival.model or DEFAULT_MODEL,
            text_chars=self.text_chars,
            input_tokens=max(job.input_tokens, MARKER_TOKENS),
            marker=self.marker,
            max_tokens=job.declared_output_tokens,
            stream=job.stream,
            include_usage=job.stream,
        )


class Submitter:
    """Writes submissions for the clients of one run."""

    def __init__(self, run: int, places: Mapping[str, int]) -> None:
        """`run`: the marker's number of the run, 0..65535. `places`: tenant → its number, 0..65535."""
        self.run = run
        self._places = places
        self._frame_bytes: dict[tuple[int | None, bool, str], int] = {}

    def write(self, arrival: Arrival, start: AttemptStart, now_ns: int) -> Submission:
        """One attempt, sent now."""
        job = arrival.job
        marker = marker_of(self.run, self._places[arrival.tenant], arrival, start.number)
        chars = message_chars(marker, job.input_tokens)
        deadline_ms = None
        if job.deadline_ns is not None:
            deadline_ms = max(1, ceil((arrival.due_ns + job.deadline_ns - now_ns) / _MS))
        return Submission(
            arrival,
            marker,
            chars,
            self._body_bytes(job, marker, chars, arrival.model or DEFAULT_MODEL),
            deadline_ms,
            marker.attempt if start.said_number is None else start.said_number,
            idempotency_key(self.run, arrival) if start.sends_key else None,
        )

    def _body_bytes(self, job: Job, marker: Marker, chars: int, model: str) -> int:
        """Length of the JSON body: what surrounds the message is the same for all of a kind."""
        kind = (job.declared_output_tokens, job.stream, model)
        around = self._frame_bytes.get(kind)
        if around is None:
            bare = msgspec.structs.replace(job, input_tokens=0)
            around = len(chat_body(bare, marker, model)) - message_chars(marker, 0)
            self._frame_bytes[kind] = around
        escape = 1 if job.input_tokens > MARKER_TOKENS else 0  # the line break is two characters in JSON
        return around + chars + escape


# --------------------------------------------------------------------------- what is answered

_FRAME = Struct("<iIiiB")
_DONE = 1


class Frame(NamedTuple):
    """A piece of an answer. It passes through the gateway as bytes, as a real one does."""

    seq: int
    """Whose request it acknowledges (24 bits)."""
    tokens: int
    """Words in it."""
    input_tokens: int = -1
    """The usage block's; -1 when it has none."""
    output_tokens: int = -1
    done: bool = False
    """The terminal event is in it."""

    def encode(self) -> bytes:
        """As bytes."""
        flags = _DONE if self.done else 0
        return _FRAME.pack(self.seq, self.tokens, self.input_tokens, self.output_tokens, flags)

    @classmethod
    def decode(cls, data: bytes) -> Frame | None:
        """From `encode`; None for anything else."""
        if len(data) != _FRAME.size:
            return None
        seq, tokens, input_tokens, output_tokens, flags = _FRAME.unpack(data)
        return cls(seq, tokens, input_tokens, output_tokens, bool(flags & _DONE))
