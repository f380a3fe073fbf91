"""`/_fake/…`: what the harness asks of the provider. For loopback peers, or for whoever knows the token."""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any, cast

import msgspec
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fake_provider import faults
from fake_provider.config import FaultSpec
from fake_provider.faults import Fault
from fake_provider.hold import LONGEST_S
from fake_provider.host import Host
from fake_provider.settings import SettingsError, explain, validated

Handler = Callable[[Request], Awaitable[Response]]


class Control:
    """The routes under `/_fake`. With a token, everybody must show it, as `Authorization: Bearer TOKEN`."""

    def __init__(self, host: Host, token: str | None = None) -> None:
        self._host = host
        self._token = token

    def routes(self) -> list[Route]:
        """All routes, each behind the door."""
        table: list[tuple[str, str, Handler]] = [
            ("GET", "/health", self.health),
            ("GET", "/ledger", self.ledger),
            ("GET", "/stats", self.stats),
            ("GET", "/tools", self.tools),
            ("POST", "/reset", self.reset),
            ("POST", "/hold", self.hold),
            ("GET", "/faults", self.faults),
            ("POST", "/faults", self.add_faults),
            ("DELETE", "/faults", self.remove_faults),
            ("DELETE", "/faults/{id:int}", self.remove_fault),
        ]
        return [Route(f"/_fake{path}", self._door(handle), methods=[verb]) for verb, path, handle in table]

    async def health(self, _: Request) -> Response:
        """`{ok, now_ns, pid, run, held_s}`; `now_ns` is the monotonic clock that all times are on."""
        run, now_ns = self._host.provider.ledger.run, self._host.clock_ns()
        held_s = self._host.hold.left_s(now_ns)
        return _json({"ok": True, "now_ns": now_ns, "pid": os.getpid(), "run": run, "held_s": held_s})

    async def ledger(self, request: Request) -> Response:
        """Every call of the run, the sums, and how late this process was.

        `?start=N&most=M`: only M entries from the N-th (from 0) on; `listed` says how many there are.
        """
        provider = self._host.provider
        entries = provider.ledger.entries
        start, most = _number(request, "start", 0), _number(request, "most", len(entries))
        return _json(
            {
                "now_ns": self._host.clock_ns(),
                "run": provider.ledger.run,
                "counts": provider.ledger.counts,
                "unattributed": provider.unattributed(),
                "listed": len(entries),
                "entries": entries[start : start + most],
                **self._host.health(),
            }
        )

    async def stats(self, _: Request) -> Response:
        """The same without the entries, with calls in service and queued, tokens by tenant and buckets."""
        return _json({**self._host.provider.snapshot(self._host.clock_ns()), **self._host.health()})

    async def tools(self, _: Request) -> Response:
        """The fake tools' ledger: calls, and which of them had an effect."""
        return _json(self._host.tools.ledger(self._host.clock_ns()))

    async def reset(self, request: Request) -> Response:
        """`{run, config?, hold_s?}`: a new run with an empty ledger and full buckets; 409 while another run
        holds the provider."""
        asked = await _object(request)
        run, config, hold_s = _run(asked), asked.pop("config", None), _seconds(asked, "hold_s")
        _nothing_else(asked, "run, config, hold_s")
        provider = self._host.provider
        new = provider.config if config is None else validated(config, "config")
        now_ns = self._host.clock_ns()
        self._refuse_another(run, now_ns)
        self._host.hold.take(run, now_ns, hold_s)
        provider.reset(now_ns, run, new)
        self._host.tools.reset(run)
        self._host.restart()
        return _json({"run": run, "now_ns": now_ns})

    async def hold(self, request: Request) -> Response:
        """`{run, seconds}`: the run goes on and has the provider for itself for so long; 0 lets it go.

        409 when it is no longer its run: another one has begun.
        """
        asked, now_ns = await _object(request), self._host.clock_ns()
        run, seconds = _run(asked), _seconds(asked, "seconds")
        _nothing_else(asked, "run, seconds")
        self._refuse_another(run, now_ns)
        current = self._host.provider.ledger.run
        if run != current:
            raise _Taken(f"the run here is number {current}, not {run}: another one has begun")
        self._host.hold.take(run, now_ns, seconds)
        return _json({"run": run, "now_ns": now_ns})

    def _refuse_another(self, run: int, now_ns: int) -> None:
        hold = self._host.hold
        if hold.bars(run, now_ns):
            left_s = hold.left_s(now_ns)
            raise _Taken(f"run number {hold.run} has this provider for itself, for {left_s:.0f} s at least")

    async def faults(self, _: Request) -> Response:
        """The faults on the timeline, and which kinds there are."""
        now_ns = self._host.clock_ns()
        listing = self._host.provider.faults.listing(now_ns)
        return _json({"now_ns": now_ns, "faults": listing, "kinds": faults.kinds()})

    async def add_faults(self, request: Request) -> Response:
        """`{kind, after_s?, seconds?, tenant?, params?}`, or a list of these: all are added, or none.

        Instead of `after_s` and `seconds`, `start_ns` and `end_ns` give the window on the provider's clock.
        """
        asked, now_ns = await _body(request), self._host.clock_ns()
        several = asked if isinstance(asked, list) else [asked]
        made = [_fault(one, now_ns) for one in several]
        ids = [self._host.provider.add_fault(now_ns, fault) for fault in made]
        self._host.changed()
        return _json({"now_ns": now_ns, "ids": ids})

    async def remove_faults(self, _: Request) -> Response:
        """Takes all faults away."""
        self._host.provider.remove_fault(self._host.clock_ns())
        self._host.changed()
        return _json({"ok": True})

    async def remove_fault(self, request: Request) -> Response:
        """Takes one fault away."""
        number = cast(int, request.path_params["id"])
        found = self._host.provider.remove_fault(self._host.clock_ns(), number)
        self._host.changed()
        return _json({"ok": True}) if found else _error(404, f"no fault with id {number}")

    def _door(self, handle: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            if not self._may_enter(request):
                return _error(403, "control is for loopback peers, or for whoever shows the control token")
            try:
                return await handle(request)
            except _Taken as error:
                return _error(409, str(error.args[0]))
            except (_Refused, SettingsError, LookupError) as error:
                return _error(400, str(error.args[0]))
            except ValidationError as error:
                return _error(400, explain(error))

        return guarded

    def _may_enter(self, request: Request) -> bool:
        if self._token is not None:
            shown = request.headers.get("authorization", "").removeprefix("Bearer ")
            return hmac.compare_digest(shown.encode(), self._token.encode())
        return request.client is not None and ip_address(request.client.host).is_loopback


class _Refused(Exception):
    """A control request that cannot be done; its text says why."""


class _Taken(Exception):
    """Another run has the provider; its text says which."""


def _run(asked: dict[str, Any]) -> int:
    run = asked.pop("run", None)
    if type(run) is not int or not 0 <= run <= 65_535:
        raise _Refused(f"run: must be a number from 0 to 65535, got {run!r:.80}")
    return run


def _seconds(asked: dict[str, Any], name: str) -> float:
    seconds = asked.pop(name, 0)
    if type(seconds) not in (int, float) or not 0 <= seconds <= LONGEST_S:
        raise _Refused(f"{name}: must be a number from 0 to {LONGEST_S:g}, got {seconds!r:.80}")
    return float(seconds)


def _nothing_else(asked: dict[str, Any], known: str) -> None:
    if asked:
        raise _Refused(f"{next(iter(asked))}: no such field (known: {known})")


def _number(request: Request, name: str, otherwise: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return otherwise
    if not (given.isascii() and given.isdigit() and len(given) <= 12):
        raise _Refused(f"{name}: must be a whole number from 0, got {given!r:.80}")
    return int(given)


def _fault(asked: Any, now_ns: int) -> Fault:
    if not isinstance(asked, dict):
        raise _Refused("a fault is an object with a kind")
    fields = cast(dict[str, Any], asked)
    window = {name: fields.pop(name) for name in ("start_ns", "end_ns") if name in fields}
    fault = faults.make(FaultSpec.model_validate(fields), now_ns)
    return fault if not window else type(fault).model_validate({**fault.model_dump(), **window})


async def _body(request: Request) -> Any:
    try:
        return msgspec.json.decode(await request.body())
    except msgspec.DecodeError as error:
        raise _Refused(f"the body must be JSON: {error}") from None


async def _object(request: Request) -> dict[str, Any]:
    body = await _body(request)
    if not isinstance(body, dict):
        raise _Refused("the body must be a JSON object")
    return cast(dict[str, Any], body)


def _json(data: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(data), status, media_type="application/json")


def _error(status: int, message: str) -> Response:
    return _json({"error": message}, status)
