"""What is being tested: where the gateway is, and how it wants to be told who is calling.

A reader turns what stands behind `--target` into a `Target`; one reader per file. Keys come from the
environment when a request is built; they are in no repr, no error and no JSON.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from ipaddress import ip_address
from math import ceil
from typing import Any, NamedTuple, cast

import msgspec

from agentload import flavours
from agentload.errors import ProfileError, UsageError
from agentload.flavours import Flavour
from agentload.model import Arrival, Environment, Job, Profile
from agentload.registry import Seam
from agentload.targets._declares import Written
from agentload.targets._keys import KeySource, variable
from agentload.targets._metrics import MetricsPage
from agentload.targets._process import ProcessRef
from agentload.targets._provider import ProviderExpectation
from agentload.targets._secrets import Redactor, secrets
from agentload.targets._tls import Trust
from agentload.targets._urls import api_path, split_url
from agentload.yaml_positions import on_one_line

DEFAULT_MODEL = "fake-model"
_PLACEHOLDER = re.compile(r"\{(tenant|class|key|env:((?:[A-Za-z0-9_]|\{tenant\})+))\}")
_NOT_IN_FIELDS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]")
_MS = 1_000_000
_SECRET_FIELDS = ("environment", "keyring")
"""Never shown, compared or written down."""
_OF_THIS_PROCESS = (*_SECRET_FIELDS, "declared_at")


@dataclass(frozen=True)
class Target:
    """A gateway to send load to."""

    name: str
    """As the user wrote it."""
    host: str
    port: int
    path: str
    """Where requests go, with its leading slash."""
    tls: bool = False
    flavour: str = flavours.DEFAULT
    """In which words it is asked, by the name in `agentload.flavours`."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    """What the target says of that flavour."""
    model: str = DEFAULT_MODEL
    templates: tuple[tuple[str, str], ...] = ()
    """Header fields with `{tenant}`, `{class}`, `{key}` and `{env:NAME}` still in them."""
    provider: ProviderExpectation = field(default_factory=ProviderExpectation)
    keys: KeySource | None = None
    """Where the tenants' keys are; they are in `keyring` once they have been read."""
    trust: Trust | None = None
    health: str | None = None
    """Path that answers 2xx when the target is ready."""
    metrics: MetricsPage | None = None
    process: ProcessRef | None = None
    keyring: Mapping[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    """Tenant → key."""
    declares: Written = None
    """What it promises, as written: `_declares` says what follows."""
    declared_at: Mapping[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    """Where the target file names each tenant."""
    environment: Environment = field(default_factory=dict[str, str], repr=False, compare=False)

    @cached_property
    def api(self) -> Flavour:
        """In which words it is asked and answers."""
        return flavours.SEAM.get(self.flavour).model_validate(dict(self.options))

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:8080`, without a path."""
        return f"{'https' if self.tls else 'http'}://{self.authority}"

    @property
    def authority(self) -> str:
        """Host and port for the Host field; the port is left out where it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    def headers(self, arrival: Arrival, attempt: int, now_ns: int) -> list[tuple[str, str]]:
        """The caller's identity as this target wants it, and the envelope; a template wins over the envelope.

        Raises ProfileError when an environment variable is missing (see `check_tenants`).
        """
        workflow = arrival.job.workflow
        standing = self.standing_headers(arrival.tenant, arrival.service_class, workflow, attempt)
        return standing + self.moving_headers(arrival, now_ns)

    def standing_headers(
        self, tenant: str, service_class: str, workflow: str, attempt: int
    ) -> list[tuple[str, str]]:
        """The first of those: the same for every job of a tenant's workflow. Raises as above."""
        mapped = [(name, self._filled(text, tenant, service_class)) for name, text in self.templates]
        envelope = [
            ("X-Service-Class", service_class),
            ("X-Workflow", workflow),
            ("X-Attempt", str(attempt)),
        ]
        return mapped + self._untaken([*self.api.fields, *envelope])

    def moving_headers(self, arrival: Arrival, now_ns: int) -> list[tuple[str, str]]:
        """The rest: nothing where the job has neither tools nor a deadline and is no step of a run."""
        return self._untaken(_moving(arrival, now_ns))

    def check_tenants(self, tenants: Iterable[tuple[str, str]]) -> None:
        """Find missing or unusable environment variables before the start, for (name, class) of every tenant.

        Raises ProfileError with one line for each.
        """
        wrong = {line for name, service_class in tenants for line in self._wrong_fields(name, service_class)}
        if wrong:
            raise ProfileError(*sorted(wrong))

    def redactor(self) -> Redactor:
        """Blanks the keys of this target in whatever is copied from its answers. Make it once a run."""
        named = secrets((text for _, text in self.templates), self.environment)
        return Redactor([*named, *self.keyring.values()])

    def refuse_strangers(self, allowed: Collection[str]) -> None:
        """Only this machine is loaded unless the user said otherwise. Raises UsageError."""
        metrics = None if self.metrics is None else self.metrics.url
        others = (split_url(url).host for url in (self.provider.running, metrics) if url)
        for host in dict.fromkeys((self.host, *others)):
            if not is_loopback(host) and host.lower() not in {name.lower() for name in allowed}:
                raise UsageError(
                    f"--target {self.name}: {host} is not this machine; "
                    f"load it only if it is yours, with --allow-host {host}"
                )

    def to_dict(self) -> dict[str, Any]:
        """As JSON-like data, for workers and the run folder: without keys, or commands that may hold any."""
        kept = [one.name for one in fields(self) if one.name not in _OF_THIS_PROCESS]
        values = {name: getattr(self, name) for name in kept}
        for name in ("keys", "process"):
            values[name] = None if values[name] is None else values[name].without_arguments()
        return cast("dict[str, Any]", msgspec.to_builtins(values))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], environment: Environment) -> Target:
        """A target from `to_dict`, with this process's environment."""
        return replace(msgspec.convert(dict(data), cls), environment=environment)

    def _untaken(self, envelope: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        taken = {name.lower() for name, _ in self.templates}
        return [field for field in envelope if field[0].lower() not in taken]

    def _filled(self, template: str, tenant: str, service_class: str) -> str:
        """Raises ProfileError when a key is missing."""

        def value(match: re.Match[str]) -> str:
            if match[2] is not None:
                return _of_environment(variable(match[2], tenant), self.environment)
            if match[1] == "key":
                return _of_keyring(tenant, self.keyring)
            return tenant if match[1] == "tenant" else service_class

        return _PLACEHOLDER.sub(value, template)

    def _wrong_fields(self, tenant: str, service_class: str) -> Iterator[str]:
        for name, text in self.templates:
            try:
                value = self._filled(text, tenant, service_class)
            except ProfileError as error:
                yield f"{self.name}: headers.{name}: {error}"
            else:
                if _NOT_IN_FIELDS.search(value):
                    yield f"{self.name}: headers.{name}: the value holds characters that no header may carry"


class Probe(NamedTuple):
    """One small request, by which to see whether the target is there at all."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes


class TargetReader(ABC):
    """The contract."""

    @abstractmethod
    def claims(self, text: str) -> bool:
        """Whether this reader understands what the user wrote (not whether it is right)."""

    @abstractmethod
    def read(self, text: str, environment: Environment) -> Target:
        """The target. Raises UsageError or ProfileError, one line per problem."""


SEAM: Seam[TargetReader] = Seam(__name__, TargetReader)


def load(text: str, environment: Environment, allow_hosts: Collection[str] = ()) -> Target:
    """The target that `--target TEXT` means. Hosts other than this machine must be in `allow_hosts`.

    Raises UsageError or ProfileError.
    """
    for name in SEAM.names():
        reader = SEAM.get(name)()
        if reader.claims(text):
            target = reader.read(text, environment)
            target.refuse_strangers(allow_hosts)
            return target
    known = "a URL such as http://127.0.0.1:8080, or a YAML file such as gateway.yaml"
    raise UsageError(f"--target {on_one_line(text)}: must be {known}")


def bundled(url: str) -> Target:
    """The reference gateway, which the run has started at `url`. It knows tenants by name."""
    address = split_url(url)
    return Target(
        name="bundled",
        host=address.host,
        port=address.port,
        path=api_path(address.path, "/chat/completions"),
        templates=(("X-Tenant", "{tenant}"),),
        health="/healthz",
    )


def probe_request(target: Target, profile: Profile) -> Probe:
    """A small request in the name of the profile's first tenant, for before the load; without a marker.

    Raises ProfileError when any tenant's header fields cannot be filled in.
    """
    target.check_tenants((tenant.name, tenant.service_class) for tenant in profile.tenants)
    tenant = profile.tenants[0]
    job = Job(input_tokens=1, output_tokens=1, declared_output_tokens=1)
    arrival = Arrival(
        seq=0,
        tenant=tenant.name,
        service_class=tenant.service_class,
        phase=profile.phases[0].name,
        due_ns=0,
        job=job,
    )
    url = f"{target.base_url}{target.path}"
    body = target.api.request_body("ping", arrival, tenant.model or target.model)
    return Probe(target.api.method, url, target.headers(arrival, 0, 0), body)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, judged by its name alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().removesuffix(".") == "localhost"


def unknown_placeholder(text: str) -> str | None:
    """The first `{…}` of a header template that means nothing, or None."""
    rest = re.search(r"\{[^}]*\}?", _PLACEHOLDER.sub("", text))
    return rest[0] if rest else None


def _of_environment(name: str, environment: Environment) -> str:
    if name not in environment:
        raise ProfileError(f"the environment variable {name} is not set")
    return environment[name]


def _of_keyring(tenant: str, keyring: Mapping[str, str]) -> str:
    if tenant not in keyring:
        raise ProfileError(f"{{key}}: there is no key for {tenant}")
    return keyring[tenant]


def _moving(arrival: Arrival, now_ns: int) -> Iterator[tuple[str, str]]:
    """What the reference gateway reads, and others may ignore; beside class, workflow, attempt and key."""
    job = arrival.job
    if arrival.run is not None:
        yield "X-Run-Id", arrival.run
    if job.tool_calls:
        yield "X-Expected-Tool-Calls", str(job.tool_calls)
        yield "X-Expected-Tool-Seconds", f"{job.tool_ns / 1000 / _MS:g}"
    if job.deadline_ns is not None:
        left_ns = arrival.due_ns + job.deadline_ns - now_ns
        yield "X-Deadline-Ms", str(max(1, ceil(left_ns / _MS)))
