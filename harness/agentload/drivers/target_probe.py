"""Is the target there, ready, and does it speak HTTP and JSON? Asked before any load."""

from __future__ import annotations

import json
import time

from agentload.drivers import own_words
from agentload.drivers.plain_call import Line
from agentload.drivers.probe import MIB, Bounds, Reply
from agentload.errors import UnreachableError
from agentload.targets import Probe, Target

READY_S = 30.0
"""How long a target may take to become ready."""
AGAIN_S = 0.1
_WHAT = "the target gateway"
_NO_UPSTREAM = (502, 503, 504)
_ONCE = Bounds(5.0, MIB)
_PATIENT = Bounds(20.0, MIB)
"""For a whole answer: a model may have to be loaded for the first one."""


def chat_probe(target: Target, request: Probe) -> int:
    """One small chat call to a target; returns its status. Any JSON answer will do, a refusal too.

    Raises UnreachableError as `ask` and `refuse_no_api` do.
    """
    reply = ask(target, request)
    refuse_no_api(target, request, reply)
    return reply.status


def ask(target: Target, request: Probe) -> Reply:
    """One small chat call to a target, and whatever it answers.

    Raises UnreachableError when nothing listens, when it is not HTTP, or when the answer is too long or too
    slow.
    """
    path = request.url.removeprefix(target.base_url)
    with Line(target.base_url, _WHAT, target.trust) as line:
        return line.call(request.method, path, request.headers, request.body, _PATIENT)


def refuse_dead_upstream(request: Probe, status: int, provider_url: str) -> None:
    """Of an answer to a call that our provider saw nothing of: a proxy's own word for what it calls.

    Raises UnreachableError for one (RFC 9110 §15.6.3 to 15.6.5); its body, often a web page, says no more.
    """
    if status in _NO_UPSTREAM:
        raise UnreachableError(
            f"{_WHAT} at {request.url}: answered {status}: the gateway cannot reach its upstream: "
            f"does it call {provider_url}, where our provider listens?"
        )


def refuse_no_api(target: Target, request: Probe, reply: Reply, *, needs_json: bool = True) -> None:
    """Raises UnreachableError for a web page, a redirection, a path that is not there, or no JSON."""
    where = f"{_WHAT} at {request.url}: answered {reply.status}"
    if 300 <= reply.status < 400:
        to = own_words.place(target, reply)
        raise UnreachableError(f"{where}{f', see {to}' if to else ''}: give the final address")
    if "html" in reply.kind:
        raise UnreachableError(f"{where} with HTML, not JSON: is this its API?")
    if reply.status in (401, 403):
        raise UnreachableError(f"{where}{_in_its_words(target, reply)}: {keys_mend(target)}")
    if reply.status in (404, 405):
        raise UnreachableError(f"{where}{_in_its_words(target, reply)}: is the path right?")
    if needs_json:
        _refuse_other_than_json(reply, where)


def keys_mend(target: Target) -> str:
    """What to do where a tenant is not let in: a bare URL names no keys, and the tenants' names are sent."""
    question = "are the tenants' keys known to it?"
    if target.name.endswith((".yaml", ".yml")):
        return f"{question} `keys:` or `headers:` of {target.name} says whose key is whose"
    sent = "of a bare URL each tenant's name is sent as its key"
    return f"{question} ({sent}: say `keys:` or `headers:` in a target file; `agentload init` writes one)"


def await_ready(target: Target, seconds: float = READY_S) -> None:
    """Until the target's health page answers 2xx; without one, until it takes connections.

    Raises UnreachableError when that takes longer than `seconds`.
    """
    until_s = time.monotonic() + seconds
    while True:
        try:
            _ask_health(target)
        except UnreachableError as error:
            if time.monotonic() > until_s:
                raise UnreachableError(f"{error} (for {seconds:g} s)") from None
        else:
            return
        time.sleep(AGAIN_S)


def _ask_health(target: Target) -> None:
    with Line(target.base_url, _WHAT, target.trust) as line:
        if target.health is None:
            line.connect()
            return
        reply = line.call("GET", target.health, bounds=_ONCE)
    if not 200 <= reply.status < 300:
        raise UnreachableError(f"{_WHAT} at {target.base_url}{target.health}: answers {reply.status}")


def _in_its_words(target: Target, reply: Reply) -> str:
    words = own_words.said(target, reply)
    return f" ({words})" if words else ""


def _refuse_other_than_json(reply: Reply, where: str) -> None:
    try:
        value = json.loads(reply.body)
    except RecursionError:
        raise UnreachableError(f"{where} with JSON nested too deeply") from None
    except ValueError:
        raise UnreachableError(f"{where} without JSON") from None
    if not isinstance(value, dict):
        raise UnreachableError(f"{where} with JSON that is not an object")
