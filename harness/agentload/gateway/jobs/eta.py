"""When will it be done: rates worked out from how jobs of the class went lately. PURE."""

from __future__ import annotations

from collections import deque

from agentload.gateway.jobs.model import NS, Job

_KEEP = 0.8
"""Weight of the past in the moving mean of chat steps: about the last five count."""
_WINDOW = 32
"""So many ends of jobs tell how fast they go."""
_FEWEST = 8
"""Fewer ends in a row, with others waiting, tell nothing of how fast they go."""
_GUESS_NS = NS
"""A chat step takes so long while nothing is known."""


class Pace:
    """How fast the jobs of one class go. Times in Unix nanoseconds."""

    def __init__(self) -> None:
        self._chat_ns = 0.0
        self._gap_ns = 0.0
        """As of the last end."""
        self._since_ns: int | None = None
        """The class has been busy since then, or the window reaches so far back."""
        self._ends: deque[int] = deque()

    def began(self, at_ns: int, *, backlog: bool) -> None:
        """A step goes into service. Only a class in which others wait is busy."""
        if not backlog:
            self._idle()
        elif self._since_ns is None:
            self._since_ns = at_ns

    def chat(self, ns: int) -> None:
        """A chat step has been done, in so long (without its wait)."""
        self._chat_ns = ns if not self._chat_ns else _KEEP * self._chat_ns + (1 - _KEEP) * ns

    def ended(self, at_ns: int, *, backlog: bool) -> None:
        """A job has been completed. Without a `backlog` the count begins anew: an idle class is not slow."""
        if self._since_ns is not None:
            self._ends.append(at_ns)
            # Else it tells how long a job takes, and not how soon the next one's turn comes.
            if backlog and len(self._ends) >= _FEWEST:
                self._gap_ns = (at_ns - self._since_ns) / len(self._ends)
            if len(self._ends) > _WINDOW:
                self._since_ns = self._ends.popleft()
        if not backlog:
            self._idle()

    def _idle(self) -> None:
        self._since_ns = None
        self._ends.clear()

    def gap_ns(self, at_ns: int, lanes: int) -> float:
        """Time between the ends of two jobs while there is a backlog. `lanes`: how many can run at once.

        While nothing ends it grows, so that a class that stands still is not promised to be quick.
        """
        known_ns = self._gap_ns or (self._chat_ns or _GUESS_NS) / max(1, lanes)
        if self._since_ns is None:
            return known_ns
        return max(known_ns, (at_ns - self._since_ns) / (len(self._ends) + 1))

    def left_ns(self, job: Job) -> float:
        """Time in service of the steps that are not done: tools as declared, chat as measured."""
        left_ns = 0.0
        for step in job.steps[job.step :]:
            left_ns += (self._chat_ns or _GUESS_NS) if step.tool is None else step.tool.seconds * NS
        return left_ns
