"""The languages that the gateway is spoken to in, and speaks to its provider: one endpoint, one file. PURE.

A dialect says where its endpoint is, what a request asks for, what the events and bodies of an answer mean,
and how a refusal is worded. Everything between (who, admission, fairness, retries, timeouts) is the same
for all: the client's body goes to the provider's endpoint of the same dialect, and its answer comes back as
it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Annotated, ClassVar, TypeAlias

import msgspec

from agentload.gateway.json_bounds import MAX_TOKENS
from agentload.gateway.usage import Seen
from agentload.registry import Seam

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
"""Tokens that a caller bounds its answer with."""
ModelName: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks for, as far as admission cares; the provider gets its bytes as they came."""

    model: str
    text_chars: int
    """Characters of decoded text, and of tool definitions and calls as JSON."""
    max_output_tokens: int | None = None
    """The bound the caller declared over all choices; None when it declared none."""
    stream: bool = False
    usage_wish: bytes = b""
    """What to write behind the body's first brace to be told the usage of a stream; empty: nothing."""


class Dialect(ABC):
    """The contract. Instances hold nothing of one request."""

    path: ClassVar[str]
    """From the root, here and at the provider."""
    request: ClassVar[str]
    answer: ClassVar[str]
    """What they are called, with an article: "a chat completion"."""

    @abstractmethod
    def asked(self, body: bytes) -> Asked:
        """Read a request. Raises one of UNREADABLE; a ValidationError where it is JSON, but no request."""

    @abstractmethod
    def events(self) -> Callable[[bytes], Seen | None]:
        """A reader of the events of one stream, in order; it makes None of data that says nothing."""

    @abstractmethod
    def whole(self, body: bytes) -> Seen | None:
        """Read a plain answer, which may be an error in spite of its 200; None when it is neither."""

    @abstractmethod
    def error(self, status: int, code: str, message: str) -> bytes:
        """The body of a refusal or failure: a JSON object."""

    @abstractmethod
    def error_event(self, status: int, code: str, message: str, number: int) -> bytes:
        """The server-sent event that ends a stream so that official SDKs raise: on a cut one they do not.

        `number`: events of the stream that came before it.
        """

    def credentials(self, key: str) -> tuple[str, str]:
        """The header field that shows our key to the provider."""
        return "authorization", f"Bearer {key}"


SEAM: Seam[Dialect] = Seam(__name__, Dialect)


def every() -> list[Dialect]:
    """One of each."""
    return [SEAM.get(name)() for name in SEAM.names()]


def at(path: str, among: Iterable[Dialect], otherwise: Dialect) -> Dialect:
    """Whose endpoint this is, or is below it (`/v1/messages/count_tokens`)."""
    return next((one for one in among if f"{path}/".startswith(f"{one.path}/")), otherwise)
