"""Numbers and names as a person reads them; shared by every format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from agentload.model import NS, Status
from fake_provider.config import ProviderConfig

SYMBOLS: Mapping[str, str] = {Status.PASSED: "✓", Status.FAILED: "✗", Status.INCONCLUSIVE: "?"}
ASCII_SYMBOLS: Mapping[str, str] = {Status.PASSED: "ok", Status.FAILED: "FAIL", Status.INCONCLUSIVE: "??"}
NOTHING = "–"
"""Stands where nothing could be measured."""
NEVER = "never"
"""Stands for an infinite duration: the request was not answered."""


class _Visible(dict[int, int | str]):
    """Code point → itself, or its escape (`\\x1b`) when it cannot be seen; filled as characters turn up."""

    def __init__(self, kept: str) -> None:
        super().__init__((ord(c), ord(c)) for c in kept)

    def __missing__(self, code: int) -> int | str:
        character = chr(code)
        self[code] = code if character.isprintable() else repr(character)[1:-1]
        return self[code]


_LINE, _PAGE = _Visible(" "), _Visible(" \n")


def printable(text: object) -> str:
    """One line of text whose control characters are written out.

    A tenant's name, or what a gateway answers, must not move a terminal's cursor or break an XML file.
    """
    return str(text).translate(_LINE)


def printable_page(text: str) -> str:
    """The same for a whole document: line breaks stay."""
    return text.translate(_PAGE)


def quantity(value: float | None, unit: str = "", censored: bool = False) -> str:
    """A measured number with its unit: `1.08 ×`, `never`, `–`."""
    if value is None:
        return NEVER if censored else NOTHING
    return f"{figure(value)} {printable(unit)}".rstrip()


def limits_line(provider: ProviderConfig) -> str:
    """What our provider takes: `slots 16, 153,600 tokens/min, bucket 2 s`."""
    limits = (
        ("tokens", provider.tokens_per_minute),
        ("input tokens", provider.input_tokens_per_minute),
        ("output tokens", provider.output_tokens_per_minute),
        ("requests", provider.requests_per_minute),
    )
    said = ["no bound of slots" if provider.slots is None else f"slots {provider.slots}"]
    said += [f"{limit:,.0f} {what}/min" for what, limit in limits if limit is not None]
    bounded = len(said) > 1
    return ", ".join([*said, f"bucket {provider.bucket_s:g} s" if bounded else "no rate limit"])


def figure(value: float) -> str:
    """A number to three figures, thousands set apart: 0.987, 12.3, 1,650."""
    if not math.isfinite(value):
        return NEVER if value > 0 else NOTHING
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def milliseconds(value: float | None, censored: bool = False) -> str:
    """A duration: `4.2 ms`, `402 ms`, `12.4 s`, `never`, `–`."""
    if value is None:
        return NEVER if censored else NOTHING
    if value >= 10_000:
        return f"{value / 1000:,.1f} s"
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} ms" if value >= 10 or value == 0 else f"{value:.1f} ms"


def percentile(distribution: Mapping[str, Any] | None, name: str) -> str:
    """One percentile of a Distribution as written to report.json."""
    if distribution is None:
        return NOTHING
    return milliseconds(distribution[name], distribution["censored"])


def share(value: float | None) -> str:
    """A share of one as per cent; small ones keep a decimal."""
    if value is None:
        return NOTHING
    per_cent = 100 * value
    return f"{per_cent:.0f} %" if per_cent >= 10 or per_cent in (0, 1) else f"{per_cent:.1f} %"


def count(value: int | float, noun: str) -> str:
    """`1 request`, `1,650 requests`."""
    return f"{value:,.0f} {noun}" if value == 1 else f"{value:,.0f} {noun}s"


def bar(value: float | None, entitled: float | None, width: int = 12, ascii_only: bool = False) -> str:
    """A share as a bar, with a mark where the entitlement is."""
    full, empty, mark = ("#", ".", "|") if ascii_only else ("█", "░", "┃")
    filled = round(width * min(1.0, max(0.0, value or 0.0)))
    cells = [full] * filled + [empty] * (width - filled)
    if entitled is not None:
        cells[min(width - 1, max(0, round(width * entitled)))] = mark
    return "".join(cells)


def busiest(tenants: Mapping[str, Any], most: int) -> list[tuple[str, Any]]:
    """All tenants in their own order, or where there are more than `most`, those that offered most."""
    if len(tenants) <= most:
        return list(tenants.items())
    return sorted(tenants.items(), key=lambda item: -item[1].get("offered", 0))[:most]


def folded(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Tenants by name, those of a big group as one (`client (20)`) in the place of its first."""
    groups, found = summary["groups"], dict[str, Any]()
    for name, facts in summary["tenants"].items():
        group = groups.get(facts["group"])
        if group is None:
            found[name] = facts
        else:
            found[f"{facts['group']} ({group['tenants']})"] = group
    return found


def refused(facts: Mapping[str, Any], noun: str = " attempts") -> str:
    """Requests refused for good; where attempts were refused that a retry made good, those too."""
    for_good, attempts = facts["rejected"], facts["refused_attempts"]
    return f"{for_good:,}" if attempts == for_good else f"{for_good:,} ({attempts:,}{noun})"


def interruption(reason: str) -> str:
    """`interrupted by the user`, `interrupted: its process died before the end`."""
    said = printable(reason)
    return said if said.startswith("interrupted") else f"interrupted: {said}"


def fault_line(fault: Mapping[str, Any]) -> str:
    """`fault: outage from 10 s to 15 s`."""
    start, end = figure(fault["start_s"]), figure(fault["end_s"])
    return f"fault, on purpose: {printable(fault['name'])} from {start} s to {end} s"


def burst_note(provider: Mapping[str, Any]) -> str:
    """Why more than the rate could be used; empty where it was not."""
    return " (the bucket's burst included)" if (provider["utilisation"] or 0) > 1 else ""


def verdict_numbers(check: Mapping[str, Any]) -> tuple[str, str] | None:
    """(`1.08 ×`, `bound 2 ×, n 294`) of a check in report.json; None when there is no number at all."""
    measured = quantity(check["measured"], check["unit"], check["censored"])
    bound = "" if check["bound"] is None else f"bound {quantity(check['bound'], check['unit'])}"
    n = f"n {check['n']:,}" if check["n"] else ""
    around = ", ".join(part for part in (bound, n) if part)
    return (measured, around) if around or measured != NOTHING else None


def evidence(item: Mapping[str, Any]) -> str:
    """`deepest (request 77, 24.000 s)`."""
    where = [f"request {item['seq']}"] if item.get("seq") is not None else []
    where += [f"{item['at_ns'] / NS:.3f} s"] if item.get("at_ns") is not None else []
    note = printable(item["note"])
    return f"{note} ({', '.join(where)})" if where else note


def generator_line(generator: Mapping[str, Any], interrupted: bool = False) -> str:
    """How well the load was generated."""
    late = generator["lateness_ms"]
    as_planned = "as planned until the interruption" if interrupted else "as planned"
    state = as_planned if generator["trustworthy"] else "NOT TRUSTWORTHY"
    stalls = f", {count(len(generator['stalls']), 'stall')}" if generator["stalls"] else ""
    if generator["calm_lateness_ms"]:
        stalls += f" (p99 {percentile(generator['calm_lateness_ms'], 'p99')} without them)"
    return (
        f"generator: {state}, {generator['issued']:,} of {generator['scheduled']:,} sent, "
        f"late p50 {percentile(late, 'p50')}, p99 {percentile(late, 'p99')}{stalls}"
    )


def provider_line(provider: Mapping[str, Any]) -> str:
    """What the gateway asked of the provider."""
    if not provider["available"]:
        because = printable(provider["no_ledger_because"])
        return f"provider: no ledger ({because}), so checks that need one are inconclusive"
    limit = provider["tokens_per_minute"]
    used = f", {share(provider['utilisation'])} of {figure(limit)} tokens/min used" if limit else ""
    used += burst_note(provider)
    return (
        f"provider: {count(provider['offered'], 'call')} offered, {provider['admitted']:,} admitted, "
        f"{provider['throttled']:,} throttled{_turned_away(provider)}{used}{clock_note(provider['clock'])}"
    )


def _turned_away(provider: Mapping[str, Any]) -> str:
    """The rest of the calls offered, behind a comma; nothing where all were admitted or throttled."""
    faulted = f", {provider['faulted']:,} refused by a fault" if provider["faulted"] else ""
    return faulted + (f", {provider['invalid']:,} invalid" if provider["invalid"] else "")


def clock_note(clock: Mapping[str, Any] | None) -> str:
    """How well the provider's clock is known, behind a comma; nothing where it is ours."""
    if clock is None:
        return ""
    uneven = "" if clock["steady"] else " (one of them jumped during the run)"
    return f", clocks agree within ± {milliseconds(clock['uncertainty_ms'])}{uneven}"


def mutant_line(target: Mapping[str, Any]) -> str:
    """That the gateway was broken on purpose, and how; empty for one that was not."""
    mutant = target.get("mutant")
    return f"the gateway was broken on purpose: mutant {printable(mutant)}" if mutant else ""


def scale_line(scale: Mapping[str, Any], why: bool = True) -> str:
    """How the profile was changed: `scaled by 0.25: rates, users, slots, limits; phases 4 × as long`."""
    because = f" ({printable(scale['because'])})" if why and "because" in scale else ""
    if scale["factor"] == 1:
        return f"not scaled{because}"
    longer = scale.get("phases_longer", 1)
    phases = f"; phases {figure(longer)} × as long" if longer != 1 else ""
    return f"scaled by {figure(scale['factor'])}: rates, users, slots, queues and limits{phases}{because}"


def queue_line(queue: Mapping[str, Any]) -> str:
    """The hidden queue, in a line; empty when it could not be computed."""
    if queue["max_depth"] is None:
        return ""
    depth = count(queue["max_depth"], "request")
    return f"queue: at most {depth} hidden in the gateway, the oldest {milliseconds(queue['max_age_ms'])}"
