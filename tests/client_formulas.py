"""What the tests of clients' formulas share: one request, and chance that is always the middle."""

from __future__ import annotations

from random import Random

from agentload.model import Arrival, Job

ARRIVAL = Arrival(
    seq=1,
    tenant="app",
    service_class="standard",
    phase="load",
    due_ns=0,
    job=Job(input_tokens=24, output_tokens=8, declared_output_tokens=48),
)


class Half(Random):
    """Always the middle."""

    def random(self) -> float:
        return 0.5
