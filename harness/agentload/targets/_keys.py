"""Where the tenants' keys are, and which is whose. Pure: `drivers.keyring` reads and runs what this names.

A key is held by the `Target` it belongs to, outside all that is shown or written down; whoever starts a
worker on this host hands it over in that process's environment, one variable for each tenant.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
from pydantic import Field, field_validator, model_validator

from agentload.errors import ProfileError
from agentload.model import Noun
from agentload.yaml_positions import compose

HANDED_OVER = "AGENTLOAD_KEY:"
"""What the name of a variable begins with by which a tenant's key reaches a worker; the tenant follows."""
_PATTERN = re.compile(r"(?:[A-Za-z0-9_]|\{tenant\})+")
_NAMED_AT_ONCE = 6
_WORD = re.compile(r"[^\s{\[]\S*(?<!:)")
_PAIR = re.compile(r"\s*[A-Za-z0-9_.-]+\s*=\s*[^=\s].*")
"""Base64 may end in `=`, and is no pair."""


class KeysSection(Noun):
    """`keys:` of a target file."""

    file: str | None = Field(default=None, min_length=1)
    command: str | None = Field(default=None, min_length=1)
    env: str | None = Field(default=None, min_length=1)

    @field_validator("env")
    @classmethod
    def _is_variable(cls, env: str | None) -> str | None:
        if env is not None and not _PATTERN.fullmatch(env):
            raise ValueError("must be a variable's name such as GATEWAY_KEY_{tenant}")
        return env

    @field_validator("command")
    @classmethod
    def _is_command(cls, command: str | None) -> str | None:
        return command and is_command(command)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(source is not None for source in (self.file, self.command, self.env)) != 1:
            raise ValueError("needs one of file, command or env")
        return self

    def source(self, folder: Path) -> KeySource:
        """As the target file in that folder means it."""
        return KeySource(file=self.file, command=self.command, env=self.env, folder=str(folder.absolute()))


class KeySource(msgspec.Struct, frozen=True, kw_only=True):
    """Where keys come from; it holds none. One of the three is set."""

    file: str | None = None
    """As it was written."""
    command: str | None = None
    env: str | None = None
    folder: str = "."
    """Of the target file: what it names lies there."""

    def shown(self) -> str:
        """For messages. A command's arguments may be secrets."""
        if self.command is not None:
            return self.command.split()[0]
        return str(self.file or self.env)

    def without_arguments(self) -> KeySource:
        """Of a command, only its name."""
        return self if self.command is None else msgspec.structs.replace(self, command=self.shown())


def is_command(text: str) -> str:
    """A command that is run without a shell. Raises ValueError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"is no command: {str(error).lower()}") from None
    if not words:
        raise ValueError("is no command: it is empty")
    return text


def variable(pattern: str, tenant: str) -> str:
    """The name of a tenant's variable: `KEY_{tenant}` of `quiet-1` is `KEY_QUIET_1`."""
    return pattern.replace("{tenant}", re.sub(r"[^A-Za-z0-9]", "_", tenant).upper())


def from_environment(pattern: str, tenants: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The tenants' keys of those variables that are set."""
    named = ((tenant, variable(pattern, tenant)) for tenant in tenants)
    return {tenant: environment[name] for tenant, name in named if environment.get(name)}


def handed_over(environment: Mapping[str, str]) -> dict[str, str]:
    """The keys that whoever started this process has handed it."""
    begins = HANDED_OVER
    return {name[len(begins) :]: value for name, value in environment.items() if name.startswith(begins)}


def to_hand_over(keyring: Mapping[str, str]) -> dict[str, str]:
    """The same as variables for a child's environment."""
    return {f"{HANDED_OVER}{tenant}": key for tenant, key in keyring.items()}


def read_keys(text: str, tenants: Sequence[str], where: str) -> dict[str, str]:
    """Keys by tenant out of a text: lines of `TENANT=KEY`, lines of keys, or YAML (a mapping, or a list).

    A list is handed out in the order of the tenants. Raises ProfileError with one line, which never holds
    anything of the text.
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if lines and all(map(_PAIR.fullmatch, lines)):
        pairs = (line.partition("=") for line in lines)
        return {name.strip(): _unquoted(key) for name, _, key in pairs}
    if all(map(_WORD.fullmatch, lines)):
        return dict(zip(tenants, lines, strict=False))
    return _from_yaml(text, tenants, where)


def refuse_missing(keys: Mapping[str, str], tenants: Sequence[str], where: str, hint: str = "") -> None:
    """Raises ProfileError where a tenant has none."""
    missing = [tenant for tenant in tenants if not keys.get(tenant)]
    if missing:
        none = f"{_named(missing)} ha{'s' if len(missing) == 1 else 've'} none"
        given = len(tenants) - len(missing)
        keys_needed = f"{len(tenants)} key{'s' if len(tenants) > 1 else ''}"
        raise ProfileError(
            f"{where}: needs {keys_needed} ({_named(tenants)}), you gave {given}: {none}{hint}"
        )


def _unquoted(key: str) -> str:
    key = key.strip()
    return key[1:-1] if len(key) > 1 and key[0] == key[-1] and key[0] in "'\"" else key


def _from_yaml(text: str, tenants: Sequence[str], where: str) -> dict[str, str]:
    try:
        data: Any = compose(text, where).data
    except ProfileError:
        raise ProfileError(f"{where}: is neither YAML nor lines of TENANT=KEY") from None
    if isinstance(data, list):
        return dict(zip(tenants, (_text(key, where) for key in data), strict=False))
    if isinstance(data, dict):
        return {tenant: _text(key, where) for tenant, key in data.items()}
    raise ProfileError(f"{where}: must hold TENANT: KEY for each tenant, or a list of keys")


def _text(value: Any, where: str) -> str:
    """A number is a key, too, but for what reading it as one has lost."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise ProfileError(f"{where}: a key must be text: put it into quotes")


def _named(tenants: Sequence[str]) -> str:
    some = ", ".join(tenants[:_NAMED_AT_ONCE])
    return f"{some}, … ({len(tenants)} in all)" if len(tenants) > _NAMED_AT_ONCE else some
