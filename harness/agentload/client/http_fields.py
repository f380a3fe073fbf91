"""HTTP fields that a client must read exactly: Retry-After and Server-Timing."""

from __future__ import annotations

import re
from calendar import timegm
from datetime import UTC, date, datetime
from email.utils import mktime_tz, parsedate_tz
from math import isfinite, isnan

from agentload.model import NS

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "(?P<month>" + "|".join(_MONTHS) + ")"
_TIME = r"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]):(?P<second>[0-5][0-9]|60)"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY = "(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"
_DATE_FORMS = (
    re.compile(rf"{_DAY}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT"),  # IMF-fixdate
    re.compile(rf"{_LONG_DAY}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT"),  # RFC 850
    re.compile(rf"{_DAY} {_MONTH} (?P<day>[0-9]{{2}}| [0-9]) {_TIME} (?P<year>[0-9]{{4}})"),  # asctime
)
_DELAY = re.compile("[0-9]+")
_LONGEST_S = 1e15
_QUEUE_FIRST = re.compile(r"queue;dur=([0-9]+(?:\.[0-9]*)?)(?:;desc=\"[a-z_]*\")?\s*(?:,|\Z)")
"""As our gateway writes it on every answer: read at a fifth of the cost of the full syntax."""
_METRIC = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*")+')
_PARAMETER = re.compile(r';\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))')
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")


def parse_retry_after(raw: str, now_epoch_s: float) -> float | None:
    """Seconds from now until the promised instant, None where `raw` is not RFC 9110 §10.2.3 syntax.

    That is: delay-seconds (digits only), or one of the three forms of HTTP-date (§5.6.7), case-sensitive and
    in GMT. A date in the past gives a negative number. Numbers are capped at 1e15.
    """
    text = raw.strip(" \t")
    if _DELAY.fullmatch(text):
        return min(float(text), _LONGEST_S)
    for form in _DATE_FORMS:
        match = form.fullmatch(text)
        if match:
            instant = _epoch_s(
                {name: value.strip() for name, value in match.groupdict().items()}, now_epoch_s
            )
            return None if instant is None else instant - now_epoch_s
    return None


def retry_after_hint(raw: str, now_epoch_s: float) -> float | None:
    """What a lenient client, such as an official SDK, makes of Retry-After: any number or e-mail date."""
    try:
        seconds = float(raw)
    except ValueError:
        return _mail_date_hint(raw, now_epoch_s)
    if isfinite(seconds):
        return _bounded(seconds)
    return _LONGEST_S if raw.strip()[:1].isdecimal() else None  # a number too large, or `inf` and `nan`


def _mail_date_hint(raw: str, now_epoch_s: float) -> float | None:
    try:
        parsed = parsedate_tz(raw)
        return None if parsed is None else _bounded(mktime_tz(parsed) - now_epoch_s)
    except (ValueError, OverflowError):
        return None


def milliseconds(raw: str) -> float | None:
    """The number in `retry-after-ms`, capped at 1e15; None where it is none."""
    try:
        number = float(raw)
    except ValueError:
        return None
    return None if isnan(number) else _bounded(number)


def _bounded(number: float) -> float:
    return max(-_LONGEST_S, min(_LONGEST_S, number))


def wait_cause(server_timing: str) -> str | None:
    """`queue;dur=…;desc="model_slow"`: what the gateway says that the request waited for; None: nothing."""
    if "desc" not in server_timing:
        return None
    return _queue_parameters(server_timing).get("desc") or None


def server_queue_ns(server_timing: str) -> int | None:
    """`queue;dur=12.5` of a Server-Timing field (milliseconds) in nanoseconds; None where it does not say."""
    if (first := _QUEUE_FIRST.match(server_timing)) is not None:
        return _ms_as_ns(first[1])
    duration = _queue_parameters(server_timing).get("dur", "")
    return _ms_as_ns(duration) if _NUMBER.fullmatch(duration) else None


def _queue_parameters(server_timing: str) -> dict[str, str]:
    """The parameters of the metric called `queue`, by name in lower case."""
    for metric in _METRIC.findall(server_timing):
        if metric.partition(";")[0].strip() == "queue":
            return {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(metric)}
    return {}


def _ms_as_ns(milliseconds: str) -> int:
    return round(min(float(milliseconds), _LONGEST_S) * NS / 1000)


def _epoch_s(fields: dict[str, str], now_epoch_s: float) -> int | None:
    year, month, day = int(fields["year"]), _MONTHS.index(fields["month"]) + 1, int(fields["day"])
    if len(fields["year"]) == 2:
        year = _full_year(year, now_epoch_s)
    try:
        date(year, month, day)
    except ValueError:
        return None
    return timegm((year, month, day, int(fields["hour"]), int(fields["minute"]), int(fields["second"])))


def _full_year(two_digits: int, now_epoch_s: float) -> int:
    """RFC 9110 §5.6.7: a year that seems more than 50 years ahead is the last one with those digits."""
    this_year = datetime.fromtimestamp(now_epoch_s, UTC).year
    year = this_year - this_year % 100 + two_digits
    return year - 100 if year > this_year + 50 else year
