"""The token for `/_fake/`: from the environment or a file, not from the command line, which `ps` shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from fake_provider.named_file import read_whole

TOKEN_VARIABLE = "AGENTLOAD_PROVIDER_TOKEN"
"""Where it is looked for unless told otherwise; the harness looks there, too."""
LEAST = 8
_MAX_BYTES = 65_536
_VISIBLE = re.compile(r"[\x21-\x7e]+")


class TokenError(Exception):
    """Why there is no token to be used, in one line; the token is not repeated."""


def read_token(environment: Mapping[str, str], variable: str | None, file: Path | None) -> str | None:
    """The token that was asked for, else the one in `TOKEN_VARIABLE`; None without any. Raises TokenError."""
    if file is not None:
        return _usable(f"--token-file {file}", _first_line(file))
    if variable is None:
        token = environment.get(TOKEN_VARIABLE)
        return _usable(TOKEN_VARIABLE, token) if token else None
    if not environment.get(variable):
        raise TokenError(f"--token-env {variable}: that environment variable is not set")
    return _usable(f"--token-env {variable}", environment[variable])


def _first_line(file: Path) -> str:
    try:
        said = read_whole(file, _MAX_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise TokenError(f"--token-file {file}: {error.strerror}") from None
    return said.partition("\n")[0].strip()


def _usable(where: str, token: str) -> str:
    if len(token) < LEAST or not _VISIBLE.fullmatch(token):
        raise TokenError(f"{where}: must be at least {LEAST} visible ASCII characters, without spaces")
    return token
