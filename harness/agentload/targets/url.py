"""A gateway at a URL, with tenants named in the two usual ways."""

from __future__ import annotations

import re

from agentload.errors import UsageError
from agentload.model import Environment
from agentload.targets import Target, TargetReader
from agentload.targets._flavour import spoken_at
from agentload.targets._urls import split_url
from agentload.yaml_positions import on_one_line

_WITHOUT_SCHEME = re.compile(r"[A-Za-z0-9.-]+:[0-9]+(/.*)?")


class Url(TargetReader):
    """`--target http://127.0.0.1:8080` (or `…/v1`): sends `Authorization: Bearer TENANT` and `X-Tenant`.

    A URL that ends as an API's own path does is of that API: `…/v1/messages`, `…/v1/responses`. For other
    headers, real keys or another path, write a target file.
    """

    def claims(self, text: str) -> bool:
        """Anything with a scheme, and `host:port`, so as to say what is missing."""
        return "://" in text or _WITHOUT_SCHEME.fullmatch(text) is not None

    def read(self, text: str, environment: Environment) -> Target:  # noqa: ARG002
        """Raises UsageError."""
        try:
            address = split_url(text)
        except ValueError as error:
            shown = "URL" if "@" in text else on_one_line(text)  # what stands before an @ may be a password
            raise UsageError(f"--target {shown}: {error}") from None
        flavour, path, identity = spoken_at(address.path)
        return Target(
            name=text,
            host=address.host,
            port=address.port,
            tls=address.tls,
            path=path,
            flavour=flavour,
            templates=identity,
        )
