"""report.html: self-contained, well-formed, honest, and deaf to hostile names."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

import report_run
from agentload import checks
from agentload.model import NS, Evidence, Run, Stall, Status, Verdict
from agentload.report import Result, figures
from agentload.report import html as html_report
from agentload.report.html import TEMPLATES, HtmlReport, detail_rows

VOID = {"meta", "link", "br", "hr", "img", "input"}
HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\"'&"


class Page(HTMLParser):
    """Tags, attributes and text; complains about tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.tags if "id" in attributes]


def html(result: Result) -> str:
    return HtmlReport().render(result).decode()


@pytest.fixture(scope="module", params=[True, False], ids=["fair", "fifo"])
def page(request: pytest.FixtureRequest) -> str:
    return html(report_run.result(request.param))


def test_it_is_well_formed_and_ids_are_unique(page: str) -> None:
    ids = Page(page).ids()
    assert len(ids) == len(set(ids))


def test_it_loads_nothing(page: str) -> None:
    parsed = Page(page)
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page
    assert "url(" not in page
    assert not [tag for tag, _ in parsed.tags if tag in ("script", "link", "img", "iframe", "object", "base")]
    references = {v for _, a in parsed.tags for k, v in a.items() if k in ("href", "src")}
    assert all(reference and reference.startswith("#") for reference in references)


def test_references_inside_the_page_lead_somewhere(page: str) -> None:
    parsed = Page(page)
    wanted = {(a.get("href") or "").removeprefix("#") for tag, a in parsed.tags if tag in ("use", "a")}
    assert wanted
    assert wanted <= set(parsed.ids())


def test_every_picture_speaks_and_every_figure_has_its_numbers(page: str) -> None:
    parsed = Page(page)
    pictures = [a for tag, a in parsed.tags if tag == "svg" and a.get("role") == "img"]
    assert len(pictures) > 10
    assert all(len(picture["aria-label"] or "") > 10 for picture in pictures)
    for figure in re.findall(r"<figure.*?</figure>", page, re.DOTALL):
        assert re.search(r"<details>.*<tbody>\s*<tr>", figure, re.DOTALL), figure[:80]


def test_verdicts_come_first_and_failures_before_them_all() -> None:
    page = html(report_run.result(False))
    assert page.index('id="verdicts"') < page.index('id="tenants"') < page.index('id="pictures"')
    order = re.findall(r'<article class="verdict is-(\w+)"', page)
    assert order == ["failed", "inconclusive", "passed", "passed"]
    failed = re.findall(r'<article class="verdict is-failed".*?</article>', page, re.DOTALL)[0]
    assert "<details open>" in failed
    assert '<use href="#plot-latency-0"/>' in failed, "the picture that shows it"
    assert "never" in failed


def test_evidence_is_marked_on_the_picture() -> None:
    page = html(report_run.result())
    card = next(c for c in re.findall(r"<article.*?</article>", page, re.DOTALL) if "bounded-queue" in c)
    assert "<title>24 s: deepest</title>" in card
    assert "oldest waiter (request 77, 30.000 s)" in card


def test_hostile_names_stay_text() -> None:
    names = (HOSTILE, "</script><svg/onload=1>", "flood")
    run = report_run.run(tenants=names)
    verdict = Verdict(
        check=HOSTILE,
        status=Status.FAILED,
        because=HOSTILE,
        measured=3.0,
        bound=1.0,
        unit=HOSTILE,
        evidence=[Evidence(note=HOSTILE, at_ns=1)],
        details={HOSTILE: [HOSTILE]},
    )
    hostile = msgspec.structs.replace(
        run,
        interrupted=HOSTILE,
        meta={
            "started": HOSTILE,
            "command": [HOSTILE],
            "versions": {HOSTILE: HOSTILE},
            "target": {"url": HOSTILE},
        },
    )
    page = html(Result.of(hostile, [verdict], Status.FAILED))
    parsed = Page(page)
    assert not [tag for tag, _ in parsed.tags if tag in ("img", "script")]
    assert not [key for _, attributes in parsed.tags for key in attributes if key.startswith("on")]
    assert "\x1b" not in page
    assert any("<img src=x" in text for text in parsed.text), "it is shown, as text"


def test_the_policy_forbids_everything_but_its_own_styles(page: str) -> None:
    assert "default-src 'none'; style-src 'unsafe-inline'" in page


def test_light_dark_narrow_and_paper() -> None:
    css = (TEMPLATES / "report.css").read_text()
    for query in ("prefers-color-scheme: dark", "max-width: 560px", "@media print"):
        assert query in css


def _luminance(colour: str) -> float:
    parts = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_told_from_the_background(scheme: str) -> None:
    """WCAG 2.2: 4.5:1 for text (1.4.3), 3:1 for what a picture is made of (1.4.11)."""
    css = (TEMPLATES / "report.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", blocks[0 if scheme == "light" else 1]))
    for background in (colours["page"], colours["card"]):
        for text in ("ink", "soft", "passed", "failed", "inconclusive"):
            assert _contrast(colours[text], background) >= 4.5, (text, background)
        for curve in ("c0", "c1", "c2", "c3", "gauge"):
            assert _contrast(colours[curve], background) >= 3, (curve, background)


def test_every_proof_is_a_figure_and_most_checks_have_one() -> None:
    drawn = {figure.id for figure in figures.draw(report_run.result(False).summary)}
    assert set(figures.PROOFS.values()) <= drawn
    without = {
        "own-answer",
        "stream-integrity",
        "bounded-memory",
        "observable",
        "queue-age-alert",
        "health-probe",
    }
    without |= {"nothing-lost", "exactly-once", "lease-reclaim", "eta-honest"}
    assert set(checks.SEAM.names()) - set(figures.PROOFS) <= without


def test_faults_are_behind_every_picture_over_time() -> None:
    result = Result.of(report_run.with_fault(), report_run.verdicts(), Status.PASSED)
    timed = [panel for figure in figures.draw(result.summary) for panel in figure.panels if panel.x]
    assert timed
    assert all('class="band fault"' in panel.picture for panel in timed)
    shares = next(panel for panel in timed if panel.id == "plot-shares")
    assert ">outage<" in shares.picture
    assert 'class="band fault"' not in html(report_run.result())


def test_whatever_is_drawn_behind_the_curves_is_in_the_legend_and_nothing_else() -> None:
    def keys(run: Run) -> set[tuple[str, str]]:
        drawn = figures.draw(Result.of(run, [], Status.PASSED).summary)
        timed = [figure for figure in drawn if any(panel.x for panel in figure.panels)]
        found = [{key for key in one.legend if key[1] in ("stall", "fault")} for one in timed]
        assert all(one == found[0] for one in found)
        return found[0]

    run = report_run.run()
    assert keys(msgspec.structs.replace(run, health=msgspec.structs.replace(run.health, stalls=[]))) == set()
    still = [Stall(start_ns=NS, end_ns=2 * NS, where="worker-0")]
    stalled = msgspec.structs.replace(
        report_run.with_fault(), health=msgspec.structs.replace(run.health, stalls=still)
    )
    assert keys(stalled) == {("stall: worker-0 stood still", "stall"), ("fault: outage", "fault")}


def test_entitlements_lie_above_the_curves_that_would_cover_them() -> None:
    shares = next(figure for figure in figures.draw(report_run.result().summary) if figure.id == "shares")
    classes = re.findall(r'class="curve ([^"]+)"', shares.panels[0].picture)
    dotted = ["entitled" in class_ for class_ in classes]
    assert dotted == sorted(dotted)
    assert any(dotted)


def test_axes_that_are_not_linear_and_curves_that_are_maxima_say_so(page: str) -> None:
    captions = dict(re.findall(r'<figure id="(\w+)">.*?<p>(.*?)</p></figcaption>', page, re.DOTALL))
    assert "logarithmic" in captions["latency"]
    assert "logarithmic" in captions["spectrum"]
    assert re.search(r"the most of each [0-9.]+ s", captions["queue"])


def test_on_a_phone_each_value_of_a_wide_table_has_its_heading(page: str) -> None:
    tables = re.findall(r'<table class="[^"]*stack.*?</table>', page, re.DOTALL)
    assert len(tables) >= 2
    for table in tables:
        headings = re.findall(r"<th(?: [^>]*)?>(.*?)</th>", table)
        for row in re.findall(r"<tr>(<td.*?)</tr>", table, re.DOTALL):
            assert re.findall(r'data-label="(.*?)"', row) == headings


def test_a_sentence_that_several_checks_share_is_written_once() -> None:
    because = "a quarter of the calls cannot be traced"
    shared = [
        Verdict(check=name, status=Status.INCONCLUSIVE, because=because)
        for name in ("no-starvation", "bounded-queue")
    ]
    passed = Verdict(check="status-codes", status=Status.PASSED, because=because)
    page = html(Result.of(report_run.run(), [*shared, passed], Status.INCONCLUSIVE))
    assert page.count(f"<p>{because}</p>") == 2, "another answer has a sentence of its own"
    [card] = [c for c in re.findall(r"<article.*?</article>", page, re.DOTALL) if "<h3>bounded-queue" in c]
    assert 'for the same reason as <a href="#check-1">no-starvation</a>' in card


def test_a_run_without_answers_says_that_nothing_was_served() -> None:
    run = msgspec.structs.replace(report_run.run(), ledger=[], records=[])
    said = html(Result.of(run, [], Status.INCONCLUSIVE))
    assert "No work was served" in said
    assert "has no ledger" not in said
    assert "enough for everybody" not in said


def test_where_the_clients_say_what_was_served_the_reason_is_true() -> None:
    seen_nothing = msgspec.structs.replace(report_run.run(), ledger=[])
    assert "(the provider saw nothing)" in html(Result.of(seen_nothing, [], Status.PASSED))
    foreign = msgspec.structs.replace(seen_nothing, ledger_available=False)
    assert "(the provider has no ledger)" in html(Result.of(foreign, [], Status.PASSED))


def test_settings_are_shown_as_given_and_empty_ones_not_at_all() -> None:
    result = Result.of(report_run.run(), [], Status.PASSED)
    result.summary["target"] = {"port": 8471, "provider": {"listens": None, "path": "/v1"}, "tls": False}
    rows = dict(html_report.origin(result.summary))
    found = {name: value for name, value in rows.items() if name.startswith("target")}
    assert found == {"target port": "8471", "target provider.path": "/v1", "target tls": "no"}


def test_captions_speak_of_the_group_where_many_are_alike() -> None:
    names = (*(f"shot-{k}" for k in range(20)), "flood")
    drawn = figures.draw(Result.of(report_run.run(tenants=names), [], Status.PASSED).summary)
    shares = next(figure for figure in drawn if figure.id == "shares")
    assert "shot (20) got" in shares.finding
    assert "shot-1" not in shares.finding


def test_lines_of_tenants_that_are_alike_are_finer() -> None:
    shares = next(figure for figure in figures.draw(report_run.result().summary) if figure.id == "shares")
    fine = {name for name, class_ in shares.legend if "fine" in class_}
    assert fine == {"quiet-1", "quiet-2", "quiet-3"}


def test_a_caption_states_no_percentile_that_nobody_knows() -> None:
    result = Result.of(report_run.run(), [], Status.PASSED)
    result.summary["generator"]["lateness_ms"] |= {"p95": 1.1, "p99": None}
    late = next(figure for figure in figures.draw(result.summary) if figure.id == "lateness")
    assert late.finding.startswith("Requests left late by 0.4 ms (median), 1.1 ms (95th percentile), ")
    assert "–" not in late.finding


def test_why_requests_were_not_served_is_said_in_the_gateways_words_most_frequent_first() -> None:
    tenants = {
        "quiet": {"reasons": {"timeout": 1}, "wait_causes": {}},
        "flood": {"reasons": {"class_queue_full": 1_200, "timeout": 2}, "wait_causes": {"retry_storm": 7}},
    }
    assert html_report.why_rows({"tenants": tenants, "jobs": {}}) == [
        ["attempt not answered: class_queue_full", "1,200", "flood 1,200"],
        ["attempt not answered: timeout", "3", "flood 2, quiet 1"],
        ["attempt waited, or was refused: retry_storm", "7", "flood 7"],
    ]
    alike = {f"t{n}": {"reasons": {"full": 1}, "wait_causes": {}} for n in range(7)}
    assert (
        html_report.why_rows({"tenants": alike, "jobs": {}})[0][2]
        == "t0 1, t1 1, t2 1, t3 1, and 3 more tenants"
    )


def test_columns_in_which_nothing_happened_are_left_out() -> None:
    summary = report_run.result(True).summary
    assert "refused" in html_report.tenants(summary)["headings"]
    quiet = {name: summary["tenants"][name] for name in report_run.QUIET}
    headings = html_report.tenants(dict(summary) | {"tenants": quiet})["headings"]
    assert "refused" not in headings
    assert {"offered", "answered", "p50", "p95"} <= set(headings)


def test_the_bound_is_on_the_picture_of_the_queue() -> None:
    assert ">bound 300</text>" in html(report_run.result())


def test_long_lists_in_details_are_counted_not_shown() -> None:
    rows = detail_rows({"windows": [{"a": 1}] * 60, "few": [1, 2], "deep": {"x": {"y": None}}, "flag": True})
    assert rows == [("windows", "60 values"), ("few", "1, 2"), ("deep.x.y", "–"), ("flag", "yes")]
    assert len(detail_rows({str(k): k for k in range(100)})) == 41


def big(run: Run) -> Run:
    """Four times as many records and calls, with numbers of their own."""
    records = [
        msgspec.structs.replace(record, seq=record.seq + 100_000 * k, ended_ns=record.ended_ns + k)
        for k in range(5)
        for record in run.records
    ]
    ledger = [
        msgspec.structs.replace(call, seq=(call.seq or 0) + 100_000 * k)
        for k in range(5)
        for call in run.ledger
    ]
    return msgspec.structs.replace(run, records=records, ledger=ledger)


def test_size_stays_small_for_many_records() -> None:
    """A bound on size, not on time: 24,000 attempts must stay far below 1 MB."""
    run = big(report_run.run())
    assert len(run.records) > 20_000
    began = time.process_time()
    page = html(Result.of(run, report_run.verdicts(), Status.PASSED))
    print(f"\n{len(run.records)} records: {time.process_time() - began:.2f} s CPU, {len(page)} bytes")
    assert len(page) < 400_000


def test_many_tenants_fold_into_lanes() -> None:
    names = (*(f"shot-{k}" for k in range(60)), "flood")
    result = Result.of(report_run.run(tenants=names), [], Status.PASSED)
    assert list(result.summary["series"]["lanes"]) == ["shot", "flood"]
    page = html(result)
    assert len(page) < 400_000
    assert "… and 21 more tenants" in page


def test_the_templates_are_beside_the_module() -> None:
    assert {path.name for path in TEMPLATES.iterdir()} == {
        "report.html.j2",
        "report.css",
        "selftest.html.j2",
    }
    assert Path(TEMPLATES).is_dir()


def test_header_fields_of_a_target_are_shown_as_fields() -> None:
    result = report_run.result()
    fields = [["Authorization", "Bearer {tenant}"], ["X-Tenant", "{tenant}"]]
    target = {"templates": fields, "hosts": ["a", "b"], "odd": [{"x": 1}, ["a", 1]]}
    rows = dict(html_report.origin(result.summary | {"target": target}))
    assert rows["target templates"] == "Authorization: Bearer {tenant}, X-Tenant: {tenant}"
    assert (rows["target hosts"], rows["target odd"]) == ("a, b", '{"x":1}, ["a",1]')
