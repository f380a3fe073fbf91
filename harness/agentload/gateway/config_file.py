"""Reads the gateway's configuration file, and says at its line what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from agentload.errors import UsageError
from agentload.gateway.settings import GatewaySettings
from agentload.scheduler.config import GatewayConfig
from agentload.validation import validate
from agentload.yaml_positions import Document, compose, read_text, shown

SERVER = "server"
"""The section for the gateway itself (GatewaySettings); all else is the scheduler's (GatewayConfig)."""


def load(path: Path | None) -> tuple[GatewayConfig, GatewaySettings]:
    """The configuration in a YAML or JSON file; the defaults without one.

    Raises UsageError with one line for each problem.
    """
    if path is None:
        return GatewayConfig(), GatewaySettings()
    return parse(read_text(path), str(path))


def parse(text: str, file: str) -> tuple[GatewayConfig, GatewaySettings]:
    """The configuration in a text; `file` is what messages call it. Raises UsageError as `load` does."""
    document = compose(text, file)
    sections = _sections(document)
    server = sections.pop(SERVER, None)
    config = validate(document, (), GatewayConfig, sections)
    settings = validate(document, (SERVER,), GatewaySettings, {} if server is None else server)
    document.raise_problems()
    if config is None or settings is None:
        raise UsageError(f"{file}: cannot be used as a configuration")
    return config, settings


def _sections(document: Document) -> dict[str, Any]:
    if document.data is None:
        return {}
    if not isinstance(document.data, dict):
        raise UsageError(
            f"{document.file}: must be a mapping (pools, tenants, …), got {shown(document.data)}"
        )
    return cast("dict[str, Any]", document.data).copy()


def tenant_keys(config: GatewayConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Secret key → tenant. Raises UsageError for a key that is missing from the environment or used twice."""
    keys: dict[str, str] = {}
    for name, tenant in config.tenants.items():
        if tenant.key_env is None:
            continue
        key = environment.get(tenant.key_env)
        if not key:
            raise UsageError(f"tenants.{name}.key_env: the environment variable {tenant.key_env} is not set")
        if key in keys:
            raise UsageError(f"tenants.{name}.key_env: the same key as that of tenant '{keys[key]}'")
        keys[key] = name
    return keys
