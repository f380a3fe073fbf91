"""A stream's usage arrives at its end, where nobody looks for it."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.core import GatewayCore
from agentload.gateway.envelope import Envelope
from agentload.gateway.lifecycle import RequestLifecycle
from agentload.gateway.protocol import Action
from agentload.mutants import Mutant
from agentload.mutants._scenes import LARGE_CALLS


class StreamsUncharged(Mutant):
    """Streamed answers are reserved nothing and settled with nothing: `commit(0)`.

    Usage comes in the last event of a stream, or not at all unless it is asked for; several gateways counted
    plain calls alone.
    """

    row = "L3"
    breaks = "streamed load passes the limit on tokens as if it were free"
    killed_by = "provider-limit"
    profile = LARGE_CALLS

    def parts(self) -> Parts:
        return Parts(core=_FreeStreams, lifecycle=_SettlesNothing)


class _FreeStreams(GatewayCore):
    def _submit(self, now_ns: int, envelope: Envelope, actions: list[Action]) -> None:
        if envelope.call.stream:
            free = replace(envelope.request, text_chars=0, max_output_tokens=None)
            envelope = msgspec.structs.replace(envelope, request=free)
        super()._submit(now_ns, envelope, actions)


class _SettlesNothing(RequestLifecycle):
    def _tokens(self) -> tuple[int, int]:
        return (0, 0) if self._call.stream else super()._tokens()
