"""What a doctor has seen: what was asked, what came back, and what our provider wrote down. Plain data."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from agentload.model import Outcome
from agentload.promises import Promises


class Kind(StrEnum):
    """Why a request was sent."""

    CAREFUL = "careful"
    """One for each tenant, one after another."""
    STREAMED = "streamed"
    """One stream, heard to its end."""
    LEFT = "left"
    """One long plain answer, whose client leaves before it comes."""
    BURST = "burst"
    """Several of one tenant at once."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its answer."""

    kind: Kind
    tenant: str
    seq: int
    input_tokens: int
    """As sent."""
    outcome: Outcome = Outcome.FAILED
    status: int = 0
    """0: no answer."""
    failure: str | None = None
    """What broke, where something did."""
    http_version: str = ""
    media_type: str = ""
    retry_after: str | None = None
    reason: str | None = None
    usage: bool = False
    """The answer said how many tokens it was."""
    own_answer: bool | None = None
    called_off: int | None = None
    """Status of the request by which it called its work off; 0: no answer; None: it sent none."""
    eta: bool = False
    """It was told when its work will have ended."""
    text_ns: tuple[int, ...] = ()
    """When text came, of a stream."""
    ended_ns: int = 0
    """When the client had it, or left; on its monotonic clock."""
    clock_skew_s: float | None = None
    """The gateway's Date minus our time."""
    body: str = ""
    """How it began, without keys."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call at our provider, as its ledger has it. Tenant and number are None without a marker."""

    tenant: int | None = None
    seq: int | None = None
    status: int = 200
    input_tokens: int = 0
    ending: str = "completed"
    ended_ns: int | None = None
    """On the client's monotonic clock; None while it is open."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Everything."""

    tenants: tuple[str, ...]
    """Of the profile, in its order: a marker holds the place."""
    asked: tuple[Asked, ...]
    calls: tuple[Call, ...]
    streams: bool = True
    """Whether the target's flavour has any."""
    asks_after: bool = False
    """Whether its answers are asked for."""
    can_call_off: bool = True
    """Whether a client that leaves can say so."""
    job_key: str | None = None
    """The header field by which it knows a job that is posted again; None: none is named."""
    external: bool = False
    """The provider is somebody else's: nothing is known of its calls."""
    provider_url: str = ""
    """Where ours listens."""
    provider_takes: str = ""
    """Its slots and limits, in words."""
    trouble: str | None = None
    """Where nobody was served: what a run would end with, before its load."""
    any_port: bool = False
    """It was started at whatever port was free."""
    upstream_keys: int | None = None
    """How many API keys our provider has met; None where it does not say."""
    gauges: tuple[str, ...] = ()
    """Values of its own that could be read, as they are called in a run's samples."""
    gauges_named: tuple[str, ...] = ()
    """Those that its target file names."""
    metrics_trouble: str | None = None
    """Why its metrics cannot be read at all, as a run would end with it."""
    can_be_killed: bool = False
    """Its owner has said how it is started again."""
    health_page: bool = True
    """Whether its target file names one."""
    promises: Promises | None = None
    """What it is declared to promise; None: just what the profile says."""

    def of(self, *kinds: Kind) -> list[Asked]:
        """The requests of these kinds."""
        return [one for one in self.asked if one.kind in kinds]

    def calls_for(self, asked: Asked) -> list[Call]:
        """What our provider saw of a request, by its marker."""
        place = self.tenants.index(asked.tenant)
        return [call for call in self.calls if (call.tenant, call.seq) == (place, asked.seq)]

    @property
    def unmarked(self) -> int:
        """Calls of which nobody knows whose they are."""
        return sum(call.tenant is None for call in self.calls)
