"""The doctor's table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from agentload.doctor.decidable import Chance, Prospect
from agentload.doctor.findings import Finding, Grade
from agentload.report.text import printable

_SIGNS = {Grade.GOOD: "✓", Grade.NOTE: "·", Grade.UNSURE: "?", Grade.BAD: "✗"}
_STYLES = {Grade.GOOD: "green", Grade.NOTE: "", Grade.UNSURE: "yellow", Grade.BAD: "red"}


def table(target: str, found: Sequence[Finding], prospects: Sequence[Prospect], console: Console) -> None:
    """Print what was found, then what it means for the checks, those with one reason in one row."""
    shown = Table(box=None, show_header=False, padding=(0, 1), title_justify="left", title=printable(target))
    for finding in found:
        sign = _SIGNS[finding.grade]
        shown.add_row(sign, finding.about, printable(finding.said), style=_STYLES[finding.grade])
    shown.add_section()
    for about, names, because in groups(prospects):
        shown.add_row("", about, f"{', '.join(names)}{f': {because}' if because else ''}")
    console.print(shown)


def groups(prospects: Sequence[Prospect]) -> list[tuple[str, list[str], str]]:
    """(heading, checks, reason): the checks by chance and reason, in that order."""
    headings = {Chance.YES: "decidable", Chance.PERHAPS: "perhaps", Chance.NO: "not decidable"}
    grouped: dict[tuple[Chance, str], list[str]] = {}
    for prospect in sorted(prospects, key=lambda one: (list(Chance).index(one.chance), bool(one.because))):
        named = f"{prospect.check} ({prospect.say})" if prospect.say else prospect.check
        grouped.setdefault((prospect.chance, prospect.because), []).append(named)
    return [(headings[chance], names, because) for (chance, because), names in grouped.items()]
