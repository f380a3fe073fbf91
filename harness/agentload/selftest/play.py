"""Plays the runs, in two processes, and hands back what the checks said."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

import msgspec

from agentload import judge, simulate
from agentload.drivers.simulated.invariants import InvariantError
from agentload.errors import InconclusiveError
from agentload.garbage import collect_seldom
from agentload.interrupts import held_back
from agentload.model import Severity, Status, Verdict
from agentload.selftest.cases import REFERENCE, Case, load

PROCESSES = 2


class Judged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one check of a run said; a profile may name a check twice."""

    check: str
    status: Status
    severity: Severity = Severity.MUST
    measured: float | None = None
    bound: float | None = None
    unit: str = ""
    censored: bool = False
    because: str = ""
    """Of those that did not pass."""

    @classmethod
    def of(cls, verdict: Verdict) -> Judged:
        """From a verdict."""
        return cls(
            check=verdict.check,
            status=verdict.status,
            severity=verdict.severity,
            measured=verdict.measured,
            bound=verdict.bound,
            unit=verdict.unit,
            censored=verdict.censored,
            because="" if verdict.status is Status.PASSED else verdict.because,
        )

    @property
    def value(self) -> float | None:
        """What was measured, infinity included."""
        return float("inf") if self.censored else self.measured


class Played(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of selftest.jsonl."""

    subject: str
    scene: str
    seed: int
    quick: bool
    checks: list[Judged] = msgspec.field(default_factory=list)
    """In the profile's order."""
    digest: str = ""
    cpu_s: float = 0.0
    error: str = ""
    """Why it came to nothing: a mutant must behave badly, not crash."""


def play(case: Case) -> Played:
    """Simulate and judge one case."""
    began_s = time.process_time()
    described = {"subject": case.subject, "scene": case.scene.name, "seed": case.seed, "quick": case.quick}
    try:
        mutant = None if case.subject == REFERENCE else case.subject
        run = simulate.simulate(load(case.scene, case.quick), case.seed, parts=simulate.parts_of(mutant))
        verdicts = judge.judge(run)
    except InvariantError as error:
        return msgspec.convert({**described, "error": f"violated an invariant: {error}"}, Played)
    except Exception as error:  # of a plug-in, say: the other runs go on
        return msgspec.convert({**described, "error": f"{type(error).__name__}: {error}"}, Played)
    return Played(
        subject=case.subject,
        scene=case.scene.name,
        seed=case.seed,
        quick=case.quick,
        checks=[Judged.of(verdict) for verdict in verdicts],
        digest=run.meta["digest"],
        cpu_s=round(time.process_time() - began_s, 3),
    )


class Company:
    """The processes that play. `stop`, from a signal handler, say, ends it after the runs under way."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = cases
        self.stopped = False

    def played(self) -> Iterator[Played]:
        """Every result as it comes; ends early once `stop` was called."""
        processes = min(PROCESSES, os.cpu_count() or 1, max(1, len(self.cases)))
        # Spawned, not forked: a fork would copy whatever threads and handlers the parent has by now.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, context, initializer=_begin) as pool:
            with held_back():  # the first of these starts the processes
                running: list[Future[Played]] = [pool.submit(play, case) for case in self.cases]
            try:
                for future in as_completed(running):
                    if self.stopped:
                        return
                    yield _result(future)
            finally:  # whatever ends it: nothing that has not begun is begun
                pool.shutdown(wait=True, cancel_futures=True)

    def stop(self) -> None:
        """End it soon."""
        self.stopped = True


def _result(future: Future[Played]) -> Played:
    try:
        return future.result()
    except BrokenProcessPool:
        raise InconclusiveError(
            "selftest: a process that played a run died (out of memory?); what was done is in selftest.jsonl"
        ) from None


def _begin() -> None:
    """A process that simulates begins: interrupts are the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_seldom()


Watcher = Callable[[Played], None]
"""Hears every result as it comes."""
