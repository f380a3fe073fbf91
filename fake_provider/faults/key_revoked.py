"""The API key is not valid (revoked, or rotated while a gateway still uses it): every call is a 401."""

from __future__ import annotations

from fake_provider.call import Call, Reason
from fake_provider.faults import AtArrival, Fault, RefuseCall


class KeyRevoked(Fault):
    """OpenAI's `invalid_api_key`, Anthropic's `authentication_error`; no SDK tries such a call again."""

    def at_arrival(self, call: Call) -> AtArrival | None:  # noqa: ARG002
        return RefuseCall(401, Reason.KEY)
