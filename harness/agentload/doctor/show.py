"""The doctor's table, and its last line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from agentload.doctor.decidable import IN_PART, Chance, Prospect, counted
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
    grouped: dict[tuple[str, str], list[Prospect]] = {}
    for prospect in sorted(prospects, key=lambda one: (list(Chance).index(one.chance), bool(one.because))):
        grouped.setdefault((_heading(prospect), prospect.because), []).append(prospect)
    return [(f"{of}{heading}", *_told(because, same)) for (heading, because), same in grouped.items()]


def _heading(prospect: Prospect) -> str:
    whole = "decidable" if not prospect.because else "in part"
    return {Chance.YES: whole, Chance.PERHAPS: "perhaps", Chance.NO: "not decidable"}[prospect.chance]


def _told(because: str, same: Sequence[Prospect]) -> tuple[list[str], str]:
    """The names, and the reason; what is to be declared stands beside each name, or once for all."""
    if because != IN_PART:
        return counted([f"{one.check} ({one.say})" if one.say else one.check for one in same]), because
    names = counted([one.check for one in same])
    keys = dict.fromkeys(key for one in same for key in one.say.split(", "))
    return names, f"declare {', '.join(keys)} to judge {'them' if names[1:] else 'it'} whole"
