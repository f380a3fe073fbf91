"""What is kept by tenant and name, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")
_PART = 10


class Remembered(Generic[T]):
    """The values used last, at most `most` of all tenants and a tenth of that of one.

    So a tenant that makes names up can make the gateway forget its own, and not those of others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_one = max(1, most // _PART)
        self._values: OrderedDict[tuple[str, str], T] = OrderedDict()
        """All, the longest unused first."""
        self._names: dict[str, OrderedDict[str, None]] = {}
        """By tenant: its names, the longest unused first."""

    def __len__(self) -> int:
        return len(self._values)

    def get(self, tenant: str, name: str) -> T | None:
        """The value, which is used by asking for it; None when there is none (any more)."""
        value = self._values.get((tenant, name))
        if value is not None:
            self._values.move_to_end((tenant, name))
            self._names[tenant].move_to_end(name)
        return value

    def put(self, tenant: str, name: str, value: T) -> None:
        """Keep a value; what does not fit beside it is forgotten."""
        names = self._names.setdefault(tenant, OrderedDict())
        names[name] = None
        names.move_to_end(name)
        self._values[tenant, name] = value
        self._values.move_to_end((tenant, name))
        if len(names) > self._most_of_one:
            self.forget(tenant, next(iter(names)))
        elif len(self._values) > self._most:
            self.forget(*next(iter(self._values)))

    def forget(self, tenant: str, name: str) -> None:
        """Keep it no longer."""
        if self._values.pop((tenant, name), None) is not None:
            names = self._names[tenant]
            del names[name]
            if not names:
                del self._names[tenant]
