"""Addresses of what the gateway calls, as people write them into configurations and on command lines."""

from __future__ import annotations

from urllib.parse import urlsplit


def base_url(url: str, example: str) -> str:
    """A URL that paths can be put behind, as it came. ValueError, in words, for anything else."""
    if "://" not in url:
        raise ValueError(f"must be a URL with its scheme (did you mean 'http://{url}'?)")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"is not a URL: {str(error)[:1].lower()}{str(error)[1:]}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not _is_text(url):
        raise ValueError(f"must be a URL such as {example}")
    if parts.query or parts.fragment:
        raise ValueError("must end with its path (no '?' or '#'), because paths are put behind it")
    return url


def _is_text(url: str) -> bool:
    return url.isprintable() and " " not in url
