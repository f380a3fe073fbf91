"""A client's HTTP request as the scheduler wants it: who, what class, how much work, by when. PURE."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from hashlib import sha256

import msgspec

from agentload.gateway.dialects import Asked, Dialect
from agentload.gateway.dialects.chat import CHAT
from agentload.gateway.failures import Failure
from agentload.gateway.headers import IDEMPOTENCY_KEY, TO_PROVIDER, Headers, first, only
from agentload.gateway.json_bounds import UNREADABLE, why_unreadable
from agentload.gateway.settings import GatewaySettings
from agentload.model import NS, Outcome
from agentload.scheduler.config import GatewayConfig, TenantConfig
from agentload.scheduler.wall_clock import WallClock
from agentload.scheduler.work import Request

CHARS_PER_TOKEN = 4
"""The provider's own estimate of a text's tokens, as OpenAI and Azure document it."""
ANONYMOUS = "anonymous"
"""The tenant of requests that name none, where no tenant needs a key."""
MAX_DEADLINE_MS = 24 * 3600 * 1000
MAX_NAME = 256
"""Characters of an idempotency key, or of a run's id."""


class Rejected(Exception):
    """A request that is wrong whatever the load: answered at once, never queued."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(
            status=status,
            reason=reason,
            message=message,
            outcome=Outcome.REJECTED if status == 413 else Outcome.FAILED,
            may_retry=False,
            worked=False,
            upstream=False,
        )


class UpstreamCall(msgspec.Struct, frozen=True, kw_only=True):
    """What goes to the provider (the shell adds the gateway's own key)."""

    body: bytes
    headers: Headers = ()
    dialect: Dialect = CHAT
    """Which of the provider's endpoints is called, and how its answer is read."""
    stream: bool = False
    hide_usage: bool = False
    """The usage event was our wish: it is not passed on."""
    fallback_model: str | None = None
    """The model that is asked instead of the caller's; the body says so, too."""

    def to(self, model: str) -> UpstreamCall:
        """The same call for another model; everything else in its body stays as it came."""
        body = self.body
        if body:
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            fields["model"] = msgspec.Raw(msgspec.json.encode(model))
            body = msgspec.json.encode(fields)
        return msgspec.structs.replace(self, body=body, fallback_model=model)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One client request: what the scheduler decides on, and what the provider will be sent."""

    request: Request
    call: UpstreamCall


# --------------------------------------------------------------------------- the body


def read_body(body: bytes, max_bytes: int, dialect: Dialect = CHAT) -> Asked:
    """Decode and check. Raises Rejected: 413 when longer than `max_bytes`, 400 when it is no request."""
    if len(body) > max_bytes:
        raise Rejected(413, "body_too_long", f"the request body is longer than {max_bytes} bytes")
    try:
        return dialect.asked(body)
    except msgspec.ValidationError as error:
        raise Rejected(400, "invalid_request", f"not {dialect.request}: {error}") from None
    except UNREADABLE as error:
        message = f"the request body is not JSON: {why_unreadable(error)}"
        raise Rejected(400, "invalid_json", message) from None


def _call(
    asked: Asked, body: bytes, headers: Headers, dialect: Dialect, *, ask_for_usage: bool
) -> UpstreamCall:
    """The body as it came, but for a wish to be told the usage of a stream."""
    wish = asked.usage_wish if ask_for_usage else b""
    if wish:
        start = body.index(b"{") + 1
        body = body[:start] + wish + body[start:]
    return UpstreamCall(
        body=body, headers=headers, dialect=dialect, stream=asked.stream, hide_usage=bool(wish)
    )


def _provider_headers(headers: Headers, tenant: str) -> Headers:
    """What goes on to the provider.

    To it all our tenants are one account, so equal idempotency keys of two tenants would be one request, and
    one tenant could be given the other's answer: keys are made the tenant's own.
    """
    passed = only(headers, TO_PROVIDER)
    key = first(headers, IDEMPOTENCY_KEY)
    if key is None:
        return passed
    own = sha256(f"{tenant}\0{key}".encode("utf-8", "replace")).hexdigest().encode()
    return (*(field for field in passed if field[0] != IDEMPOTENCY_KEY), (IDEMPOTENCY_KEY, own))


# --------------------------------------------------------------------------- the headers


def _number(headers: Headers, name: str, default: float | None, *, low: float, high: float) -> float | None:
    text = first(headers, name.lower().encode())
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise Rejected(
            400, "invalid_header", f"{name}: must be a number from {low:.12g} to {high:.12g}, got {text!r}"
        )
    return value


def _whole(headers: Headers, name: str, default: int | None, *, low: int, high: int) -> int | None:
    value = _number(headers, name, None, low=low, high=high)
    if value is None:
        return default
    if value != int(value):
        raise Rejected(400, "invalid_header", f"{name}: must be a whole number, got {value:g}")
    return int(value)


class Identities:
    """Who a request comes from.

    A tenant with a key is known only by that key. A tenant without one is named by `X-Tenant`: good enough
    behind a proxy that sets it, or in an experiment.
    """

    def __init__(self, config: GatewayConfig, keys: Mapping[str, str]) -> None:
        """`keys`: secret bearer key → tenant name."""
        self._tenants = config.tenants
        self._by_digest = {_digest(key): tenant for key, tenant in keys.items()}
        self._keyed = frozenset(name for name, tenant in config.tenants.items() if tenant.key_env)

    def tenant(self, headers: Headers) -> str:
        """The tenant's name. Raises Rejected with 401 (a key is needed) or 400 (a name that is none)."""
        for key in _shown_keys(headers) if self._by_digest else ():
            known = self._by_digest.get(_digest(key))
            if known is not None:
                return known
        name = first(headers, b"x-tenant")
        if name in self._keyed or (not name and self._keyed):
            message = "send a known key as `Authorization: Bearer KEY` or as `X-Api-Key: KEY`"
            raise Rejected(401, "invalid_api_key", message)
        if not name:
            return ANONYMOUS
        if len(name) > 128 or not name.isprintable() or "\ufffd" in name:
            raise Rejected(400, "invalid_header", "X-Tenant: must be at most 128 printable ASCII characters")
        return name

    def contract(self, tenant: str) -> TenantConfig | None:
        """What is agreed with a tenant; None for one nobody has heard of."""
        return self._tenants.get(tenant)


def _shown_keys(headers: Headers) -> Iterator[str]:
    """A bearer token, as most clients send it; and Anthropic's own field."""
    scheme, _, token = (first(headers, b"authorization") or "").partition(" ")
    if token and scheme.lower() == "bearer":
        yield token.strip()
    if key := first(headers, b"x-api-key"):
        yield key


def _digest(key: str) -> bytes:
    """Keys are compared by digest, so that the time a look-up takes tells nothing about them."""
    return sha256(key.encode("utf-8", "replace")).digest()


class EnvelopeReader:
    """Turns requests as they came over the wire into envelopes."""

    def __init__(
        self,
        config: GatewayConfig,
        settings: GatewaySettings,
        keys: Mapping[str, str],
        wall: WallClock | None = None,
    ) -> None:
        """`wall`: the clock that X-Not-Before is read by."""
        self._settings = settings
        self._wall = wall or WallClock()
        self._identities = Identities(config, keys)
        self._classes = sorted(name for pool in config.pools.values() for name in pool.classes)

    def read(
        self, now_ns: int, request_id: int, headers: Headers, body: bytes, dialect: Dialect = CHAT
    ) -> Envelope:
        """The envelope of one request that arrived at `now_ns`. Raises Rejected."""
        tenant = self._identities.tenant(headers)
        service_class = self._service_class(headers, tenant)
        deadline_ms = _number(headers, "X-Deadline-Ms", None, low=0, high=MAX_DEADLINE_MS)
        asked = read_body(body, self._settings.max_body_bytes, dialect)
        chars = asked.text_chars
        request = Request(
            id=request_id,
            tenant=tenant,
            service_class=service_class,
            workflow=(first(headers, b"x-workflow") or "chat")[:64],
            model=asked.model,
            input_tokens=max(1, math.ceil(chars / CHARS_PER_TOKEN)),
            text_chars=chars,
            max_output_tokens=asked.max_output_tokens,
            tool_calls=_whole(headers, "X-Expected-Tool-Calls", 0, low=0, high=100_000) or 0,
            tool_seconds=_number(headers, "X-Expected-Tool-Seconds", 0.0, low=0, high=86_400) or 0.0,
            body_bytes=len(body),
            arrived_ns=now_ns,
            deadline_ns=None if deadline_ms is None else now_ns + round(deadline_ms * NS / 1000),
            attempt=_attempt(headers),
            max_attempts=_whole(headers, "X-Max-Attempts", None, low=1, high=1_000),
            not_before_ns=self._not_before_ns(headers),
            idempotency_key=_name(headers, "Idempotency-Key"),
            run_id=_name(headers, "X-Run-Id"),
        )
        passed = _provider_headers(headers, tenant)
        call = _call(asked, body, passed, dialect, ask_for_usage=self._settings.request_usage)
        return Envelope(request=request, call=call)

    def _not_before_ns(self, headers: Headers) -> int | None:
        text = first(headers, b"x-not-before")
        if not text:
            return None
        try:
            return self._wall.read(text)
        except ValueError as error:
            raise Rejected(400, "invalid_header", f"X-Not-Before: {error}, got {text[:40]!r}") from None

    def tenant(self, headers: Headers) -> str:
        """Who sent these headers. Raises Rejected."""
        return self._identities.tenant(headers)

    def identify(self, headers: Headers) -> tuple[str, str]:
        """Tenant and service class of these headers. Raises Rejected."""
        tenant = self._identities.tenant(headers)
        return tenant, self._service_class(headers, tenant)

    def bounds(self, headers: Headers) -> tuple[float | None, int | None]:
        """Milliseconds to the deadline, and the most attempts, as far as said. Raises Rejected."""
        return (
            _number(headers, "X-Deadline-Ms", None, low=0, high=MAX_DEADLINE_MS),
            _whole(headers, "X-Max-Attempts", None, low=1, high=1_000),
        )

    def _service_class(self, headers: Headers, tenant: str) -> str:
        contract = self._identities.contract(tenant)
        asked = first(headers, b"x-service-class")
        if asked and asked not in self._classes:
            known = ", ".join(self._classes)
            raise Rejected(
                400, "unknown_service_class", f"X-Service-Class: no class {asked!r} (known: {known})"
            )
        if asked and contract is not None and asked != contract.service_class:
            raise Rejected(
                403,
                "service_class_not_allowed",
                f"X-Service-Class: this tenant's is '{contract.service_class}'",
            )
        granted = asked or (contract or TenantConfig()).service_class
        if granted not in self._classes:
            raise Rejected(
                400, "unknown_service_class", f"X-Service-Class: needed (known: {', '.join(self._classes)})"
            )
        return granted


def _name(headers: Headers, name: str) -> str | None:
    """What a caller calls something; None when it gives it no name."""
    text = first(headers, name.lower().encode())
    if not text:
        return None
    if len(text) > MAX_NAME or not text.isprintable() or "\ufffd" in text:
        raise Rejected(
            400, "invalid_header", f"{name}: must be at most {MAX_NAME} printable ASCII characters"
        )
    return text


def _attempt(headers: Headers) -> int:
    """From 0. The official SDKs count their retries in a header of their own."""
    sdk = _whole(headers, "X-Stainless-Retry-Count", 0, low=0, high=1_000)
    return _whole(headers, "X-Attempt", sdk, low=0, high=1_000) or 0
