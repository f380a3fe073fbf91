"""What may be spent: tokens, money and calls; for a tenant, for a run, and for everybody.

What a request may cost at most is reserved when it is let in, and what it did cost is settled when it ends,
however it ends: requests that race for the last of a budget cannot all have it. Where callers declare
max_tokens nothing is ever overspent; where they do not, a call can cost more than was expected of it, which
is charged while it streams. A call counts in the window in which it ends.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple

from agentload.scheduler.budget_config import BudgetConfig, Per
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.remembered import Remembered
from agentload.scheduler.wall_clock import WallClock
from agentload.scheduler.work import Request

MICRO = 1_000_000
"""Micro-units in a unit of money: a price per million tokens is the micro-units that one token costs."""


class Charge(NamedTuple):
    """What a request costs."""

    tokens: int
    cost: int
    """Micro-units of money."""
    calls: int


NOTHING = Charge(0, 0, 0)


class Room(Enum):
    """Whether there is room for a charge."""

    ENOUGH = "enough"
    RESERVED = "reserved"
    """There would be, were it not for what running calls may yet use."""
    SPENT = "spent"


class Account:
    """One budget: what was spent in its present window, and what is reserved."""

    __slots__ = ("_config", "_ends_ns", "_most", "_wall", "reserved", "spent")

    def __init__(self, config: BudgetConfig, wall: WallClock) -> None:
        self._config = config
        self._wall = wall
        cost = math.inf if config.cost is None else math.floor(config.cost * MICRO)
        self._most = (config.tokens or math.inf, cost, config.calls or math.inf)
        self._ends_ns: int | None = 0
        self.spent = NOTHING
        self.reserved = NOTHING
        """By those that were let in and have not ended: they go with it into the next window."""

    def room(self, now_ns: int, charge: Charge) -> Room:
        """For one more request."""
        self._turn(now_ns)
        if _exceeds(_sum(self.spent, charge), self._most):
            return Room.SPENT
        if _exceeds(_sum(_sum(self.spent, self.reserved), charge), self._most):
            return Room.RESERVED
        return Room.ENOUGH

    def reserve(self, charge: Charge) -> None:
        """Keep so much for a request."""
        self.reserved = _sum(self.reserved, charge)

    def release(self, charge: Charge) -> None:
        """Keep it no longer."""
        self.reserved = _difference(self.reserved, charge)

    def spend(self, now_ns: int, charge: Charge) -> None:
        """So much is gone."""
        self._turn(now_ns)
        self.spent = _sum(self.spent, charge)

    def state(self, charge: Charge) -> str:
        """What was spent, of how much, and what one more request may need; of what it does not hold."""
        names = zip(("tokens", "cost", "calls"), self.spent, charge, self._most, strict=True)
        short = [
            f"{_shown(name, spent)} of {_shown(name, most)} {name} spent, "
            f"{_shown(name, more)} more may be needed"
            for name, spent, more, most in names
            if spent + more > most
        ]
        per = self._config.per
        return ", ".join(short) + ("" if per is Per.TOTAL else f" (per {per})")

    @property
    def idle(self) -> bool:
        """Nothing is reserved."""
        return self.reserved == NOTHING

    def _turn(self, now_ns: int) -> None:
        """Open a new window when the last one has ended."""
        if self._ends_ns is not None and now_ns >= self._ends_ns:
            self._ends_ns = self._wall.window_end_ns(now_ns, self._config.per)
            self.spent = NOTHING


class Hold:
    """What one request has reserved, in every account that it falls under."""

    __slots__ = ("_accounts", "_charge", "_price")

    def __init__(self, accounts: list[Account], price: Price, charge: Charge) -> None:
        self._accounts = accounts
        self._price = price
        self._charge = charge
        for account in accounts:
            account.reserve(charge)

    def used(self, input_tokens: int, output_tokens: int) -> None:
        """It has used so much by now: more than was reserved for it is reserved now."""
        charge = self._price.charge(input_tokens, output_tokens)
        if charge.tokens <= self._charge.tokens:
            return
        for account in self._accounts:
            account.release(self._charge)
            account.reserve(charge)
        self._charge = charge

    def settle(self, now_ns: int, input_tokens: int, output_tokens: int) -> None:
        """It has ended and cost so much."""
        charge = self._price.charge(input_tokens, output_tokens)
        for account in self._accounts:
            account.release(self._charge)
            account.spend(now_ns, charge)

    def give_back(self) -> None:
        """It never started."""
        for account in self._accounts:
            account.release(self._charge)


class Price(NamedTuple):
    """Micro-units of money for a token."""

    input: float
    output: float

    def charge(self, input_tokens: int, output_tokens: int) -> Charge:
        """For one call, its cost rounded up."""
        cost = math.ceil(input_tokens * self.input + output_tokens * self.output)
        return Charge(input_tokens + output_tokens, cost, 1)


class Budgets:
    """All accounts. Those of runs and of tenants without a contract are forgotten, the longest unused first,
    when there are more than `budgets.remembered`: such a run, or tenant, then begins anew. A tenant that
    makes up run ids can do that to its own runs and to nobody else's; its own budget still holds it."""

    def __init__(self, config: GatewayConfig, wall: WallClock) -> None:
        self._wall = wall
        self._config = config.budgets
        self._prices = {
            model: Price(price.input_per_million, price.output_per_million)
            for model, price in config.prices.items()
        }
        self._dearest = Price(
            max((price.input for price in self._prices.values()), default=0.0),
            max((price.output for price in self._prices.values()), default=0.0),
        )
        """What a model costs that has no price: a name nobody priced must not be a way around a budget."""
        everybody = config.budgets.everybody
        self._everybody = None if everybody is None else Account(everybody, wall)
        self._contracted = {
            name: Account(budget, wall)
            for name, tenant in config.tenants.items()
            if (budget := config.budgets.of(tenant.budget)) is not None
        }
        self._strangers: Remembered[Account] = Remembered(config.budgets.remembered)
        self._runs: Remembered[Account] = Remembered(config.budgets.remembered)
        self._known = frozenset(config.tenants)
        self.configured = (
            self._everybody is not None
            or bool(self._contracted)
            or config.budgets.tenant is not None
            or config.budgets.run is not None
        )

    def room(self, now_ns: int, request: Request, output_tokens: int) -> Room:
        """Whether it fits into every budget, by what it may cost at most."""
        charge = self.price(request).charge(request.input_tokens, output_tokens)
        rooms = [account.room(now_ns, charge) for account in self._accounts(request)]
        if Room.SPENT in rooms:
            return Room.SPENT
        return Room.RESERVED if Room.RESERVED in rooms else Room.ENOUGH

    def why_spent(self, now_ns: int, request: Request, output_tokens: int) -> str:
        """Which budget does not hold it. What others have spent is nobody's business."""
        charge = self.price(request).charge(request.input_tokens, output_tokens)
        for whose, account in (("tenant", self._tenant(request.tenant)), ("run", self._run(request))):
            if account is not None and account.room(now_ns, charge) is Room.SPENT:
                return f"this {whose}'s, {account.state(charge)}"
        return "that of all tenants together"

    def reserve(self, request: Request, output_tokens: int) -> Hold:
        """It is let in."""
        price = self.price(request)
        return Hold(self._accounts(request), price, price.charge(request.input_tokens, output_tokens))

    def price(self, request: Request) -> Price:
        """Its model's, else the dearest there is."""
        return self._prices.get(request.model, self._dearest)

    def _accounts(self, request: Request) -> list[Account]:
        accounts = [self._everybody, self._tenant(request.tenant), self._run(request)]
        return [account for account in accounts if account is not None]

    def _tenant(self, tenant: str) -> Account | None:
        if tenant in self._known:
            return self._contracted.get(tenant)
        return self._kept(self._strangers, self._config.tenant, tenant, "")

    def _run(self, request: Request) -> Account | None:
        if request.run_id is None:
            return None
        return self._kept(self._runs, self._config.run, request.tenant, request.run_id)

    def _kept(
        self, kept: Remembered[Account], config: BudgetConfig | None, tenant: str, name: str
    ) -> Account | None:
        if config is None:
            return None
        account = kept.get(tenant, name)
        if account is None:
            account = Account(config, self._wall)
            kept.put(tenant, name, account)
        return account


def _shown(name: str, value: float) -> str:
    return f"{value / MICRO:g}" if name == "cost" else f"{value:g}"


def _sum(one: Charge, other: Charge) -> Charge:
    return Charge(one[0] + other[0], one[1] + other[1], one[2] + other[2])


def _difference(one: Charge, other: Charge) -> Charge:
    return Charge(one[0] - other[0], one[1] - other[1], one[2] - other[2])


def _exceeds(charge: Charge, most: tuple[float, float, float]) -> bool:
    return charge[0] > most[0] or charge[1] > most[1] or charge[2] > most[2]
