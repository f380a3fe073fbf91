"""Is a budget kept, whoever retries and whoever races for the last of it?"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Any, Literal, NamedTuple, Self

import msgspec
from pydantic import Field

from agentload.checks import Check, TenantName
from agentload.evidence.allowance import admitted
from agentload.evidence.history import tenant_names
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, evidence_of, undecided
from agentload.extensive import Growth, grown
from agentload.model import Evidence, RequestRecord, Run, Status, Verdict
from agentload.promises import Truth
from agentload.scheduler.budget_config import Per

PAYMENT_REQUIRED = 402
INVITING = frozenset({429, 503})
EVERYBODY = "everybody"
SETTLED_NS = 250_000_000
"""So long after a call has left the provider, the gateway must know what it cost."""


class Budget(Check):
    """Passes when no more is spent than budget and one job, and who has spent it is not told to come back.

    Spent is what the provider's ledger says, failed and abandoned calls included, over the whole run: retries
    and steps of a run add up. A budget that is checked when a request comes and charged when it ends lets all
    through that race for the last of it; one that refuses with 429 invites the loop that it should end. A
    refusal with 402 while much of the budget is left fails as well.
    """

    rests_on = frozenset({Truth.BUDGETS})
    needs_ledger = True
    needs_attribution = True
    zero_tolerance = True

    tokens: int | None = Field(default=None, gt=0)
    """Input and output tokens. By default, and so for calls, what the gateway was told: `budgets`, or
    `tenants.T.budget`."""
    calls: int | None = Field(default=None, gt=0)
    of: Literal["tenant", "run", "everybody"] = "tenant"
    """Whose budget: each tenant's, each run's (the steps with one X-Run-Id), or all tenants' together."""
    tenants: tuple[TenantName, ...] = ()
    """Tenants or groups that have it; by default all."""
    min_spent: float = Field(default=0.8, ge=0, le=1)
    """Share of the budget that must be spent before anything is refused for its sake, 0..1."""

    def scaled(self, by: Growth) -> Self:
        """What is spent in a whole run grows with both. A run's budget is one user's, who does as ever."""
        if self.of == "run":
            return self
        more = by.load * by.time
        spent = {"tokens": grown(self.tokens, more), "calls": grown(self.calls, more)}
        return self.model_copy(update=spent)

    def judge(self, run: Run) -> Verdict:
        """Each account's spending, and what was said once there was nothing left."""
        accounts = self._accounts(run)
        if isinstance(accounts, str):
            return undecided(self, accounts)
        n = sum(len(one.calls) for one in accounts)
        if not enough(n, 50):
            return undecided(self, f"the provider saw only {n:,} calls of these tenants: 20 are needed", n=n)
        details: dict[str, Any] = {"accounts": {one.name: one.details() for one in accounts}}
        faults = [fault for one in accounts if (fault := one.fault(self.min_spent)) is not None]
        if faults:
            return self._failed(faults, n, details)
        reached = [one for one in accounts if one.reached]
        worst = max(accounts, key=lambda one: one.spent)
        if not reached:
            because = (
                f"nobody came to the end of the budget ({worst.name} to {worst.spent:,} of {worst.limit:,})"
            )
            return undecided(self, because, n=n, details=details)
        refused = sum(len(one.paid_off) for one in accounts)
        return conclude(
            self,
            Status.PASSED,
            f"{len(reached):,} of {len(accounts):,} came to the end of {worst.limit:,} {worst.unit}; the "
            f"most that was spent is {worst.spent:,} ({worst.name}), and {refused:,} refusals "
            "promised nothing",
            measured=worst.spent,
            bound=worst.limit + worst.largest,
            unit=worst.unit,
            n=n,
            evidence=[Evidence(note=f"{worst.name}: {worst.spent:,} of {worst.limit:,} {worst.unit}")],
            details=details,
        )

    def _failed(self, faults: list[_Fault], n: int, details: dict[str, Any]) -> Verdict:
        """By the gravest fault: what was overspent, then who was invited, then what was withheld."""
        gravest = max(faults, key=lambda fault: (-_ORDER.index(fault.kind), fault.measured))
        return conclude(
            self,
            Status.FAILED,
            gravest.evidence.note,
            measured=gravest.measured,
            bound=gravest.bound,
            unit=gravest.unit if gravest.kind != "invited" else "invitations",
            n=n,
            evidence=[fault.evidence for fault in faults],
            details=details,
        )

    def rests(self) -> frozenset[Truth]:
        """On nothing where the budget is said here."""
        return frozenset() if self.tokens or self.calls else self.rests_on

    def _accounts(self, run: Run) -> list[_Account] | str:
        """Everybody's account, or why there is nothing to judge."""
        accounts: dict[str, _Account] = {}
        owner: dict[int, str] = {}
        budgets = {name: self._budget(run, name) for name in tenant_names(run, self.tenants)}
        for record in run.records:
            budget = budgets.get(record.tenant)
            name = self._name(record) if isinstance(budget, _Limit) else None
            if name is not None and isinstance(budget, _Limit):
                owner[record.seq] = name
                accounts.setdefault(name, _Account(name, *budget)).records.append(record)
        taken = {call.call for call in admitted(run.ledger)}
        for call in run.ledger:
            account = accounts[owner[call.seq]] if call.seq in owner else None
            if account is not None and (not account.by_tokens or call.call in taken):
                cost = call.input_tokens + call.output_tokens if account.by_tokens else 1
                account.calls.append((call.ended_ns or call.arrived_ns, cost))
        reasons = [one for one in budgets.values() if isinstance(one, str)]
        return list(accounts.values()) if accounts or not reasons else reasons[0]

    def _budget(self, run: Run, tenant: str) -> _Limit | str:
        """A tenant's limit, or why it has none that can be counted from here."""
        if self.tokens or self.calls:
            return _Limit(self.tokens or self.calls or 0, self.tokens is not None)
        gateway = run.profile.gateway
        own = gateway.tenants[tenant].budget if tenant in gateway.tenants else None
        told = {
            "tenant": gateway.budgets.of(own),
            "run": gateway.budgets.run,
            "everybody": gateway.budgets.everybody,
        }[self.of]
        if told is None:
            return "say the budget: `budget: {tokens: 20000, of: run}`"
        if told.per is not Per.TOTAL:
            return f"a budget per {told.per} may begin anew within the run: judged are those of `per: total`"
        if told.cost is not None or (told.tokens is not None and told.calls is not None):
            return "a budget of several things, or of money, cannot be counted from here: say tokens or calls"
        return _Limit(told.tokens or told.calls or 0, told.tokens is not None)

    def _name(self, record: RequestRecord) -> str | None:
        if self.of == "run":
            return record.run and f"{record.tenant}: {record.run}"
        return record.tenant if self.of == "tenant" else EVERYBODY

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Thirty calls of 40 tokens against a budget of 1,000, all answered."""
        return cls(tokens=1_000), _run(answered=30)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Thirty calls that stay far below it."""
        return cls(tokens=10_000), _run(answered=30)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Twenty-five are answered, and then everything is refused with 402."""
        return cls(tokens=1_000), _run(answered=25, refused=10)


_ORDER = ("overspent", "invited", "withheld")


class _Fault(NamedTuple):
    kind: str
    evidence: Evidence
    measured: float
    bound: float
    unit: str


class _Limit(NamedTuple):
    limit: int
    by_tokens: bool


class _Account(msgspec.Struct):
    name: str
    limit: int
    by_tokens: bool
    records: list[RequestRecord] = []
    calls: list[tuple[int, int]] = []
    """(when it ended, what it cost), in order of arrival."""

    @property
    def unit(self) -> str:
        return "tokens" if self.by_tokens else "calls"

    @property
    def spent(self) -> int:
        return sum(cost for _, cost in self.calls)

    @property
    def largest(self) -> int:
        """One job."""
        return max((cost for _, cost in self.calls), default=0)

    @property
    def paid_off(self) -> list[RequestRecord]:
        """Refusals for the budget's sake."""
        return [record for record in self.records if record.status == PAYMENT_REQUIRED]

    @property
    def reached(self) -> bool:
        return bool(self.paid_off) or self.spent > self.limit

    def fault(self, min_spent: float) -> _Fault | None:
        """What is wrong, the gravest first."""
        if self.spent > self.limit + self.largest:
            note = f"{self.name} spent {self.spent:,} of {self.limit:,}; one job is {self.largest:,} at most"
            return _Fault("overspent", Evidence(note=note), self.spent, self.limit + self.largest, self.unit)
        inviting = self._inviting()
        if inviting:
            told = f"{inviting[0].status}, Retry-After {inviting[0].retry_after}"
            note = f"{self.name} had spent it and was invited back {len(inviting):,} times (such as: {told})"
            return _Fault("invited", evidence_of(inviting[0], note), len(inviting), 0, self.unit)
        least = min_spent * self.limit
        if self.paid_off and self.spent < least:
            note = f"{self.name} was refused with 402 at {self.spent:,} of {self.limit:,} in the end"
            return _Fault("withheld", evidence_of(self.paid_off[0], note), self.spent, least, self.unit)
        return None

    def _inviting(self) -> list[RequestRecord]:
        """Refusals that ask it to come back although what is left does not hold what it declares, or that say
        402 and do so."""
        ended_ns, totals = self._spending()
        return [
            record
            for record in self.records
            if (record.status == PAYMENT_REQUIRED and record.retry_after is not None)
            or (
                record.status in INVITING
                and totals[bisect_right(ended_ns, record.sent_ns - SETTLED_NS)] + self._needs(record)
                > self.limit
            )
        ]

    def _needs(self, record: RequestRecord) -> int:
        """What a request may cost by what it declares, where that is more than one job has cost."""
        if not self.by_tokens:
            return 1
        declared = record.declared_output_tokens
        return self.largest if declared is None else max(self.largest, record.input_tokens + declared)

    def _spending(self) -> tuple[list[int], list[int]]:
        """When calls ended, and what had been spent before the first of them, after it, and so on."""
        calls = sorted(self.calls)
        return [ended_ns for ended_ns, _ in calls], [0, *accumulate(cost for _, cost in calls)]

    def details(self) -> dict[str, Any]:
        return {"spent": self.spent, "calls": len(self.calls), "refused_402": len(self.paid_off)}


def _run(*, answered: int, refused: int = 0) -> Run:
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(answered):
        build.answered("a", 100 * k)
    for k in range(refused):
        build.refused("a", 100 * (answered + k) + 60, status=402, retry_after=None)
    return build.run()
