"""What the scheduler costs: CPU per job (submit + poll + complete + poll), by tenants. Prints a table.

    python tests/bench/bench_scheduler.py [--jobs 20000] [--repeats 5]

A script, not a test: absolute figures depend on the machine, ratios on the code. The goal is <= 25 us at
1,000 tenants, and at 100,000 tenants no more than 3 times what it costs at 10.
"""

from __future__ import annotations

import argparse
import gc
from collections import deque
from random import Random
from time import process_time
from typing import NamedTuple

from agentload.scheduler.admission import Admission, Dispatched, Request
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig, ShuffleConfig, UpstreamLimits

STEP_NS = 1_000_000
SLOTS = 64


def gateway(variant: Variant) -> Admission:
    """Three classes over one pool, with provider limits that are checked and never bind."""
    lendable, borrows = (0.5, 0.5) if variant.limits else (1.0, None)
    shares = {"guaranteed": 0.5, "standard": 0.35, "batch": 0.15}
    classes = {
        name: ClassConfig(nominal_share=share, max_queue=10**7, lendable=lendable, borrows=borrows)
        for name, share in shares.items()
    }
    floor = {"min_units": variant.capacity_units * 0.1}
    classes["guaranteed"] = classes["guaranteed"].model_copy(update=floor)
    pool = PoolConfig(
        capacity_units=variant.capacity_units,
        slots=SLOTS,
        tenant_slots=variant.tenant_slots,
        headroom=0.05 if variant.limits else 0.0,
        shuffle_shards=ShuffleConfig() if variant.sharded else None,
        classes=classes,
    )
    upstream = UpstreamLimits(tokens_per_minute=1e12, requests_per_minute=1e12)
    return Admission(GatewayConfig(pools={"p": pool}, upstream=upstream), Random(1))


class Load:
    """A closed loop: every job that ends is followed by another one of some tenant."""

    def __init__(self, admission: Admission, tenants: int, jobs: int, *, deadlines: bool = False) -> None:
        self.admission = admission
        self.running: deque[Request] = deque()
        self.now_ns = 0
        random = Random(1)
        # Made beforehand: what is to be measured is the scheduler and not the load.
        self.requests = iter(
            [
                Request(
                    id=n,
                    tenant=f"t{int(random.random() * tenants)}",
                    service_class=("guaranteed", "standard", "batch")[n % 3],
                    input_tokens=100,
                    text_chars=400,
                    max_output_tokens=100 + n % 400,
                    arrived_ns=0,
                    deadline_ns=10**15 if deadlines else None,
                )
                for n in range(jobs)
            ]
        )

    def submit(self) -> None:
        """One more job of a tenant drawn at random."""
        self.admission.submit(self.now_ns, next(self.requests))
        self.poll()

    def poll(self) -> None:
        """Take up what was dispatched."""
        for event in self.admission.poll(self.now_ns):
            if isinstance(event, Dispatched):
                self.running.append(event.request)

    def turn(self, progress: int) -> None:
        """The oldest call ends (after reporting progress so often), and another job comes."""
        self.now_ns += STEP_NS
        request = self.running.popleft()
        for part in range(progress):
            self.admission.progress(self.now_ns, request.id, part * 128)
        self.admission.complete(self.now_ns, request.id, input_tokens=100, output_tokens=150, ok=True)
        self.poll()
        self.submit()


class Variant(NamedTuple):
    """What is different from the plain run."""

    name: str
    progress: int = 0
    deadlines: bool = False
    tenant_slots: int = SLOTS
    capacity_units: float = 1e6
    limits: bool = False
    """Lending and borrowing within limits, and headroom."""
    sharded: bool = False
    """128 queues for all tenants."""


VARIANTS = (
    Variant("plain"),
    Variant("4 progress", progress=4),
    Variant("deadlines", deadlines=True),
    Variant("cap 1", tenant_slots=1),
    Variant("units bind", capacity_units=20.0),
    Variant("limits", limits=True),
    Variant("shards", sharded=True),
)


def measure(tenants: int, jobs: int, variant: Variant = VARIANTS[0]) -> float:
    """Microseconds of CPU per job, with twice as many jobs waiting as there are tenants (at least 200)."""
    at_start = SLOTS + max(200, 2 * tenants)
    admission = gateway(variant)
    load = Load(admission, tenants, at_start + jobs, deadlines=variant.deadlines)
    for _ in range(at_start):
        load.submit()
    gc.collect()
    gc.disable()
    start = process_time()
    for _ in range(jobs):
        load.turn(variant.progress)
    spent = process_time() - start
    gc.enable()
    return spent / jobs * 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"us of CPU per job, least of {options.repeats} runs (a busy machine only ever adds)")
    print("tenants".rjust(8), *(variant.name.rjust(12) for variant in VARIANTS))
    for tenants in (10, 100, 1_000, 10_000, 100_000):
        row = [
            min(measure(tenants, options.jobs, variant) for _ in range(options.repeats))
            for variant in VARIANTS
        ]
        print(f"{tenants:8}", *(f"{cost:12.1f}" for cost in row), flush=True)


if __name__ == "__main__":
    main()
