"""The doctor's table, and its last line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from agentload.doctor.decidable import Chance, Prospect
from agentload.doctor.findings import Finding, Grade
from agentload.report.text import printable

_SIGNS = {Grade.GOOD: "✓", Grade.NOTE: "·", Grade.UNSURE: "?", Grade.BAD: "✗"}
_STYLES = {Grade.GOOD: "green", Grade.NOTE: "", Grade.UNSURE: "yellow", Grade.BAD: "red"}


NOBODY_SERVED = (("decidable", ["nothing, until somebody is served"], ""),)
Row = tuple[str, list[str], str]
"""Heading, checks, reason."""


def table(target: str, found: Sequence[Finding], rows: Iterable[Row], console: Console) -> None:
    """Print what was found, then what it means for the checks, those with one reason in one row."""
    console.print(printable(target), style="italic", soft_wrap=True)
    shown = Table(box=None, show_header=False, padding=(0, 1))
    for finding in found:
        sign = _SIGNS[finding.grade]
        shown.add_row(sign, finding.about, printable(finding.said), style=_STYLES[finding.grade])
    shown.add_section()
    for about, names, because in rows:
        shown.add_row("", about, f"{', '.join(names)}{f': {because}' if because else ''}")
    console.print(shown)


def groups(prospects: Sequence[Prospect], of: str = "") -> list[Row]:
    """The checks by chance and reason, in that order. `of`: whose they are, before each heading."""
    headings = {Chance.YES: "decidable", Chance.PERHAPS: "perhaps", Chance.NO: "not decidable"}
    grouped: dict[tuple[Chance, str], list[str]] = {}
    for prospect in sorted(prospects, key=lambda one: (list(Chance).index(one.chance), bool(one.because))):
        named = f"{prospect.check} ({prospect.say})" if prospect.say else prospect.check
        grouped.setdefault((prospect.chance, prospect.because), []).append(named)
    return [
        (f"{of}{headings[chance]}", list(dict.fromkeys(names)), because)
        for (chance, because), names in grouped.items()
    ]
