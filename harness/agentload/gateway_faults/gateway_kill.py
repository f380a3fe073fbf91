"""The gateway's process is killed, and started again."""

from __future__ import annotations

from agentload.gateway_faults import Act, GatewayFault


class GatewayKill(GatewayFault):
    """`{kind: gateway-kill, at_s: 20, restart_after_s: 1}`: all that it knew is lost.

    Live, it takes connections again when the new process is up, about a second after it was started; in
    virtual time, at once.
    """

    begins = Act.KILL
    ends = Act.START
