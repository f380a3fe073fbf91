"""Control calls over httpx: is it there, does it speak HTTP and JSON, what time is it there."""

from __future__ import annotations

from typing import Any, cast

import httpx

from agentload.errors import UnreachableError

TIMEOUT_S = 5.0


def client() -> httpx.Client:
    """A client for control calls, never for load (its pool is O(N²)). Ignores the environment's proxies."""
    return httpx.Client(timeout=TIMEOUT_S, trust_env=False, follow_redirects=False)


def json_call(http: httpx.Client, method: str, url: str, *, body: object = None, what: str) -> dict[str, Any]:
    """One call that must answer 200 with a JSON object. Raises UnreachableError with one line otherwise."""
    try:
        response = http.request(method, url, json=body)
    except httpx.HTTPError as error:
        raise UnreachableError(f"{what} at {url}: {describe(error)}") from error
    if response.status_code != 200:
        raise UnreachableError(f"{what} at {url}: answered {response.status_code}, expected 200")
    return _json_object(response, what, url)


def chat_probe(http: httpx.Client, url: str, headers: dict[str, str], body: bytes) -> int:
    """One small chat call to a target; returns its status. Any JSON answer will do, a refusal too.

    Raises UnreachableError when nothing listens, when it is not HTTP, when it is a web page, or when the path
    is not there.
    """
    what = "the target gateway"
    try:
        response = http.post(url, headers=headers | {"content-type": "application/json"}, content=body)
    except httpx.HTTPError as error:
        raise UnreachableError(f"{what} at {url}: {describe(error)}") from error
    kind = response.headers.get("content-type", "")
    if "html" in kind:
        raise UnreachableError(
            f"{what} at {url}: answered {response.status_code} with HTML, not JSON: is this its API?"
        )
    if response.status_code in (401, 403):
        raise UnreachableError(
            f"{what} at {url}: answered {response.status_code}: are the tenants' keys known to it?"
        )
    if response.status_code in (404, 405):
        raise UnreachableError(f"{what} at {url}: answered {response.status_code}: is the path right?")
    _json_object(response, what, url)
    return response.status_code


def _json_object(response: httpx.Response, what: str, url: str) -> dict[str, Any]:
    try:
        value = response.json()
    except ValueError as error:
        raise UnreachableError(f"{what} at {url}: answered {response.status_code} without JSON") from error
    if not isinstance(value, dict):
        raise UnreachableError(f"{what} at {url}: answered JSON that is not an object")
    return cast(dict[str, Any], value)


def describe(error: httpx.HTTPError) -> str:
    """An httpx error in words a person can act on."""
    if isinstance(error, httpx.ConnectTimeout | httpx.ReadTimeout):
        return f"no answer within {TIMEOUT_S:g} s"
    if isinstance(error, httpx.ConnectError):
        return "nothing listens there (connection refused or name unknown)"
    if isinstance(error, httpx.RemoteProtocolError):
        return f"does not speak HTTP ({error})"
    return f"{type(error).__name__}: {error}"
