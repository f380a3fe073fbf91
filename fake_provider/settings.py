"""The provider's configuration from a file and the command line, with errors that people can act on."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import ValidationError

from fake_provider.config import LatencyConfig, ProviderConfig
from fake_provider.named_file import read_whole

MAX_BYTES = 1_000_000
"""Of a configuration: as of a profile."""

_KNOWN = [*ProviderConfig.model_fields, *(f"latency.{name}" for name in LatencyConfig.model_fields)]


class SettingsError(Exception):
    """A configuration that cannot be used; its text is one line for the user."""


def load(file: Path | None, settings: Sequence[str] = ()) -> ProviderConfig:
    """The configuration in a YAML or JSON file, changed by `key=value` settings (`latency.chunk_ms=200`).

    Raises SettingsError.
    """
    data = {} if file is None else _read(file)
    for setting in settings:
        _put(data, setting)
    return validated(data, str(file) if file is not None else "--set")


def validated(data: Any, where: str) -> ProviderConfig:
    """The configuration that `data` describes. Raises SettingsError, naming `where` it came from."""
    try:
        return ProviderConfig.model_validate(data)
    except ValidationError as error:
        raise SettingsError(f"{where}: {explain(error)}") from None


def explain(error: ValidationError) -> str:
    """All that pydantic found, in one line: where, what, and the value that was given."""
    found = (_one(one["loc"], one["type"], one["msg"], one["input"]) for one in error.errors())
    return "; ".join(found)


def _one(place: tuple[int | str, ...], kind: str, message: str, given: object) -> str:
    where = ".".join(str(part) for part in place) or "the configuration"
    if kind == "extra_forbidden":
        return f"{where}: no such setting{_suggestion(where)}"
    if kind == "missing":
        return f"{where}: is missing"
    text = message.removeprefix("Value error, ").removeprefix("Input ")
    return f"{where}: {text[:1].lower()}{text[1:]}, got {given!r:.80}"


def _suggestion(name: str) -> str:
    close = get_close_matches(name, _KNOWN, 1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def _read(file: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(read_whole(file, MAX_BYTES).decode("utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{file}: not a text file (UTF-8)") from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SettingsError(f"{file}{line}: {error.problem}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{file}: {error}".splitlines()[0]) from None
    except RecursionError:
        raise SettingsError(f"{file}: is nested too deeply") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SettingsError(f"{file}: must hold settings (key: value), not a {type(data).__name__}")
    return cast(dict[str, Any], data)


def _put(data: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise SettingsError(f"--set {setting}: write key=value, such as --set slots=16")
    *parents, last = key.strip().split(".")
    for parent in parents:
        inner = data.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise SettingsError(f"--set {setting}: {parent} is a value, not a group of settings")
        data = cast(dict[str, Any], inner)
    try:
        data[last] = yaml.safe_load(text)
    except yaml.YAMLError:
        raise SettingsError(f"--set {setting}: the value is not YAML") from None
