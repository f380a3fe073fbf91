"""Our provider's control, `/_fake/…`, as the harness asks it: here, on another host, or behind a proxy.

The token goes to the provider's control and nowhere else: not to the target, not into any output.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, TypedDict

import httpx
import msgspec

from agentload.clock_alignment import ClockReading, Exchange, compare
from agentload.drivers import probe
from agentload.errors import InconclusiveError, ProfileError, UnreachableError
from agentload.provider_records import StrangeRecordError
from agentload.yaml_positions import on_one_line
from fake_provider.control_token import TOKEN_VARIABLE

CLOCK_EXCHANGES = (9, 25)
"""At least, and at most while none was as quick as `QUICK_NS`: one that nothing held up tells most."""
QUICK_NS = 2_000_000
PAGE = 50_000
"""Entries of the ledger in one answer: some 15 MB."""
PAGE_TRIES = 3
_MOST_NS = 2**62
_SENDABLE = re.compile(r"[\x21-\x7e]+")

Entries = Sequence[dict[str, Any]]


class ProviderTakenError(InconclusiveError):
    """Another run has the provider, so this one has no ledger (any more)."""


Number = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
"""Beyond it is no time and no count, and no file would take it."""


class Span(TypedDict):
    """From one instant of the provider's clock to another."""

    start_ns: Number
    end_ns: Number


class ProviderLedger(msgspec.Struct, kw_only=True):
    """What the provider says of a run at its end, beside the calls themselves; on its own clock."""

    counts: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    stalls: list[Span] = msgspec.field(default_factory=list["Span"])
    lateness_ms: dict[str, Any] = msgspec.field(default_factory=dict)
    incomplete: str | None = None
    """Why: then the calls are those that the provider had written down before."""
    strangers: int = 0
    """Calls that nobody of this run is known to have made."""


class _Unattributed(TypedDict):
    calls: Number


class _Page(msgspec.Struct, kw_only=True):
    run: int
    entries: list[dict[str, Any]]
    listed: int
    """Entries that there are in all."""
    counts: dict[str, Number]
    unattributed: list[_Unattributed]
    """Calls without a valid marker of this run, counted by endpoint and model."""
    stalls: list[Span]
    lateness_ms: dict[str, Any]


class StrangeProviderError(UnreachableError):
    """What answers is no provider of ours, or one of another version."""


class ProviderControl:
    """One provider. Every method raises UnreachableError, with one line, when it does not do as asked, and
    ProviderTakenError when another run has it."""

    def __init__(self, http: httpx.Client, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._http = http
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def health(self) -> dict[str, Any]:
        """Is it there, whose run is it, what time is it there."""
        return self._call("GET", "/health")

    def begin(self, run: int, config: Mapping[str, Any], hold_s: float = 0) -> None:
        """A new run with these limits: its ledger is empty, its buckets are full, and for so long no other
        run may begin."""
        wanted = {"hold_s": hold_s} if hold_s else {}
        self._call("POST", "/reset", {"run": run, "config": config, **wanted})

    def hold(self, run: int, seconds: float) -> None:
        """The run goes on: so much longer no other one may begin; 0 lets the provider go."""
        self._call("POST", "/hold", {"run": run, "seconds": seconds})

    def stats(self) -> dict[str, Any]:
        """Counts and buckets as they stand."""
        return self._call("GET", "/stats")

    def calls_seen(self) -> int:
        """Calls since the run began, of whomever."""
        try:
            return int(self.stats()["counts"]["offered"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self._stranger("/stats") from None

    def add_faults(self, faults: Sequence[object]) -> None:
        """Put faults on its timeline, in its time."""
        self._call("POST", "/faults", list(faults))

    def remove_faults(self) -> None:
        """It is itself again."""
        self._call("DELETE", "/faults")

    def tools(self) -> list[dict[str, Any]]:
        """The fake tools' ledger of this run."""
        entries = self._call("GET", "/tools", bounds=probe.LARGE).get("entries")
        if not isinstance(entries, list):
            raise self._stranger("/tools")
        return entries

    def ledger(self, run: int, keep: Callable[[Entries], None]) -> ProviderLedger:
        """Hand on the calls of a run, a page at a time, and return the rest."""
        listed = 0
        while True:
            page = self._page(run, listed)
            try:
                keep(page.entries)
            except StrangeRecordError:
                raise self._stranger("/ledger") from None
            listed += len(page.entries)
            if len(page.entries) < PAGE and listed < page.listed:  # such pages might never end
                raise self._stranger("/ledger")
            if listed >= page.listed or not page.entries:
                return ProviderLedger(
                    counts=page.counts,
                    stalls=page.stalls,
                    lateness_ms=page.lateness_ms,
                    strangers=sum(row["calls"] for row in page.unattributed),
                )

    def read_clock(self) -> ClockReading:
        """Its clock against ours, by several short calls."""
        exchanges: list[Exchange] = []
        least, most = CLOCK_EXCHANGES
        while len(exchanges) < least or (len(exchanges) < most and not _quick(exchanges)):
            asked_ns = time.monotonic_ns()
            theirs_ns = self.health().get("now_ns")
            if type(theirs_ns) is not int or abs(theirs_ns) > _MOST_NS:
                raise self._stranger("/health")
            exchanges.append((asked_ns, theirs_ns, time.monotonic_ns()))
        return compare(exchanges)

    def _page(self, run: int, start: int) -> _Page:
        answer = self._persistently(f"/ledger?start={start}&most={PAGE}")
        try:
            page = msgspec.convert(answer, _Page)
        except msgspec.ValidationError:
            raise self._stranger("/ledger") from None
        if page.run != run:
            raise self._taken(f"the run here is number {page.run}, not {run}: another one has begun")
        return page

    def _persistently(self, path: str) -> dict[str, Any]:
        """What was lost on its way is asked for again."""
        for _ in range(PAGE_TRIES - 1):
            with suppress(UnreachableError):
                return self._call("GET", path, bounds=probe.LARGE)
        return self._call("GET", path, bounds=probe.LARGE)

    def _call(
        self, method: str, path: str, body: object = None, bounds: probe.Bounds = probe.SMALL
    ) -> dict[str, Any]:
        url, what = f"{self.url}/_fake{path}", "the provider's control"
        content = None if body is None else json.dumps(body).encode()
        reply = probe.exchange(
            self._http, method, url, what=what, body=content, headers=self._headers, bounds=bounds
        )
        if reply.status == 403:
            raise UnreachableError(f"{what} at {self.url}: {self._shut()}")
        if reply.status == 400:
            raise UnreachableError(f"{what} at {url}: refuses: {_reason(reply)}")
        if reply.status == 409:
            raise self._taken(_reason(reply))
        return probe.read_json(reply, what, url)

    def _shut(self) -> str:
        if self._headers:
            return f"does not know this token: give {TOKEN_VARIABLE} the one that it was started with"
        return f"wants its token: put it into the environment variable {TOKEN_VARIABLE}"

    def _taken(self, why: str) -> ProviderTakenError:
        return ProviderTakenError(
            f"the provider at {self.url}: {why}; a provider serves one run at a time: wait for the other, or "
            "start one more"
        )

    def _stranger(self, path: str) -> StrangeProviderError:
        where = f"the provider's control at {self.url}/_fake{path}"
        return StrangeProviderError(f"{where}: is not agentload's, or of another version")


def _quick(exchanges: Sequence[Exchange]) -> bool:
    return min(answered - asked for asked, _, answered in exchanges) <= QUICK_NS


def token_of(environment: Mapping[str, str]) -> str | None:
    """The control token that the environment holds, if any. Raises ProfileError for one that no header may
    carry; it is not repeated."""
    token = environment.get(TOKEN_VARIABLE) or None
    if token is not None and not _SENDABLE.fullmatch(token):
        raise ProfileError(f"{TOKEN_VARIABLE}: must be visible ASCII characters without spaces")
    return token


def _reason(reply: probe.Reply) -> str:
    """What our provider has against a request; what anybody else says stays out."""
    try:
        said = json.loads(reply.body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no reason given"
    return on_one_line(said[:200]) if isinstance(said, str) else "no reason given"
