"""What a request asks for: one distribution of job sizes per file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random

from pydantic import BaseModel, ConfigDict

from agentload.model import Job, Spec
from agentload.registry import Seam


class Workload(BaseModel, ABC):
    """The contract. A draw uses only the random source it is given, and always the same number of draws."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def draw(self, random: Random, at_ns: int) -> Job:
        """The next job of a tenant, due at `at_ns` (for workloads that change over time)."""

    def always(self) -> Job | None:
        """The one job that every draw gives, None where jobs differ: a seeded random source is not free."""
        return None


SEAM: Seam[Workload] = Seam(__name__, Workload)


def make(spec: Spec) -> Workload:
    """The workload a profile asked for. Raises UsageError or pydantic.ValidationError."""
    return SEAM.get(spec.kind).model_validate(spec.params)
