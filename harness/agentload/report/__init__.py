"""What a person and a CI see: one format per file.

A format renders one `Result`, all of whose numbers were computed once, in `facts`: `Result.summary` is the
content of report.json, and every other format shows those numbers and computes none.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

from agentload.errors import AgentloadError
from agentload.model import Run, Status, Verdict
from agentload.registry import Seam
from agentload.report import facts
from agentload.rundir import write_file
from agentload.storage import StorageError


class WhenInconclusive(StrEnum):
    """What an inconclusive check becomes in junit.xml, which has no third answer."""

    ERROR = "error"
    """The default: a CI shows it as broken, neither passed nor failed."""
    FAIL = "fail"
    PASS = "pass"
    """Shown as skipped, which fails no build."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A judged run and everything that is shown of it."""

    run: Run
    verdicts: list[Verdict]
    status: Status
    summary: dict[str, Any]
    """The content of report.json: see `reports/README.md` and `report/schema.json`."""
    when_inconclusive: WhenInconclusive = WhenInconclusive.ERROR

    @classmethod
    def of(
        cls,
        run: Run,
        verdicts: list[Verdict],
        status: Status,
        when_inconclusive: WhenInconclusive = WhenInconclusive.ERROR,
    ) -> Result:
        """Compute what the reports show."""
        summary = facts.summarise(run, verdicts, status)
        return cls(
            run=run, verdicts=verdicts, status=status, summary=summary, when_inconclusive=when_inconclusive
        )


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


class Report(ABC):
    """The contract: one file of the run folder."""

    filename: ClassVar[str]

    @abstractmethod
    def render(self, result: Result) -> bytes:
        """The file's content."""


class _Formats(Seam[Report]):
    """The formats: every file here but those that serve them."""

    helpers = frozenset(
        {"contention", "facts", "figure", "figures", "jobs", "lanes", "live-view", "series", "shares", "svg"}
        | {"system-figures", "tenant-figures", "terminal", "text"}
    )

    def files(self) -> dict[str, Path]:
        return {name: path for name, path in super().files().items() if name not in self.helpers}


SEAM: Seam[Report] = _Formats(__name__, Report)


class Written(NamedTuple):
    """What became of the reports."""

    paths: list[Path]
    lost: StorageError | None
    """The first that the folder did not take; what a format of somebody's own raises is not meant."""


def write_all(result: Result, folder: Path, warn: Callable[[str], None] = _to_stderr) -> Written:
    """Write every format into the folder. A report that fails costs itself and one warning."""
    written: list[Path] = []
    lost: StorageError | None = None
    for name in SEAM.names():
        try:
            report = SEAM.get(name)()
            path = folder / report.filename
            write_file(path, report.render(result))
            written.append(path)
        except StorageError as error:
            lost = lost or error
            warn(str(error))
        except AgentloadError as error:
            warn(str(error))
        except Exception as error:
            warn(f"report '{name}' could not be made: {type(error).__name__}: {error}")
    return Written(written, lost)
