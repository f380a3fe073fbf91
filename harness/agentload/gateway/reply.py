"""What the provider has answered so far: its status, its body piece by piece, and the tokens in it. PURE."""

from __future__ import annotations

from agentload.gateway.dialects import Dialect
from agentload.gateway.dialects.chat import CHAT
from agentload.gateway.headers import Headers, first
from agentload.gateway.meters import PlainMeter, SseMeter
from agentload.gateway.usage import Reading, Usage


class UpstreamReply:
    """The provider's side of one call, from its headers on."""

    def __init__(
        self,
        status: int,
        headers: Headers,
        *,
        asked_for_stream: bool,
        hide_usage: bool,
        max_bytes: int,
        dialect: Dialect = CHAT,
    ) -> None:
        self.status = status
        self.headers = headers
        self.ok = 200 <= status < 300
        content_type = first(headers, b"content-type")
        streams = content_type.lower().startswith("text/event-stream") if content_type else asked_for_stream
        self.is_stream = self.ok and streams
        """Refusals are never streams, whatever was asked for."""
        self.terminal = False
        """The provider has said that this is the end."""
        self.usage: Usage | None = None
        self.output_tokens = 0
        self._plain = PlainMeter(dialect, max_bytes=max_bytes)
        self._whole: Reading | None = None
        self._stream = SseMeter(dialect, hide_usage=hide_usage) if self.is_stream else None
        self._meter = self._stream or self._plain

    @property
    def events(self) -> int:
        """Events of a stream that were passed on."""
        return self._stream.events if self._stream is not None else 0

    @property
    def body(self) -> bytes:
        """A plain body as far as it has come; empty for streams."""
        return self._plain.body

    def feed(self, data: bytes) -> Reading:
        """Read on."""
        return self.take(self._meter.feed(data))

    def finish(self) -> Reading:
        """The body is over: read what can only be read as a whole."""
        if self.terminal:
            return Reading()
        return self.take(self._meter.finish() if self._whole is None else self._whole)

    def read(self, reading: Reading) -> Reading:
        """Take what somebody else has read (the simulator); a plain answer counts when it is over."""
        if self.is_stream:
            return self.take(reading)
        self._plain.feed(reading.forward)
        self._whole = reading
        return Reading()

    def take(self, reading: Reading) -> Reading:
        """Count what has been read; the provider's own count replaces ours."""
        self.output_tokens += reading.tokens
        if reading.usage is not None:
            self.usage = reading.usage
            self.output_tokens = reading.usage.output_tokens
        self.terminal = self.terminal or reading.terminal
        return reading
