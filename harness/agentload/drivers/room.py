"""How many connections the clients of one worker may have open together. No sockets."""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Room:
    """Counts connections; where there is no place for one more, the one that was idle for longest is closed.

    Who works is never closed: whoever bounds the requests in flight bounds those.
    """

    def __init__(self, places: int | None = None) -> None:
        """None: without a bound."""
        self.places = places
        self.open = 0
        self.peak = 0
        self._idle: dict[Hashable, Callable[[], None]] = {}
        """What closes it, those that have been idle for longest first."""

    def enter(self) -> None:
        """One is about to be opened."""
        while self.places is not None and self.open >= self.places and self._idle:
            connection = next(iter(self._idle))
            self._idle.pop(connection)()
        self.open += 1
        self.peak = max(self.peak, self.open)

    def leave(self) -> None:
        """One is closed, or was not opened after all."""
        self.open -= 1

    def rest(self, connection: Hashable, close: Callable[[], None]) -> None:
        """It is idle now; `close` closes it."""
        self._idle[connection] = close

    def work(self, connection: Hashable) -> None:
        """It is used again, or is being closed."""
        self._idle.pop(connection, None)
