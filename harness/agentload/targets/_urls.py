"""URLs of targets, taken apart with one-line errors that never repeat a password."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_LONGEST_HOST, _LONGEST_LABEL = 253, 63
"""RFC 1035 §2.3.4, as text."""
_PATH = re.compile(r"(/[!$-;=@-Z_a-z~%/]*)?")


class Address(NamedTuple):
    """Where to connect, and the path that a URL ends with (without a trailing slash)."""

    tls: bool
    host: str
    port: int
    path: str

    @property
    def root(self) -> str:
        """The URL without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == (443 if self.tls else 80) else f":{self.port}"
        return f"{'https' if self.tls else 'http'}://{host}{port}"


def split_url(url: str) -> Address:
    """Take an http(s) URL apart. Raises ValueError with a message that fits behind "where: "."""
    if "://" not in url:
        raise ValueError(f"must be a URL with its scheme (did you mean 'http://{_masked(url)}'?)")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"is not a URL: {str(error).splitlines()[0]}") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"must begin with http:// or https://, not {parts.scheme}://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or password: keys come from the environment, see {env:NAME}")
    if parts.query or parts.fragment:
        raise ValueError("must not have a query or fragment")
    host = parts.hostname or ""
    if not _is_host(host) or port == 0 or not _PATH.fullmatch(parts.path):
        raise ValueError("is not a URL such as http://127.0.0.1:8080")
    tls = parts.scheme == "https"
    return Address(tls, host, port or (443 if tls else 80), parts.path.rstrip("/"))


def _is_host(host: str) -> bool:
    """An address, or a name that can be asked for: an empty or overlong label breaks a resolver."""
    if len(host) > _LONGEST_HOST or not _HOST.fullmatch(host):
        return False
    return ":" in host or all(0 < len(label) <= _LONGEST_LABEL for label in host.removesuffix(".").split("."))


def api_path(prefix: str, path: str) -> str:
    """Where something is below a base URL's path, with or without its `/v1`."""
    return f"{prefix}{path}" if prefix.endswith("/v1") else f"{prefix}/v1{path}"


def is_path(text: str) -> bool:
    """Whether a text is an absolute URL path, with nothing in it that would need escaping."""
    return text.startswith("/") and _PATH.fullmatch(text) is not None


def _masked(url: str) -> str:
    return url.rsplit("@", 1)[-1]
