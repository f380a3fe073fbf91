"""Whom to believe that it is the target, and who we are: the files of `tls:`."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec
from pydantic import Field, model_validator

from agentload.model import Noun


class TlsSection(Noun):
    """`tls:` of a target file. There is no switch that trusts everybody."""

    ca: str | None = Field(default=None, min_length=1)
    """Certificates (PEM) to trust instead of the system's."""
    client_cert: str | None = Field(default=None, min_length=1)
    client_key: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("client_key needs client_cert")
        if self.ca is None and self.client_cert is None:
            raise ValueError("needs ca, or client_cert")
        return self

    def trust(self, folder: Path) -> Trust:
        """As the target file in that folder means it."""
        ca, cert, key = (path and str(folder / path) for path in (self.ca, self.client_cert, self.client_key))
        return Trust(ca=ca, client_cert=cert, client_key=key)


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """The same, as paths from here."""

    ca: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
