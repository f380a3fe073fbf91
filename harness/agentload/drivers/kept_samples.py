"""What is read of the gateway while a run lasts, as threads bring it. SHELL."""

from __future__ import annotations

from agentload.errors import InconclusiveError
from agentload.model import Sample
from agentload.storage import JsonLines, StorageError


class KeptSamples:
    """Samples on their way into a run's folder. `keep` never raises: it is called by threads."""

    def __init__(self, lines: JsonLines) -> None:
        self._lines, self._trouble = lines, ""

    def keep(self, sample: Sample) -> None:
        """One more, unless the disk is full: whoever follows the run ends it then."""
        try:
            self._lines.append(sample)
        except StorageError as error:
            self._trouble = self._trouble or str(error)

    def lost(self) -> InconclusiveError | None:
        """Why the first one that is missing is; None while all are there."""
        return InconclusiveError(self._trouble) if self._trouble else None
