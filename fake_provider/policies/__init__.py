"""How a provider limits its callers: one policy per file, each the only class of its file.

The bucket arithmetic is in `budget`; a policy says which buckets there are, what a call costs, and which
headers tell the caller, whichever endpoint it calls. To add one: a file here, and its name in
`ProviderConfig.policy`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from hashlib import blake2b
from typing import ClassVar, cast

from fake_provider.budget import Bucket, Headers
from fake_provider.call import CallRequest, Shortage
from fake_provider.config import ProviderConfig
from fake_provider.ledger import Caller
from fake_provider.plugins import find


class Policy(ABC):
    """The contract. Each caller (API key and model) has an allowance of its own."""

    charges_output: ClassVar[bool] = False
    """Whether `produced` matters, so that it must be told in time even of answers that go out whole."""

    def __init__(self, config: ProviderConfig, epoch_ns: int = 0) -> None:
        self.config = config
        self._epoch_ns = epoch_ns
        """What to add to the provider's clock to get Unix time."""

    @abstractmethod
    def cost(self, request: CallRequest) -> int:
        """Tokens that the call is charged at admission."""

    @abstractmethod
    def shortages(self, now_ns: int, caller: Caller, cost: int) -> list[Shortage]:
        """Every limit that a call of that cost exceeds now; nothing is taken."""

    @abstractmethod
    def take(self, now_ns: int, caller: Caller, cost: int) -> None:
        """Charges an admitted call."""

    @abstractmethod
    def refused(self, now_ns: int, caller: Caller) -> None:
        """A call was turned away, by a limit or a fault."""

    @abstractmethod
    def produced(self, now_ns: int, caller: Caller, tokens: int) -> None:
        """So many more tokens of an answer go out (for limits that are charged while output is produced)."""

    @abstractmethod
    def headers(self, now_ns: int, caller: Caller) -> Headers:
        """The rate-limit fields that every answer to that caller carries."""

    @abstractmethod
    def scale(self, now_ns: int, factor: float) -> None:
        """From now on the token limits are `factor` times the configured ones."""

    @abstractmethod
    def levels(self, now_ns: int) -> list[dict[str, object]]:
        """The buckets as they stand, for people: no API key is shown."""


def make(config: ProviderConfig, epoch_ns: int = 0) -> Policy:
    """The policy that the configuration names."""
    policy = cast(Callable[[ProviderConfig, int], Policy], find(__name__, Policy, config.policy))
    return policy(config, epoch_ns)


def level(caller: Caller, limit: str, bucket: Bucket, now_ns: int) -> dict[str, object]:
    """One bucket as it stands, for people: no API key is shown."""
    bucket.refill(now_ns)
    return {
        "key_digest": digest(caller),
        "model": caller[1],
        "limit": limit,
        "per_minute": bucket.per_minute,
        "capacity": bucket.capacity,
        "level": bucket.level,
    }


def digest(caller: Caller) -> str:
    """Tells API keys apart without showing them."""
    return blake2b(caller[0].encode(), digest_size=4).hexdigest()
