"""The fingerprint of everything that happened: equal for equal seeds, in every process, on every machine."""

from __future__ import annotations

from hashlib import blake2b

_BATCH = 1_024


class EventLog:
    """A running BLAKE2b digest over events; nothing is kept of them."""

    def __init__(self) -> None:
        self.events = 0
        self._hash = blake2b(digest_size=16)
        self._lines: list[str] = []

    def add(self, at_ns: int, seq: int, tenant: str, event: str, outcome: str) -> None:
        """One event: when, of which logical request, whose, what, and how it went."""
        lines = self._lines
        lines.append(f"{at_ns} {seq} {tenant} {event} {outcome}\n")
        if len(lines) >= _BATCH:
            self._flush()

    def hexdigest(self) -> str:
        """32 hexadecimal digits over all events so far."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        self.events += len(self._lines)
        self._hash.update("".join(self._lines).encode())
        self._lines.clear()
