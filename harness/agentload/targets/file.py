"""A gateway described in a YAML file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from agentload.errors import ProfileError
from agentload.flavours import Fields
from agentload.model import Environment, Noun
from agentload.redaction import sounds_secret
from agentload.targets import (
    DEFAULT_MODEL,
    Target,
    TargetReader,
    _declares,
    is_loopback,
    unknown_placeholder,
)
from agentload.targets._flavour import KEYS, chosen
from agentload.targets._keys import KeysSection
from agentload.targets._metrics import MetricsSection
from agentload.targets._process import ProcessSection
from agentload.targets._provider import ProviderExpectation, ProviderSection, spelt_out
from agentload.targets._tls import TlsSection
from agentload.targets._urls import Address, is_path, split_url
from agentload.validation import validate
from agentload.yaml_positions import Document, compose, read_text, shown

_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_KEYS_OF_NOTHING = frozenset({"idempotency-key", "x-idempotency-key"})
_RESERVED = frozenset({"host", "content-length", "transfer-encoding", "content-type", "connection"})


class _Source(Noun):
    base_url: str
    flavour: str | None = None
    path: str | None = None
    body: Any = None
    background: Any = None
    cancels: Any = None
    poll_s: Any = None
    jobs: Any = None
    http: Any = None
    model: str = Field(default=DEFAULT_MODEL, min_length=1)
    tenant_header: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    keys: KeysSection | None = None
    tls: TlsSection | None = None
    health: str | None = None
    metrics: MetricsSection | None = None
    process: ProcessSection | None = None
    provider: ProviderSection | None = None
    declares: Any = None

    @field_validator("path", "health")
    @classmethod
    def _is_path(cls, path: str | None, info: ValidationInfo) -> str | None:
        if path is not None and not is_path(path):
            usual = "/healthz" if info.field_name == "health" else "/v1/chat/completions"
            raise ValueError(f"must be a path such as {usual}, got {shown(path)}")
        return path


class File(TargetReader):
    """`--target gateway.yaml`:

        base_url: http://127.0.0.1:8080/v1
        model: gpt-4o-mini
        headers:
          Authorization: "Bearer {env:GATEWAY_KEY_{tenant}}"    # GATEWAY_KEY_QUIET_1 for the tenant quiet-1
        provider: {listens: "127.0.0.1:9100"}                   # the upstream in your gateway's own config
                                                                # {running: URL}: ours, elsewhere; external
        declares: {slots: 32, queue: {requests: 100}}           # what it promises; or: declares: profile

    Header values may hold `{tenant}`, `{class}`, `{env:NAME}` and, where there are `keys:`, `{key}`.
    `flavour:` names the words it speaks (see `agentload.flavours`), which may bring keys of their own.
    """

    def claims(self, text: str) -> bool:
        """By its suffix."""
        return text.endswith((".yaml", ".yml")) and "://" not in text

    def read(self, text: str, environment: Environment) -> Target:
        """Raises ProfileError with one line per problem."""
        document = compose(read_text(text), text)
        if not isinstance(document.data, dict):
            raise ProfileError(
                f"{text}:1:1: must be a mapping with at least a base_url, got {shown(document.data)}"
            )
        address = _address(document)
        flavour, path, identity, api = chosen(document, address.path if address is not None else "")
        its_own = {*KEYS, *(type(api).model_fields if api is not None else ())}
        written = spelt_out(document.data)
        common = {key: value for key, value in written.items() if key not in its_own}
        source = validate(document, (), _Source, common)
        templates = _templates(document, identity)
        _check_provider(document)
        _check_tls(document, address)
        declares = _declares.read(document)
        document.raise_problems()
        assert source is not None  # else there was a problem
        assert address is not None
        assert api is not None
        folder = Path(text).parent
        return Target(
            name=text,
            host=address.host,
            port=address.port,
            tls=address.tls,
            path=path,
            flavour=flavour,
            options=api.model_dump(mode="json", exclude_unset=True),
            model=source.model,
            templates=tuple(templates),
            provider=ProviderExpectation() if source.provider is None else source.provider.expectation(),
            keys=None if source.keys is None else source.keys.source(folder),
            trust=None if source.tls is None else source.tls.trust(folder),
            health=source.health,
            metrics=None if source.metrics is None else source.metrics.page(address.root),
            process=None if source.process is None else source.process.ref(folder),
            declares=declares,
            declared_at=_declares.tenant_places(document),
            environment=environment,
        )


def _address(document: Document) -> Address | None:
    url = document.get(("base_url",))
    if isinstance(url, str):
        try:
            return split_url(url)
        except ValueError as error:
            document.complain(("base_url",), str(error))
    return None


def _templates(document: Document, identity: Fields) -> list[tuple[str, str]]:
    """The header fields, checked; without any, tenants are named as with a bare URL, or by their keys."""
    named: Any = document.get(("tenant_header",))
    given: Any = document.get(("headers",))
    templates = [(k, v) for k, v in given.items() if isinstance(v, str)] if isinstance(given, dict) else []
    if isinstance(named, str):
        _check_name(document, ("tenant_header",), named)
        templates.append((named, "{tenant}"))
    for name, text in templates if isinstance(given, dict) else ():
        if name in given:
            _check_name(document, ("headers", name), name)
            unknown = unknown_placeholder(text)
            if unknown is not None:
                message = (
                    f"unknown placeholder {unknown} (known: {{tenant}}, {{class}}, {{key}}, {{env:NAME}})"
                )
                document.complain(("headers", name), message)
            elif _is_literal_key(name, text):
                document.complain(("headers", name), "is a key: put it into the environment: {env:NAME}")
    if document.get(("keys",)) is not None:
        return _with_key(document, templates, identity)
    for name, text in templates:
        if "{key}" in text:
            document.complain(("headers", name), "there are no keys: add keys: {file: keys.yaml}")
    return templates or list(identity)


def _with_key(
    document: Document, templates: list[tuple[str, str]], identity: Fields
) -> list[tuple[str, str]]:
    """Keys are sent as is usual in the flavour (`Bearer`, `x-api-key`) unless a header says how."""
    if any("{key}" in text for _, text in templates):
        return templates
    usual, text = identity[0]
    if any(name.lower() == usual.lower() for name, _ in templates):
        document.complain(("keys",), "no header holds {key}: say in headers which one does")
    return [(usual, text.replace("{tenant}", "{key}")), *templates]


def _is_literal_key(name: str, text: str) -> bool:
    """A key that stands in the file itself ends up in copies of it; one made of placeholders does not."""
    secret = sounds_secret(name) and name.lower() not in _KEYS_OF_NOTHING
    return secret and bool(text) and not any(one in text for one in ("{env:", "{key}", "{tenant}"))


def _check_name(document: Document, path: tuple[str, ...], name: str) -> None:
    if not _FIELD_NAME.fullmatch(name):
        document.complain(path, f"{shown(name)} is not the name of a header field")
    elif name.lower() in _RESERVED:
        document.complain(path, f"{name} is set by agentload itself")


def _check_tls(document: Document, address: Address | None) -> None:
    """Who wrote `tls:` believes that somebody is verified: the target, its metrics page, or our provider."""
    urls = (document.get(("metrics", "url")), document.get(("provider", "running")))
    elsewhere = any(isinstance(url, str) and url.startswith("https://") for url in urls)
    told = any(problem.path[:1] == ("tls",) for problem in document.problems)
    if address is None or address.tls or elsewhere or told or document.get(("tls",)) is None:
        return
    meant = address.root.replace("http:", "https:", 1)
    document.complain(("tls",), f"has no effect with http:// (did you mean {meant}?)", at_key=True)


def _check_provider(document: Document) -> None:
    if not isinstance(document.get(("provider",)), dict):
        return
    listens, running = document.get(("provider", "listens")), document.get(("provider", "running"))
    if isinstance(listens, str):
        host, _, port = listens.rpartition(":")
        if not (
            is_loopback(host.strip("[]")) and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65_536
        ):
            document.complain(("provider", "listens"), f"must be 127.0.0.1:PORT, got {shown(listens)}")
    if isinstance(running, str):
        try:
            split_url(running)
        except ValueError as error:
            document.complain(("provider", "running"), str(error))
