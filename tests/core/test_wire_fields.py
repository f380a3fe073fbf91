"""Retry-After as RFC 9110 has it, and as lenient clients read it; Server-Timing."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.client.http_fields import retry_after_hint, server_queue_ns
from agentload.client.wire import parse_retry_after

NOW = 784_111_777.0
"""Sun, 06 Nov 1994 08:49:37 GMT, RFC 9110's own example."""


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7\t", 7.0),
        ("007", 7.0),
        ("9" * 400, 1e15),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60.0),
        ("Sun, 06 Nov 1994 08:49:36 GMT", -1.0),
        ("Sun, 06 Nov 1994 08:49:60 GMT", 23.0),
        ("Sunday, 06-Nov-94 08:49:38 GMT", 1.0),
        ("Sun Nov  6 08:49:39 1994", 2.0),
        ("Wed Nov 16 08:49:37 1994", 864_000.0),
    ],
)
def test_rfc_9110_syntax(raw: str, seconds: float) -> None:
    assert parse_retry_after(raw, NOW) == seconds


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "-1",
        "+1",
        "1.5",
        "1e3",
        "1s",
        "1, 2",
        "١",
        "abc",
        "inf",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "sun, 06 nov 1994 08:49:37 gmt",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06-Nov-1994 08:49:37 GMT",
        "Sunday, 06 Nov 1994 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "1994-11-06T08:49:37Z",
    ],
)
def test_anything_else_is_no_retry_after(raw: str) -> None:
    assert parse_retry_after(raw, NOW) is None


@given(st.integers(0, 4_000_000_000))
def test_every_imf_date_is_understood(epoch_s: int) -> None:
    assert parse_retry_after(formatdate(epoch_s, usegmt=True), NOW) == epoch_s - NOW


@pytest.mark.parametrize(("years_ahead", "year"), [(49, 2075), (51, 1977)])
def test_two_digit_years_lie_at_most_fifty_years_ahead(years_ahead: int, year: int) -> None:
    now = 1_780_000_000.0  # in 2026
    seconds = parse_retry_after(f"Monday, 01-Jan-{(2026 + years_ahead) % 100:02} 00:00:00 GMT", now)
    assert seconds is not None
    assert (year - 2026 - 1.5) * 31_557_600 < seconds < (year - 2026 + 0.5) * 31_557_600


@given(st.text(max_size=40))
def test_no_text_raises(raw: str) -> None:
    parse_retry_after(raw, NOW)
    retry_after_hint(raw, NOW)
    server_queue_ns(raw)


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        ("0.3", 0.3),
        ("-5", -5.0),
        ("1e3", 1000.0),
        ("9" * 400, 1e15),
        ("nan", None),
        ("inf", None),
        ("abc", None),
        ("Sun, 6 Nov 1994 08:49:47 +0000", 10.0),
        ("Sun, 06 Nov 1994 08:49:27 GMT", -10.0),
    ],
)
def test_what_lenient_clients_read(raw: str, seconds: float | None) -> None:
    assert retry_after_hint(raw, NOW) == seconds


@given(
    st.from_regex(r"[0-9]{1,20}(\.[0-9]{0,9})?", fullmatch=True),
    st.sampled_from(["", " ", ", upstream;dur=3", ' , x;desc="a,b"', ",", ";x=1", "x", "\n", "\n,"]),
)
def test_the_short_way_of_reading_queue_time_is_the_long_one(number: str, rest: str) -> None:
    written = f"queue;dur={number}{rest}"
    assert server_queue_ns(written) == server_queue_ns(f"other, {written}")


@pytest.mark.parametrize(
    ("raw", "ns"),
    [
        ("queue;dur=12.5", 12_500_000),
        ("upstream;dur=7, queue;dur=0", 0),
        ('queue;desc="a, queue;dur=9";dur=3', 3_000_000),
        ("queue ; DUR = 4", 4_000_000),
        ('queue;dur="5"', 5_000_000),
        ("queue;dur=.5", 500_000),
        ("queue", None),
        ("queues;dur=3", None),
        ("queue;dur=-3", None),
        ("queue;dur=abc", None),
        ("", None),
    ],
)
def test_the_queue_time_of_server_timing(raw: str, ns: int | None) -> None:
    assert server_queue_ns(raw) == ns
