"""The gateway's process stands still for a while: a collection of garbage, a swapped-out or frozen machine."""

from __future__ import annotations

from agentload.gateway_faults import Act, GatewayFault


class GatewayPause(GatewayFault):
    """`{kind: gateway-pause, at_s: 20, seconds: 2}`: connections are taken and bytes are held, nothing moves."""

    begins = Act.PAUSE
    ends = Act.RESUME
