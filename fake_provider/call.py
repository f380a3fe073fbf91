"""The nouns of the core: a call, what was asked, what was decided, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from fake_provider import keyed
from fake_provider.budget import NS
from fake_provider.ledger import Caller, Entry, Ledger
from fake_provider.marker import Marker, decode
from fake_provider.reply import NS_PER_MS, ReplyTiming, answer_text
from fake_provider.words import count_tokens


class Reason(StrEnum):
    """Why a call was refused, in no provider's own words: each wire format has its own."""

    TOKENS = "tokens"
    """The tokens-per-minute limit; try again later."""
    INPUT_TOKENS = "input_tokens"
    """The limit of input tokens per minute; try again later."""
    OUTPUT_TOKENS = "output_tokens"
    """The limit of output tokens per minute; try again later."""
    REQUESTS = "requests"
    """The requests-per-minute limit; try again later."""
    TOO_LARGE = "too_large"
    """It asks for more tokens than the bucket ever holds."""
    SLOTS = "slots"
    """Every slot (and place in the queue) is taken."""
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    QUOTA = "quota"
    """The account's money is spent; waiting does not help."""
    SLOW_DOWN = "slow_down"
    """The caller's load grew too fast."""
    PERMISSION = "permission"
    """The key may not do this."""
    TIMEOUT = "timeout"
    """The provider took too long, by its own clock."""
    CONTEXT = "context"
    """Prompt and answer do not fit the model's context."""
    KEY = "key"
    """The API key is not (or no longer) valid."""
    MODEL_NOT_FOUND = "model_not_found"
    INVALID = "invalid"


class CallRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call as the core sees it: made from numbers (a simulator) or from decoded text (a wire format)."""

    api_key: str
    model: str
    endpoint: str = "chat"
    text_chars: int
    """Characters of all message texts, decoded."""
    input_tokens: int
    marker: Marker | None = None
    max_tokens: int | None = None
    stream: bool = False
    include_usage: bool = False
    """Whether a stream ends with a usage block."""
    retry_count: int | None = None
    """`x-stainless-retry-count`."""
    detail: bytes = b""
    """What the wire format itself remembers of the request, for the answer."""

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str],
        last_user_text: str,
        *,
        api_key: str,
        model: str,
        endpoint: str = "chat",
        max_tokens: int | None = None,
        stream: bool = False,
        include_usage: bool = False,
        retry_count: int | None = None,
    ) -> CallRequest:
        """Counts the texts and looks for the marker in the last user message, the only place for it."""
        return cls(
            api_key=api_key,
            model=model,
            endpoint=endpoint,
            text_chars=sum(map(len, texts)),
            input_tokens=sum(map(count_tokens, texts)),
            marker=decode(last_user_text),
            max_tokens=max_tokens,
            stream=stream,
            include_usage=include_usage,
            retry_count=retry_count,
        )

    @classmethod
    def unread(cls, api_key: str, endpoint: str, model: str, retry_count: int | None) -> CallRequest:
        """What is known of a request that is not read any further."""
        return cls(
            api_key=api_key,
            model=model,
            endpoint=endpoint,
            text_chars=0,
            input_tokens=0,
            retry_count=retry_count,
        )

    @property
    def most_tokens(self) -> int:
        """Prompt and the longest answer that was asked for."""
        return self.input_tokens + (self.max_tokens or 0)

    @property
    def overloaded_status(self) -> int:
        """What its API answers when the provider has no room: 529 at Anthropic, 503 at OpenAI."""
        return 529 if self.endpoint == "messages" else 503

    @property
    def caller(self) -> Caller:
        """Whose buckets pay, and to whom promises are made."""
        return self.api_key, self.model


class Then(StrEnum):
    """What happens to the answer after a step's tokens."""

    CONTINUE = "continue"
    COMPLETE = "complete"
    """The answer ends as it should."""
    CLOSE = "close"
    """The connection is closed in the middle of the body, which is visibly incomplete."""
    END = "end"
    """The body ends well-formed, but what should have come last is missing."""
    RESET = "reset"
    """The connection is reset (RST)."""
    ERROR = "error"
    """An error event inside the stream, then its end."""


class Cut(msgspec.Struct, frozen=True, gc=False):
    """A fault's plan to end an answer early: after so many tokens, in that way."""

    after_tokens: int
    then: Then
    reason: str


class Step(msgspec.Struct, frozen=True, gc=False):
    """The next piece of an answer: tokens `first` up to (without) `last`, at `due_ns`, and what follows."""

    due_ns: int | None
    """None: held back until something changes (a stall without an end)."""
    first: int
    last: int
    then: Then


class Call:
    """One call in the provider's hands, from arrival to its end."""

    __slots__ = (
        "_draw_key",
        "charged_output",
        "cut",
        "entry",
        "finish_reason",
        "ledger",
        "marker",
        "output_tokens",
        "produced",
        "request",
        "timing",
    )

    def __init__(
        self, request: CallRequest, entry: Entry, ledger: Ledger, output_tokens: int, draw_key: str
    ) -> None:
        self.request = request
        self.marker = request.marker
        self.entry = entry
        self.ledger = ledger
        """The ledger of the run in which it arrived: a reset in between does not move it."""
        limit = request.max_tokens
        self.output_tokens = output_tokens if limit is None else min(output_tokens, limit)
        """Tokens of the whole answer."""
        self.finish_reason = "length" if self.output_tokens < output_tokens else "stop"
        """`length` when `max_tokens` cut the answer short, else `stop`."""
        self.produced = 0
        """Tokens handed to the transport so far."""
        self.charged_output = 0
        """Tokens of which the limits have been told."""
        self.timing: ReplyTiming | None = None
        """None until it enters service."""
        self.cut: Cut | None = None
        self._draw_key = draw_key

    @property
    def number(self) -> int:
        """Unique in the provider's life."""
        return self.entry.call

    @property
    def tenant(self) -> int | None:
        """Tenant number, None for a call that cannot be attributed."""
        return self.entry.tenant

    def draw(self, purpose: str) -> float:
        """A number in (0, 1) that belongs to this call and this purpose, whatever other calls do."""
        return keyed.uniform(f"{self._draw_key}/{purpose}")

    def text(self, first: int, last: int) -> str:
        """Tokens `first` up to (without) `last` of the answer."""
        offset = self.entry.call if self.marker is None else self.marker.seq
        return answer_text(self.marker, offset, first, last)


class Shortage(msgspec.Struct, frozen=True, gc=False):
    """A per-minute limit that does not let a call through now."""

    limit: Reason
    """TOKENS, INPUT_TOKENS, OUTPUT_TOKENS or REQUESTS."""
    per_minute: float
    capacity: float
    """The most that one call may ever ask for."""
    used: float
    requested: int
    wait_ns: int | None
    """Until it would; None: never."""


class Service(msgspec.Struct, frozen=True):
    """Decision: the call is in service; `call.timing` says when its answer is due."""

    call: Call


class Waiting(msgspec.Struct, frozen=True):
    """Decision: the call waits for a slot; `Provider.ended` and `tick` tell when it enters service."""

    call: Call


class Reset(msgspec.Struct, frozen=True):
    """Decision: the connection is to be reset without an answer."""

    call: Call


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Decision: the call is turned away."""

    call: Call
    status: int
    reason: Reason
    shortage: Shortage | None = None
    """The limit behind TOKENS, INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS and TOO_LARGE."""
    code: str | None = None
    """A code of the provider's own instead of the usual one for the reason."""
    context_tokens: int | None = None
    """The context behind CONTEXT."""
    retry_after_s: int | None = None
    """What Retry-After says; None: no such header."""
    retry_after_ms: int | None = None
    """What retry-after-ms says, which SDKs prefer; None: no such header."""
    retry_at_s: int | None = None
    """Instead of both: the Unix time that Retry-After names as an HTTP-date (RFC 9110 §10.2.3)."""

    def promised_ns(self) -> int | None:
        """How long the caller is told to stay away; None: it is told no length of time."""
        if self.retry_after_ms is not None:
            return self.retry_after_ms * NS_PER_MS
        return None if self.retry_after_s is None else self.retry_after_s * NS


Decision = Refusal | Service | Waiting | Reset
