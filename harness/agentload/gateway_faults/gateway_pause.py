"""The gateway's process stands still for a while, as under a long garbage collection or on a frozen host."""

from __future__ import annotations

from agentload.gateway_faults import Act, GatewayFault


class GatewayPause(GatewayFault):
    """`{kind: gateway-pause, at_s: 20, seconds: 2}`: connections are taken, bytes are held, nothing moves."""

    begins = Act.PAUSE
    ends = Act.RESUME
