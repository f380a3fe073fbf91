"""What goes into the gateway's core (events) and what comes out of it (actions). PURE.

Every event and action names its client request. The shell turns sockets into events and actions into
sockets and decides nothing; the simulator does the same without sockets.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from agentload.gateway.dialects import Dialect
from agentload.gateway.dialects.chat import CHAT
from agentload.gateway.envelope import Envelope, UpstreamCall
from agentload.gateway.failures import FailureKind
from agentload.gateway.headers import Headers
from agentload.gateway.usage import Reading
from agentload.model import Outcome


class _Message(msgspec.Struct, frozen=True):
    request_id: int


# --------------------------------------------------------------------------- events in


class Arrived(_Message, frozen=True):
    """A client's request, as it came over the wire."""

    headers: Headers
    body: bytes
    dialect: Dialect = CHAT
    """Of the endpoint that it came to."""


class Submitted(_Message, frozen=True):
    """A client's request that needs no parsing (the simulator's)."""

    envelope: Envelope


class ClientLeft(_Message, frozen=True):
    """The client closed its connection: nobody will read an answer."""


class UpstreamHeaders(_Message, frozen=True):
    """The provider answered with a status line and headers."""

    status: int
    headers: Headers = ()


class UpstreamData(_Message, frozen=True):
    """A piece of the provider's body."""

    data: bytes


class UpstreamRead(_Message, frozen=True):
    """A piece of the provider's body that has been read already (the simulator's)."""

    reading: Reading


class UpstreamEnded(_Message, frozen=True):
    """The provider's body is over; `clean` when by its framing (length, last chunk) nothing is missing."""

    clean: bool = True


class UpstreamFailed(_Message, frozen=True):
    """The call to the provider failed."""

    kind: FailureKind


class Tick(msgspec.Struct, frozen=True):
    """Time has passed: the instant named by `next_wakeup_ns` has come."""


class Drain(msgspec.Struct, frozen=True):
    """Shut down: refuse newcomers, let calls in flight finish."""


class Stop(msgspec.Struct, frozen=True):
    """The drain's time is over: end what is still open."""


Event: TypeAlias = (
    Arrived
    | Submitted
    | ClientLeft
    | UpstreamHeaders
    | UpstreamData
    | UpstreamRead
    | UpstreamEnded
    | UpstreamFailed
    | Tick
    | Drain
    | Stop
)


# --------------------------------------------------------------------------- actions out


class Respond(_Message, frozen=True):
    """Answer the client with this, whole, and no more."""

    status: int
    headers: Headers
    body: bytes


class StartUpstream(_Message, frozen=True):
    """Call the provider. Every later timeout is the core's; only connecting is bounded here."""

    call: UpstreamCall
    connect_timeout_ns: int


class ForwardHeaders(_Message, frozen=True):
    """Begin a streamed answer."""

    status: int
    headers: Headers


class ForwardData(_Message, frozen=True):
    """Pass these bytes on now."""

    data: bytes


class EndStream(_Message, frozen=True):
    """The stream is complete."""


class FailStream(_Message, frozen=True):
    """The stream is not complete and must not look so: send this error event, then close."""

    data: bytes


class CancelUpstream(_Message, frozen=True):
    """Close the call to the provider now."""


class Record(_Message, frozen=True, kw_only=True):
    """How a request ended, for metrics and the log: exactly one for each, and the last action for it."""

    tenant: str
    service_class: str
    workflow: str
    attempt: int
    stream: bool
    outcome: Outcome
    status: int
    """As sent to the client; 0 when it left before any."""
    reason: str
    """Machine-readable; `ok` for answers."""
    waited_ns: int
    """In the queue, before every call."""
    upstream_ns: int
    """In calls to the provider, all of them; 0 for those never dispatched."""
    estimated_input_tokens: int
    estimated_output_tokens: int
    """What the scheduler expected; 0 for those never dispatched."""
    reserved_units: float
    """Work units that it reserved; 0 for those never dispatched."""
    input_tokens: int
    output_tokens: int
    """What was charged in the end, for all calls together."""
    dispatched: bool
    upstream_attempts: int
    """Calls to the provider; more than one when the first failed before anything was passed on."""
    waiting: bool
    """It ended in the queue, before its first call or between two."""
    upstream_failed: bool
    """The provider is to blame: for readiness."""
    offered: bool = True
    """It could be read, and the scheduler was asked."""
    admitted: bool = True
    """Dispatched, or let into a queue. (Evicted ones were.)"""
    wait_cause: str = ""
    """Why it waited long, or was refused for load: a `WaitCause`; empty where there is nothing to explain."""
    retry_after_s: int | None = None
    """What the client was told to wait."""
    model: str = ""
    tool_calls: int = 0
    tool_seconds: float = 0.0
    """Declared, as nobody reports what the tools of a chat call really took."""


Action: TypeAlias = (
    Respond | StartUpstream | ForwardHeaders | ForwardData | EndStream | FailStream | CancelUpstream | Record
)


# --------------------------------------------------------------------------- between a lifecycle and its core


class Settle(_Message, frozen=True):
    """Release the reservation, charging what was used. Only for what was dispatched, and at most once."""

    input_tokens: int
    output_tokens: int
    ok: bool


class ProviderAccepted(_Message, frozen=True):
    """The provider began to answer the call."""


class ProviderRefused(_Message, frozen=True):
    """The provider would not take the call: let everybody slow down. (A Settle or a Retry follows.)"""

    retry_after_ns: int | None
    by_rate: bool = False
    """It said 429: its tokens or requests per minute are used up."""


class Retry(_Message, frozen=True):
    """Release the reservation, charging what was used, and let the request wait for another one."""

    input_tokens: int
    output_tokens: int


class NotRetried(_Message, frozen=True):
    """The scheduler would not let it wait again (an event: the answer to Retry). Nothing is held any more."""


class Progress(_Message, frozen=True):
    """So many output tokens have come: charge the overrun while it happens."""

    output_tokens: int


class Withdraw(_Message, frozen=True):
    """The client left: take it out of the queue, or release its reservation, charging what was reported."""


class TimedOut(_Message, frozen=True):
    """The lifecycle's own timer ran out."""


Effect: TypeAlias = Settle | Retry | ProviderAccepted | ProviderRefused | Progress | Withdraw
"""What a lifecycle asks of the admission scheduler; the core carries it out."""
