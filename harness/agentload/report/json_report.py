"""report.json: everything a person reads in the other formats, as data. Schema 1, see `schema.json`."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from agentload.report import Report, Result


class JsonReport(Report):
    """report.json."""

    filename: ClassVar[str] = "report.json"

    def render(self, result: Result) -> bytes:
        """Indented JSON; NaN and infinities cannot occur (they became null)."""
        return msgspec.json.format(msgspec.json.encode(result.summary), indent=2) + b"\n"
