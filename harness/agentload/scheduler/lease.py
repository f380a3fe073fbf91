"""Leases: whoever holds capacity must be heard of from time to time, or it is taken back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator


class Leases:
    """Holders in the order in which they were last heard of. All leases are equally long, so that the first
    is always the next to run out, and nothing has to be sorted."""

    def __init__(self, length_ns: int) -> None:
        self.length_ns = length_ns
        self._until: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def __iter__(self) -> Iterator[int]:
        """The holders, the longest silent first."""
        return iter(self._until)

    def silent_ns(self, now_ns: int) -> int:
        """For how long the longest silent holder has not been heard of; 0 when nothing is held."""
        until_ns = self.next_ns()
        return 0 if until_ns is None else now_ns - (until_ns - self.length_ns)

    def renew(self, holder: int, now_ns: int) -> int:
        """The holder, new or known, was heard of; when its lease runs out now."""
        until_ns = self._until[holder] = now_ns + self.length_ns
        self._until.move_to_end(holder)
        return until_ns

    def end(self, holder: int) -> None:
        """The holder gave back what it held. Raises KeyError when it has no lease."""
        del self._until[holder]

    def lapsed(self, now_ns: int) -> int | None:
        """A holder whose lease has run out, the longest silent first; None when there is none."""
        for holder, until_ns in self._until.items():
            return holder if until_ns <= now_ns else None
        return None

    def next_ns(self) -> int | None:
        """When the next lease runs out unless it is renewed, or None."""
        return next(iter(self._until.values()), None)
