"""A user's class as a tenant plays it: at the target, in the tenant's name, watched. Imports locust: only the
Locust processes may import this.
"""

from __future__ import annotations

from collections.abc import Callable
from types import new_class
from typing import Any
from urllib.parse import urlsplit

import gevent
import requests
from locust import FastHttpUser
from locust.clients import HttpSession, absolute_http_url_regexp
from locust.contrib.fasthttp import FastHttpSession
from locust.exception import (
    InterruptTaskSet,
    RescheduleTask,
    RescheduleTaskImmediately,
    StopTest,
    StopUser,
)

from agentload.drivers import locust_gate_fast, locust_gate_requests, tls
from agentload.drivers.locust_common import CONTEXT
from agentload.drivers.locust_watch import Sending, Watch
from agentload.locust import Refused
from agentload.targets import Target
from agentload.targets._tls import Trust

_NO_VERDICT = (StopUser, StopTest, RescheduleTask, RescheduleTaskImmediately, InterruptTaskSet, SystemExit)
"""By these a task goes on, or ends: they say nothing of an answer."""
_WATCHED: dict[Any, Any] = {}
"""By Locust's own class of an answer, ours."""
_CONTEXT_PLACE = 3
"""Among the positional arguments of `client.request`, after method and url: name, catch_response, context."""


def playing(base: Any, target: Target, watch: Watch, exited: Callable[[SystemExit], object]) -> Any:
    """A subclass of its own for the tenant: several may have users of one class. `exited` is told of one that
    calls `sys.exit()`."""
    trust = target.trust or Trust()

    def begin(self: Any, environment: Any) -> None:
        base.__init__(self, environment)
        self.agentload = watch
        client = getattr(self, "client", None)
        _name(client, watch)
        _verify(client, trust)
        _guard(client, watch)
        _watch(client, watch)

    def start(self: Any, group: Any) -> Any:
        greenlet = base.start(self, group)
        watch.book.owners[greenlet] = watch
        return greenlet

    def run(self: Any) -> None:
        try:
            base.run(self)
        except SystemExit as error:  # anywhere else it would end this process
            exited(error)

    made: dict[str, Any] = {
        "__init__": begin,
        "start": start,
        "run": run,
        "host": target.base_url,
        "__module__": base.__module__,
    }
    if issubclass(base, FastHttpUser):
        made["default_headers"] = {**watch.headers, **(base.default_headers or {})}
        if not _says_whom_it_trusts(base):
            made |= {"insecure": False, "ssl_context_factory": staticmethod(lambda: tls.context(trust))}
    name = f"{base.__name__} of {watch.share.tenant.name}"
    return new_class(name, (base,), exec_body=lambda body: body.update(made))


def _name(client: Any, watch: Watch) -> None:
    """The tenant's header fields on a session of requests; what the user's class has set itself stays."""
    fields: Any = getattr(client, "headers", None)
    if fields is not None:
        for name, value in watch.headers.items():
            fields.setdefault(name, value)


def _verify(client: Any, trust: Trust) -> None:
    """Sessions of requests verify by themselves; whom to believe instead is the target file's to say."""
    if hasattr(client, "verify") and client.verify is True and trust.ca is not None:
        client.verify = trust.ca
    if hasattr(client, "cert") and client.cert is None and trust.client_cert is not None:
        client.cert = trust.client_cert if trust.client_key is None else (trust.client_cert, trust.client_key)


def _says_whom_it_trusts(base: Any) -> bool:
    """Its own class has switches of its own; by default `FastHttpUser` believes everybody."""
    own = base.__mro__[: base.__mro__.index(FastHttpUser)]
    return any({"insecure", "ssl_context_factory", "client_pool"} & vars(one).keys() for one in own)


def _watched(response: Any, sending: Sending) -> Any:
    """An answer whose `with` block is seen to raise: Locust fires no event then, and it has been answered."""
    if getattr(response, "_catch_response", False):
        response.__class__ = _watched_class(type(response))
        response.agentload_sending = sending
    return response


def _watched_class(base: Any) -> Any:
    if (known := _WATCHED.get(base)) is not None:
        return known

    def leave(self: Any, kind: Any, error: BaseException | None, tb: Any) -> Any:
        handled = base.__exit__(self, kind, error, tb)
        if error is not None:
            verdict = None if isinstance(error, _NO_VERDICT) else error
            self.agentload_sending.raised(self, verdict)
        return handled

    _WATCHED[base] = type(base.__name__, (base,), {"__exit__": leave, "__module__": base.__module__})
    return _WATCHED[base]


def _guard(client: Any, watch: Watch) -> None:
    """Hold what goes out by Locust's own clients to the caps, and by a plain session in their place."""
    if isinstance(client, requests.Session):
        locust_gate_requests.guard(client, watch.book.gate)
    elif isinstance(client, FastHttpSession):
        locust_gate_fast.guard(client.client, watch.book.gate)


def _watch(client: Any, watch: Watch) -> None:
    """See every request of Locust's own clients leave, and whatever cuts it off."""
    if not isinstance(client, HttpSession | FastHttpSession):
        return  # an SDK's `request` takes no context
    inner: Callable[..., Any] = client.request

    def request(method: Any, url: Any, *arguments: Any, **named: Any) -> Any:
        gate, tenant = watch.book.gate, watch.share.tenant.name
        if isinstance(url, str) and absolute_http_url_regexp.match(url):
            gate.check(urlsplit(url).hostname, tenant)
        gate.turn(tenant)  # here, and not inside: what waits for the caps is no latency of the target's
        stream = bool(named.get("stream", getattr(client, "stream", False)))
        sending = watch.sending(named.get("json") or named.get("data"), stream=stream)
        if len(arguments) < _CONTEXT_PLACE:
            named["context"] = {**(named.get("context") or {}), CONTEXT: sending}
        try:
            with gate.sending(sending):
                return _watched(inner(method, url, *arguments, **named), sending)
        except Refused:
            sending.refused()
            raise
        except gevent.GreenletExit:
            sending.cut()
            raise
        except gevent.Timeout:
            sending.cut(timed_out=True)
            raise
        except BaseException:
            sending.forget()
            raise

    client.request = request
