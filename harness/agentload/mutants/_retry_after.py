"""A gateway that writes Retry-After in its own way."""

from __future__ import annotations

from collections.abc import Iterator

from agentload.gateway.answers import Answer
from agentload.gateway.lifecycle import RequestLifecycle
from agentload.gateway.protocol import Respond

NAME = b"retry-after"


class RewritesRetryAfter(RequestLifecycle):
    """Every answer that carries Retry-After carries what `rewritten` makes of it instead."""

    def rewritten(self, seconds: int) -> bytes | None:
        """The field's value for a promise of so many seconds; None leaves the field out."""
        return b"%d" % seconds

    def _whole(self, answer: Answer) -> Respond:
        return super()._whole(Answer(answer.status, tuple(self._fields(answer)), answer.body))

    def _fields(self, answer: Answer) -> Iterator[tuple[bytes, bytes]]:
        for name, value in answer.headers:
            told = self.rewritten(int(value)) if name == NAME else value
            if told is not None:
                yield name, told
