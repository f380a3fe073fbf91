"""A 200 stream carries an error event instead of its end. Plain calls are not touched."""

from __future__ import annotations

from pydantic import Field

from fake_provider.call import Call, Cut, Then
from fake_provider.faults import Fault, half


class ErrorInStream(Fault):
    """How real overload shows once the headers are out."""

    after_tokens: int | None = Field(default=None, ge=0)
    """None: after half of the answer."""

    def cut(self, call: Call) -> Cut | None:
        if not call.request.stream:
            return None
        tokens = half(call) if self.after_tokens is None else min(self.after_tokens, call.output_tokens)
        return Cut(tokens, Then.ERROR, "error-in-stream")
