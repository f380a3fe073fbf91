"""The first n calls fail, then all succeed: a failure that a test can count on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PrivateAttr

from fake_provider.call import Call
from fake_provider.faults import AtArrival, Fault, RefuseCall, reason_of


class FirstNFail(Fault):
    """The first `n` calls that arrive while it is active fail; or, per request, the first `n` of each one."""

    n: int = Field(ge=1)
    per: Literal["all", "request"] = "all"
    """`request` counts the calls of each logical request (the marker's tenant and seq) by itself; calls
    without a marker then pass."""
    status: Literal[403, 408, 429, 500, 502, 503, 504, 529] = 500

    _failed: dict[tuple[int, int] | None, int] = PrivateAttr(default_factory=dict)

    def at_arrival(self, call: Call) -> AtArrival | None:
        key = None
        if self.per == "request":
            if call.tenant is None or call.entry.seq is None:
                return None
            key = (call.tenant, call.entry.seq)
        failed = self._failed.get(key, 0)
        if failed >= self.n:
            return None
        self._failed[key] = failed + 1
        return RefuseCall(self.status, reason_of(self.status))
