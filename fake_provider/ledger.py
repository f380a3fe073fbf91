"""The provider's own record of every call, and sums that can be checked against each other.

At any instant: offered = admitted + throttled + faulted + invalid, and
admitted = completed + cancelled + cut + in flight (in service, or waiting for a slot at the provider).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum

import msgspec

EARLY_GRACE_NS = 5_000_000
"""A call so little before the promised instant is not called early: clocks and timers have their grain."""


class Ending(StrEnum):
    """How one call ended; the values are `CallEnding`'s in agentload."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    """The caller left before the end."""
    CUT = "cut"
    """A fault (or the provider's shutdown) ended it after it was admitted."""
    THROTTLED = "throttled"
    """Refused by a limit (429) or for want of a slot (503)."""
    FAULTED = "faulted"
    """Refused by an injected fault before admission."""
    INVALID = "invalid"
    """400, 404, 413: not a call the provider could serve."""
    OPEN = "open"
    """Still in flight."""


# Only scalars inside, so the garbage collector need not walk a million entries in the middle of a run.
class Entry(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One call; times are nanoseconds on the provider's own monotonic clock."""

    call: int
    arrived_ns: int
    ending: Ending
    run: int = 0
    """The provider's run when the call arrived."""
    tenant: int | None = None
    """Tenant number of the marker; None without a valid marker of this run."""
    seq: int | None = None
    attempt: int | None = None
    model: str = ""
    endpoint: str = "chat"
    stream: bool = False
    queued_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    """When it left service or was refused (a call leaves service before its last bytes go out)."""
    status: int = 200
    """What the caller was answered; 0 when it got no status line."""
    input_tokens: int = 0
    charged_tokens: int = 0
    """What the token bucket was asked for."""
    output_tokens: int = 0
    """Tokens handed to the transport."""
    not_before_ns: int | None = None
    """For a refused call: the instant before which it was told not to come back."""
    early: bool = False
    """It came before an instant its caller (API key and model) had been told to wait for."""
    retry_header: int | None = None
    """`x-stainless-retry-count`, when present."""
    reason: str | None = None
    """Which limit or fault refused or cut it."""


class Counts(msgspec.Struct, kw_only=True):
    """Calls by what became of them."""

    offered: int = 0
    admitted: int = 0
    throttled: int = 0
    faulted: int = 0
    invalid: int = 0
    completed: int = 0
    cancelled: int = 0
    cut: int = 0
    in_flight: int = 0
    early_retries: int = 0
    retries: int = 0
    """Arrivals whose `x-stainless-retry-count` is above 0."""
    unattributed: int = 0
    disconnects: int = 0
    """Callers seen to leave before their answer was complete."""
    entries_dropped: int = 0
    """Calls counted but not listed, because the ledger was full."""

    def conserved(self) -> bool:
        """Whether both sums hold."""
        offered = self.admitted + self.throttled + self.faulted + self.invalid
        admitted = self.completed + self.cancelled + self.cut + self.in_flight
        return self.offered == offered and self.admitted == admitted


class TenantTokens(msgspec.Struct, kw_only=True):
    """What one tenant asked for and got."""

    offered: int = 0
    admitted: int = 0
    completed: int = 0
    input_tokens: int = 0
    """Of admitted calls."""
    charged_tokens: int = 0
    """Of admitted calls."""
    output_tokens: int = 0


Caller = tuple[str, str]
"""API key and model: whom a promise is made to."""


class Ledger:
    """All calls of one run. `on_ended` is told every entry once, when it is final."""

    def __init__(
        self, run: int = 0, *, max_entries: int = 1_000_000, on_ended: Callable[[Entry], None] | None = None
    ) -> None:
        self.run = run
        self.entries: list[Entry] = []
        self.counts = Counts()
        self.tenants: dict[int, TenantTokens] = {}
        self.unattributed: Counter[tuple[str, str]] = Counter()
        """Calls without a valid marker of this run, by endpoint and model."""
        self._max_entries = max_entries
        self._on_ended = on_ended
        self._not_before_ns: dict[Caller, int] = {}

    def arrived(self, entry: Entry, caller: Caller) -> None:
        """A call came."""
        entry.early = entry.arrived_ns < self._not_before_ns.get(caller, 0) - EARLY_GRACE_NS
        self.counts.offered += 1
        self.counts.early_retries += entry.early
        self.counts.retries += bool(entry.retry_header)
        if entry.tenant is None:
            self.counts.unattributed += 1
            self.unattributed[entry.endpoint, entry.model] += 1
        else:
            self._tenant(entry.tenant).offered += 1
        if len(self.entries) < self._max_entries:
            self.entries.append(entry)
        else:
            self.counts.entries_dropped += 1

    def promised(self, entry: Entry, caller: Caller, not_before_ns: int) -> None:
        """The caller was told not to come back before that instant; the latest promise made to it counts."""
        entry.not_before_ns = not_before_ns
        self._not_before_ns[caller] = max(not_before_ns, self._not_before_ns.get(caller, 0))

    def refused(self, entry: Entry, now_ns: int, ending: Ending, status: int, reason: str) -> None:
        """The call was turned away: THROTTLED, FAULTED or INVALID."""
        if ending is Ending.THROTTLED:
            self.counts.throttled += 1
        elif ending is Ending.FAULTED:
            self.counts.faulted += 1
        else:
            self.counts.invalid += 1
        entry.status = status
        entry.reason = reason
        self._close(entry, now_ns, ending)

    def admitted(self, entry: Entry) -> None:
        """The call passed every limit; it is in service or waits for a slot."""
        entry.status = 0
        self.counts.admitted += 1
        self.counts.in_flight += 1
        if entry.tenant is not None:
            tenant = self._tenant(entry.tenant)
            tenant.admitted += 1
            tenant.input_tokens += entry.input_tokens
            tenant.charged_tokens += entry.charged_tokens

    def produced(self, entry: Entry, tokens: int) -> None:
        """So many more tokens of the answer were handed to the transport."""
        entry.output_tokens += tokens
        if entry.tenant is not None:
            self._tenant(entry.tenant).output_tokens += tokens

    def ended(self, entry: Entry, now_ns: int, ending: Ending) -> None:
        """An admitted call left: COMPLETED, CANCELLED or CUT."""
        self.counts.in_flight -= 1
        if ending is Ending.COMPLETED:
            self.counts.completed += 1
            if entry.tenant is not None:
                self._tenant(entry.tenant).completed += 1
        elif ending is Ending.CANCELLED:
            self.counts.cancelled += 1
            self.counts.disconnects += 1
        else:
            self.counts.cut += 1
        self._close(entry, now_ns, ending)

    def _close(self, entry: Entry, now_ns: int, ending: Ending) -> None:
        entry.ending = ending
        entry.ended_ns = now_ns
        if self._on_ended is not None:
            self._on_ended(entry)

    def _tenant(self, number: int) -> TenantTokens:
        tokens = self.tenants.get(number)
        if tokens is None:
            tokens = self.tenants[number] = TenantTokens()
        return tokens
