"""A twin: the same distribution of promises, drawn from another stream."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission
from agentload.scheduler.config import RetryConfig
from agentload.scheduler.retry_after import RetryAdvice


class TwinOtherJitter(Mutant):
    """No check may rest on which of many equally good numbers a caller was told."""

    cosmetic: ClassVar[bool] = True

    def parts(self) -> Parts:
        return Parts(admission=_OtherDraws)


class _OwnStream(RetryAdvice):
    def __init__(self, config: RetryConfig, random: Random) -> None:
        super().__init__(config, Random(f"another/{random.random()}"))


class _OtherDraws(Admission):
    advice: ClassVar[type[RetryAdvice]] = _OwnStream
