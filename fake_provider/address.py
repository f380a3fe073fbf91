"""`HOST[:PORT]`, as a command line gives it."""

from __future__ import annotations

import re

_BRACKETED = re.compile(r"\[([^\]]*)\](?::([0-9]{1,5}))?")
_PLAIN = re.compile(r"([^:]*)(?::([0-9]{1,5}))?")


def split_bind(text: str, port: int) -> tuple[str, int]:
    """Host and port; `port` where the text names none. Raises ValueError for what is no address.

    A numeric address of IPv6 stands in brackets when a port follows it: `[::1]:9000`.
    """
    if text.count(":") > 1 and "[" not in text:
        return text, port
    match = (_BRACKETED if text.startswith("[") else _PLAIN).fullmatch(text)
    if match is None or not match[1]:
        raise ValueError("must be HOST or HOST:PORT, e.g. 0.0.0.0:9000")
    return match[1], port if match[2] is None else int(match[2])
