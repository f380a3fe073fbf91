"""Which words a target speaks: `flavour:`, what it adds, and what can be guessed from a path."""

from __future__ import annotations

from typing import Any

from agentload import flavours
from agentload.flavours import Fields, Flavour
from agentload.registry import did_you_mean
from agentload.targets._urls import api_path
from agentload.validation import validate
from agentload.yaml_positions import Document, shown

KEYS = ("body", "background", "cancels", "poll_s", "jobs", "http")
"""What the bundled flavours add to a target file."""


def spoken_at(prefix: str, path: str | None = None) -> tuple[str, str, Fields]:
    """Flavour, path and how tenants are named, of an API of which no more is known than the path of its URL,
    or where its requests go."""
    whole = path or prefix
    name = flavours.of_path(whole)
    kind = flavours.SEAM.get(name or flavours.DEFAULT)
    where = whole if path or name else api_path(prefix, kind.path or "")
    return name or flavours.DEFAULT, where, kind.identity


def chosen(document: Document, prefix: str) -> tuple[str, str, Fields, Flavour | None]:
    """What the file says of its flavour (what it does not say, as above); None after noting what is wrong."""
    path = document.get(("path",))
    guessed, where, identity = spoken_at(prefix, path if isinstance(path, str) else None)
    name = document.get(("flavour",))
    if name is None:
        return guessed, where, identity, _read(document, guessed)
    if not isinstance(name, str) or name not in flavours.SEAM.names():
        hint = did_you_mean(str(name), flavours.SEAM.names())
        document.complain(("flavour",), f"no flavour named {shown(name)}{hint}")
        return guessed, where, identity, None
    kind = flavours.SEAM.get(name)
    if not isinstance(path, str):
        where = _own_path(document, name, prefix)
    return name, where, kind.identity, _read(document, name)


def _own_path(document: Document, name: str, prefix: str) -> str:
    kind = flavours.SEAM.get(name)
    if kind.tail is not None and prefix.endswith(kind.tail):
        return prefix
    if kind.path is None:
        document.complain(("path",), f"is required of the flavour {name}: where do requests go?")
        return prefix
    return api_path(prefix, kind.path)


def _read(document: Document, name: str) -> Flavour | None:
    """The flavour with the keys that are its own."""
    kind, data = flavours.SEAM.get(name), document.data
    own = {key: value for key, value in data.items() if key in kind.model_fields}
    for key in data:
        if key in KEYS and key not in own:
            of = " or ".join(flavours.owners(key))
            document.complain((key,), f"belongs to flavour: {of}; this target's is {name}", at_key=True)
    read = validate(document, (), kind, own)
    _check_body(document, kind, own.get("body"))
    return read


def _check_body(document: Document, kind: type[Flavour], body: Any) -> None:
    for key in body if isinstance(body, dict) else ():
        if key in kind.writes:
            document.complain(("body", key), "is set by agentload itself", at_key=True)
