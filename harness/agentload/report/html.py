"""report.html: one file that opens offline, in light and dark, on paper and on a phone; no script."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from agentload.model import NS, Status
from agentload.report import Report, Result, figures, jobs, shares, svg, text
from agentload.report.figure import Figure

TEMPLATES = Path(__file__).parent / "templates"
MOST_TENANTS = 40
MOST_DETAILS = 40
"""Rows shown of a verdict's details; report.json has them all."""
_ORDER = {Status.FAILED: 0, Status.INCONCLUSIVE: 1, Status.PASSED: 2}

Facts = Mapping[str, Any]


class HtmlReport(Report):
    """report.html."""

    filename: ClassVar[str] = "report.html"

    def render(self, result: Result) -> bytes:
        """The page; every text in it is escaped and made visible, wherever it came from."""
        summary = result.summary
        drawn = figures.draw(summary)
        template = environment().get_template("report.html.j2")
        page = template.render(
            s=summary,
            title=f"{summary['profile']}: {summary['verdict']}",
            css=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),
            symbol=text.SYMBOLS,
            never=text.NEVER,
            header_facts=header_facts(summary),
            banners=banners(summary),
            verdicts=verdicts(summary, drawn),
            tenants=tenants(summary),
            hidden_tenants=max(0, len(summary["tenants"]) - MOST_TENANTS),
            shares_note=f"{(note := shares.note(summary))[0].upper()}{note[1:]}.",
            jobs_note=jobs.NOTE,
            job_headings=jobs.HEADINGS,
            job_rows=jobs.rows(summary["jobs"]),
            why_headings=WHY_HEADINGS,
            why_rows=why_rows(summary),
            phase_headings=PHASE_HEADINGS,
            phase_rows=phase_rows(summary),
            figures=drawn,
            generator=generator(summary["generator"]),
            provider=provider(summary["provider"]),
            command=command(summary),
            origin=origin(summary),
        )
        return text.printable_page(page).encode()


def environment() -> Environment:
    """Templates in which everything is escaped and a forgotten name is an error."""
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )


# --------------------------------------------------------------------------- parts of the page


def header_facts(summary: Facts) -> list[tuple[str, str]]:
    """The line under the title."""
    facts = [
        ("driver", summary["driver"]),
        ("seed", str(summary["seed"])),
        ("plan", summary["plan"]["fingerprint"][:12]),
        ("arrivals", f"{summary['plan']['arrivals']:,}"),
        ("length", f"{text.figure(summary['duration_s'])} s"),
    ]
    if summary["plan"]["closed_users"]:
        facts.append(("closed-loop users", f"{summary['plan']['closed_users']:,}"))
    if summary["started"]:
        facts.append(("started", summary["started"]))
    return facts


def banners(summary: Facts) -> list[str]:
    """What a reader must know before believing any number."""
    generator_facts = summary["generator"]
    lines = [f"The generator is not to be trusted: {reason}" for reason in generator_facts["reasons"]]
    if not generator_facts["trustworthy"] and not lines:
        lines.append("The generator is not to be trusted: its load was not sent as planned.")
    mutant = text.mutant_line(summary["target"])
    if mutant:
        lines.insert(0, f"{mutant[0].upper()}{mutant[1:]}")
    if summary["interrupted"]:
        lines.insert(0, f"The run was {text.interruption(summary['interrupted'])}")
    if not summary["provider"]["available"]:
        because = summary["provider"]["no_ledger_because"]
        lines.append(f"There is no ledger ({because}): checks that need it are inconclusive.")
    return lines


def verdicts(summary: Facts, drawn: Sequence[Figure]) -> list[dict[str, Any]]:
    """Failed ones first; each with the figure that shows what it judged.

    `same_as` is the number and name of the first that says the very same, which need not be read twice.
    """
    by_id = {figure.id: figure for figure in drawn}
    ordered = sorted(summary["checks"], key=lambda check: (_ORDER[check["status"]], check["severity"]))
    said: dict[tuple[str, str], tuple[int, str]] = {}
    shown: list[dict[str, Any]] = []
    for number, check in enumerate(ordered, 1):
        first = said.setdefault((check["status"], check["because"]), (number, check["check"]))
        figure = by_id.get(figures.PROOFS.get(check["check"], ""))
        shown.append(_verdict(check, figure) | {"same_as": first if first[0] < number else None})
    return shown


def _verdict(check: Facts, figure: Figure | None) -> dict[str, Any]:
    marks = [(e["at_ns"] / NS, e["note"]) for e in check["evidence"] if e.get("at_ns") is not None]
    return {
        "check": check["check"],
        "status": check["status"],
        "severity": check["severity"],
        "because": check["because"],
        "numbers": text.verdict_numbers(check),
        "meter": figures.meter(check),
        "evidence": [text.evidence(item) for item in check["evidence"]],
        "figure": figure,
        "pictures": list(zip(figure.panels, figure.again(marks), strict=True)) if figure else [],
        "details": list(detail_rows(check["details"])),
    }


def detail_rows(details: object) -> list[tuple[str, str]]:
    """Nested details as `a.b.c` → value; long lists are counted, not shown."""
    rows = list(_flattened("", details))
    if len(rows) > MOST_DETAILS:
        rows = [*rows[:MOST_DETAILS], ("…", f"{len(rows) - MOST_DETAILS} more in report.json")]
    return rows


def _flattened(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in cast(dict[str, object], value).items():
            yield from _flattened(f"{prefix}.{key}" if prefix else str(key), inner)
    elif isinstance(value, list):
        listed = cast(list[object], value)
        simple = len(listed) <= 8 and not any(isinstance(item, dict | list) for item in listed)
        yield (
            prefix,
            ", ".join(_plain(item) for item in listed) if simple else f"{len(listed)} values",
        )
    else:
        yield prefix, _plain(value)


def _plain(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {None: text.NOTHING, True: "yes", False: "no"}[value]
    return text.figure(value) if isinstance(value, int | float) else str(value)


def tenants(summary: Facts) -> dict[str, Any]:
    """`headings` and `rows` of the busiest tenants; columns in which nothing happened are left out."""
    shown = text.busiest(summary["tenants"], MOST_TENANTS)
    columns = {heading: [cell(facts) for _, facts in shown] for heading, cell in _TENANT_COLUMNS.items()}
    kept = {
        heading: cells
        for heading, cells in columns.items()
        if heading not in _OPTIONAL_COLUMNS or any(cell not in ("0", text.NOTHING) for cell in cells)
    }
    rows = [
        _tenant(name, facts) | {"cells": [cells[index] for cells in kept.values()]}
        for index, (name, facts) in enumerate(shown)
    ]
    return {"headings": list(kept), "rows": rows}


def _tenant(name: str, facts: Facts) -> dict[str, Any]:
    share, entitled = facts["work_share"], facts["entitled_share"]
    return {
        "name": name,
        "class_": facts["class"],
        "weight": text.figure(facts["weight"]),
        "plain": facts["class"] == "standard" and facts["weight"] == 1,
        "bar": round(100 * (share or 0), 1),
        "mark": None if entitled is None else round(min(98.0, 100 * entitled), 1),
        "share": text.share(share),
        "entitled": text.share(entitled),
    }


def _other_endings(facts: Facts) -> str:
    endings = ("expired", "failed", "truncated", "abandoned", "unfinished", "unsent")
    return f"{sum(facts[ending] for ending in endings):,}"


def _tokens(facts: Facts) -> str:
    if facts["input_tokens"] is None:
        return text.NOTHING
    return f"{svg.short(facts['input_tokens'])} / {svg.short(facts['output_tokens'])}"


_TENANT_COLUMNS: Mapping[str, Callable[[Facts], str]] = {
    "offered": lambda facts: f"{facts['offered']:,}",
    "answered": lambda facts: f"{facts['answered']:,} ({text.share(facts['acceptance'])})",
    "refused": text.refused,
    "other endings": _other_endings,
    "retries": lambda facts: f"{facts['retries']:,}",
    "p50": lambda facts: text.percentile(facts["latency_ms"], "p50"),
    "p95": lambda facts: text.percentile(facts["latency_ms"], "p95"),
    "p99": lambda facts: text.percentile(facts["latency_ms"], "p99"),
    "answered p95": lambda facts: text.percentile(facts["answered_latency_ms"], "p95"),
    "first token p95": lambda facts: text.percentile(facts["first_token_ms"], "p95"),
    "tokens in / out": _tokens,
}
_OPTIONAL_COLUMNS = frozenset(
    {"refused", "other endings", "retries", "p99", "first token p95", "tokens in / out"}
)


WHY_HEADINGS = ["what the gateway said", "how often", "whose"]
_WHY = (
    ("tenants", "reasons", "attempt not answered"),
    ("tenants", "wait_causes", "attempt waited, or was refused"),
    ("jobs", "reasons", "job not completed"),
)
MOST_NAMED = 4
"""Tenants named for one reason; the others are counted."""


def why_rows(summary: Facts) -> list[list[str]]:
    """Why requests and jobs were not served, or not at once, in the gateway's own words: the most frequent
    first."""
    rows: list[list[str]] = []
    for whose, key, meaning in _WHY:
        found: dict[str, Counter[str]] = {}
        for tenant, facts in summary[whose].items():
            for word, count in facts[key].items():
                found.setdefault(word, Counter())[tenant] += count
        ordered = sorted(found.items(), key=lambda item: -item[1].total())
        rows += [[f"{meaning}: {word}", f"{by.total():,}", _whose(by)] for word, by in ordered]
    return rows


def _whose(by_tenant: Counter[str]) -> str:
    named = [f"{tenant} {count:,}" for tenant, count in by_tenant.most_common(MOST_NAMED)]
    others = len(by_tenant) - MOST_NAMED
    return ", ".join(named) + (f", and {others:,} more tenants" if others > 0 else "")


PHASE_HEADINGS = ["phase", "from–to", "tenant", "offered", "answered", "p50", "p95", "p99", "answered p95"]


def phase_rows(summary: Facts) -> list[list[str]]:
    """One row per phase and lane, all tenants together first."""
    rows: list[list[str]] = []
    for phase in summary["phases"]:
        name = phase["name"] + ("" if phase["recorded"] else " (not recorded)")
        window = f"{text.figure(phase['start_s'])}–{text.figure(phase['end_s'])} s"
        rows.append([name, window, "all", *_load(phase)])
        rows += [["", "", lane, *_load(facts)] for lane, facts in phase["lanes"].items()]
    return rows


def _load(facts: Facts) -> list[str]:
    return [
        f"{facts['offered']:,}",
        text.share(facts["acceptance"]),
        *(text.percentile(facts["latency_ms"], p) for p in ("p50", "p95", "p99")),
        text.percentile(facts["answered_latency_ms"], "p95"),
    ]


def generator(facts: Facts) -> list[tuple[str, str]]:
    """How well the load was sent."""
    late = facts["lateness_ms"]
    cap = f" of at most {facts['in_flight_cap']:,}" if facts["in_flight_cap"] else ""
    return [
        ("trustworthy", "yes" if facts["trustworthy"] else "no"),
        ("sent", f"{facts['issued']:,} of {facts['scheduled']:,}"),
        ("late p50 / p99 / p99.9", " / ".join(text.percentile(late, p) for p in ("p50", "p99", "p999"))),
        ("stalls", f"{len(facts['stalls'])}"),
        ("waiting for a processor", text.share(facts["run_queue_wait"])),
        ("busiest worker's CPU", text.share(facts["cpu"])),
        ("most in flight", f"{facts['peak_in_flight']:,}{cap}"),
        ("not sent because of the cap", f"{facts['capped']:,}"),
        ("workers (lost)", f"{facts['workers']} ({facts['workers_lost']})"),
        ("records lost", f"{facts['records_lost']:,}"),
        *([("withheld from own code", "; ".join(facts["withheld"]))] if facts["withheld"] else []),
    ]


def provider(facts: Facts) -> list[tuple[str, str]]:
    """What the gateway asked of the provider."""
    if not facts["available"]:
        return [("ledger", f"none: {facts['no_ledger_because']}")]
    limit = facts["tokens_per_minute"]
    used = f"{text.share(facts['utilisation'])} in {facts['busiest_phase']}" if limit else text.NOTHING
    used += text.burst_note(facts)
    return [
        ("calls offered", f"{facts['offered']:,}"),
        ("admitted", f"{facts['admitted']:,}"),
        ("refused by a limit", f"{facts['throttled']:,}"),
        ("refused or cut by a fault", f"{facts['faulted'] + facts['cut']:,}"),
        ("cancelled by the gateway", f"{facts['cancelled']:,}"),
        ("called before the promised time", f"{facts['early']:,}"),
        ("without a marker", f"{facts['unattributed']:,}"),
        ("tokens per minute, limit", text.quantity(limit)),
        ("limit used", used),
        ("bucket holds", f"{text.figure(facts['bucket_s'])} s" if facts["bucket_s"] else text.NOTHING),
        ("most at once (slots)", f"{facts['peak_in_service']} ({facts['slots'] or 'no bound'})"),
        ("tokens in / out", f"{facts['input_tokens']:,} / {facts['output_tokens']:,}"),
        *([("refused for", _counted(facts["reasons"]))] if facts["reasons"] else []),
        *clock_rows(facts["clock"]),
    ]


def clock_rows(clock: Facts | None) -> list[tuple[str, str]]:
    """The provider's clock, where it is another one than ours."""
    if clock is None:
        return []
    drift = "less than can be told"
    if clock["drift_ppm"] is not None:
        jumped = "" if clock["steady"] else ": one of the clocks jumped"
        drift = f"{clock['drift_ppm']:+.1f} millionths{jumped}"
    return [
        ("its clock", f"{clock['ahead_s']:+,.3f} s from ours, known within ± {clock['uncertainty_ms']:g} ms"),
        ("drift of the clocks", drift),
    ]


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} × {count:,}" for reason, count in reasons.items())


def command(summary: Facts) -> str:
    """The command line as it was given, or the one that draws the same plan."""
    given = summary["command"] or ["agentload", "run", summary["profile"], "--seed", str(summary["seed"])]
    return shlex.join(map(str, given))


def _settings(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    """Nested settings as they were given, without those left empty: a port is a name, not a quantity."""
    if isinstance(value, dict):
        for key, inner in cast(dict[str, object], value).items():
            yield from _settings(f"{prefix}.{key}" if prefix else str(key), inner)
    elif isinstance(value, bool):
        yield prefix, "yes" if value else "no"
    elif isinstance(value, list):
        yield from _settings(prefix, ", ".join(map(_listed, cast(list[object], value))))
    elif value is not None and value != "":
        yield prefix, str(value)


def _listed(item: object) -> str:
    """One of several: a name and its value (a header field, say), or as it would stand in a file."""
    if isinstance(item, list | tuple):
        pair = cast(Sequence[object], item)
        if len(pair) == 2 and all(isinstance(part, str) for part in pair):
            return f"{pair[0]}: {pair[1]}"
    return item if isinstance(item, str) else msgspec.json.encode(item).decode()


def origin(summary: Facts) -> list[tuple[str, str]]:
    """Seed, fingerprint, target, machine and versions."""
    rows = [("seed", str(summary["seed"])), ("plan fingerprint", summary["plan"]["fingerprint"])]
    rows += [("scale", text.scale_line(summary["scale"]))] if summary["scale"] else []
    for what in ("target", "machine"):
        rows += [(f"{what} {name}", value) for name, value in _settings("", summary[what])]
    rows += [(name, version) for name, version in summary["versions"].items()]
    return rows
