"""A gateway in virtual time around the admission scheduler, with books of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from agentload.scheduler.admission import Admission, Dispatched, Event, Expired, Refused, Request
from agentload.scheduler.budget_config import BudgetsConfig, PriceConfig
from agentload.scheduler.config import (
    ClassConfig,
    EstimationConfig,
    GatewayConfig,
    PoolConfig,
    RetryConfig,
    TenantConfig,
    UpstreamLimits,
)
from agentload.scheduler.estimate import Estimator
from agentload.scheduler.fair_queue import FairQueue

NS = 1_000_000_000
MS = 1_000_000
AMPLE = 10**7
"""A bound that is never reached."""


def gateway(
    *,
    slots: int = 16,
    capacity_units: float = 1e6,
    tenant_slots: int | None = None,
    weights: Mapping[str, float] | None = None,
    classes: Mapping[str, ClassConfig] | None = None,
    upstream: UpstreamLimits | None = None,
    retry: RetryConfig | None = None,
    policy: str = "sfq",
    max_tenants: int = 100_000,
    max_reservation_units: float = 1e5,
    safety_multiplier: float = 1.25,
    gather_after_s: float = 1.0,
    lease_s: float = 600.0,
    tenants: Mapping[str, Mapping[str, Any]] | None = None,
    budgets: Mapping[str, Any] | None = None,
    prices: Mapping[str, Any] | None = None,
    **one_class: Any,
) -> GatewayConfig:
    """One pool; `tenants` are contracts, field by field. `one_class` sets fields of its only class,
    `standard`, when no classes are given."""
    if classes is None:
        roomy: dict[str, Any] = {"max_queue": AMPLE, "tenant_max_queue": AMPLE, "max_wait_s": 1e6}
        classes = {"standard": ClassConfig(**(roomy | one_class))}
    first = next(iter(classes))
    pool = PoolConfig(
        capacity_units=capacity_units,
        slots=slots,
        tenant_slots=tenant_slots,
        classes=dict(classes),
        gather_after_s=gather_after_s,
        lease_s=lease_s,
    )
    contracts = {
        name: TenantConfig.model_validate({"class": first, "weight": weight})
        for name, weight in (weights or {}).items()
    }
    contracts |= {
        name: TenantConfig.model_validate({"class": first, **contract})
        for name, contract in (tenants or {}).items()
    }
    return GatewayConfig(
        budgets=BudgetsConfig.model_validate(budgets or {}),
        prices={name: PriceConfig.model_validate(price) for name, price in (prices or {}).items()},
        policy=policy,
        pools={"pool": pool},
        retry=retry or RetryConfig(),
        estimation=EstimationConfig(
            max_reservation_units=max_reservation_units, safety_multiplier=safety_multiplier
        ),
        upstream=upstream or UpstreamLimits(),
        tenants=contracts,
        max_tenants=max_tenants,
    )


OWN_KIND = "own-"
"""How the workflow of a request begins whose kind is its own."""


class _PerKind(Estimator):
    """Learns nothing from requests whose kind is their own: their estimates are meant to be exact."""

    def served(self, now_ns: int, request: Request, output_tokens: int, service_ns: int) -> None:
        if not request.workflow.startswith(OWN_KIND):
            super().served(now_ns, request, output_tokens, service_ns)


class Exact(Admission):
    """What its requests are expected to need is what they say, unless they name a workflow."""

    estimator = _PerKind


class Scene:
    """Submits, lets time pass, ends calls; remembers every event and what each tenant was served."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        policy: type[FairQueue] | None = None,
        admission: type[Admission] = Exact,
        seed: int = 1,
    ) -> None:
        self.admission = admission(config, Random(seed), policy=policy)
        self.now_ns = 0
        self.events: list[Event] = []
        self.running: dict[int, Request] = {}
        """In the order of dispatch."""
        self.reservations: dict[int, Dispatched] = {}
        self.dispatched: list[str] = []
        """Tenants in the order of their dispatches."""
        self.work: defaultdict[str, int] = defaultdict(int)
        """Tokens of calls ended, by tenant, as they really were."""
        self._last_id = 0
        self._real_tokens: dict[int, int] = {}

    # -- acting

    def submit(
        self, tenant: str = "a", tokens: int = 1000, *, real_tokens: int | None = None, **fields: Any
    ) -> Request:
        """A request that declares so many output tokens and will produce `real_tokens` (None: as declared).

        Its kind is its own unless a workflow is given, so that nothing is learnt and the estimate is exact.
        """
        self._last_id += 1
        values: dict[str, Any] = {
            "service_class": "standard",
            "input_tokens": 0,
            "text_chars": 0,
            "max_output_tokens": tokens,
            "arrived_ns": self.now_ns,
            "workflow": f"{OWN_KIND}{self._last_id}",
        }
        request = Request(id=self._last_id, tenant=tenant, **(values | fields))
        self._real_tokens[request.id] = tokens if real_tokens is None else real_tokens
        self.admission.submit(self.now_ns, request)
        self.poll()
        return request

    def poll(self) -> list[Event]:
        """What happened now, which is also remembered."""
        events = self.admission.poll(self.now_ns)
        for event in events:
            if isinstance(event, Dispatched):
                assert event.request.id not in self.running
                self.running[event.request.id] = event.request
                self.reservations[event.request.id] = event
                self.dispatched.append(event.request.tenant)
            elif isinstance(event, Expired):
                self.running.pop(event.request.id, None)
        self.events += events
        return events

    def end(self, request: Request, *, ok: bool = True) -> None:
        """The call ends, having produced its real tokens (none, when not ok)."""
        del self.running[request.id]
        tokens = self._real_tokens[request.id] if ok else 0
        self.work[request.tenant] += tokens
        self.admission.complete(
            self.now_ns, request.id, input_tokens=request.input_tokens, output_tokens=tokens, ok=ok
        )
        self.poll()

    def cancel(self, request: Request) -> None:
        """The caller leaves."""
        self.running.pop(request.id, None)
        self.admission.cancel(self.now_ns, request.id)
        self.poll()

    def pass_time(self, ns: int) -> None:
        """Time passes, with a poll at every wake-up that was asked for."""
        until_ns = self.now_ns + ns
        while True:
            self.poll()
            due_ns = self.admission.next_wakeup_ns()
            if due_ns is None or due_ns > until_ns:
                break
            assert due_ns > self.now_ns, "a wake-up must lie ahead, or the shell spins"
            self.now_ns = due_ns
        self.now_ns = until_ns
        self.poll()

    # -- asking

    def real_tokens(self, request: Request) -> int:
        """What it will produce, whatever it declares."""
        return self._real_tokens[request.id]

    def of(self, kind: type[Event]) -> list[Any]:
        """All events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def refusals(self) -> list[Refused]:
        """All refusals."""
        return self.of(Refused)

    def fate(self, request: Request) -> str:
        """dispatched, waiting, or the reason for which it was refused or expired."""
        for event in reversed(self.events):
            if event.request is request:
                return "dispatched" if isinstance(event, Dispatched) else event.reason.value
        return "waiting"

    @property
    def snapshot(self) -> Any:
        """The scheduler's own numbers."""
        return self.admission.snapshot(self.now_ns)


def serve_backlogged(
    scene: Scene,
    tenants: list[str],
    jobs: int,
    draw: Callable[[str], int],
    *,
    depth: int,
    order: Random | None = None,
    after: Callable[[], None] = lambda: None,
    **fields: Any,
) -> None:
    """Keep `depth` jobs of every tenant waiting or running while so many jobs end, the oldest first or one at
    random. Costs come from `draw`; `after` runs after each job.
    """
    for tenant in tenants:
        for _ in range(depth):
            scene.submit(tenant, draw(tenant), **fields)
    for _ in range(jobs):
        scene.now_ns += MS
        running = list(scene.running.values())
        ended = running[0 if order is None else int(order.random() * len(running))]
        scene.end(ended)
        scene.submit(ended.tenant, draw(ended.tenant), **fields)
        after()
