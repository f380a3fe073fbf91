"""What must hold: one check per file, each with its own counterexample.

A check is a frozen set of parameters with one decision, `judge`. It never crashes a run (the judge turns an
exception into inconclusive), and it carries the smallest run that it fails, so that no check exists that
cannot fail: `agentload explain CHECK` prints it and a test judges it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict

from agentload.extensive import Growth, grown
from agentload.model import Run, Severity, Spec, Verdict
from agentload.promises import Promises, Truth, is_not_asked
from agentload.registry import Seam


class WithoutLedger(StrEnum):
    """What a check that rests on our provider's ledger may still say in a run that has none."""

    NOTHING = "nothing"
    FAILURES = "failures"
    """What it fails then, it fails with a ledger, too; a pass would be premature."""
    PART = "part"
    """It judges what clients saw, and says what it has left out."""


class TenantRef:
    """Marks a parameter that names a tenant or a group of the profile (checked when the profile is read)."""


class PhaseRef:
    """Marks a parameter that names a phase of the profile (checked when the profile is read)."""


TenantName = Annotated[str, TenantRef()]
PhaseName = Annotated[str, PhaseRef()]


class Need(StrEnum):
    """What a run must show besides requests, answers and samples: a doctor looks for it before the load."""

    REFUSALS = "something that is refused"
    RETRY_AFTER = "refusals that carry Retry-After"
    STREAMS = "answers that are streamed"
    FIRST_TOKENS = "streams that come piece by piece"
    JOBS = "durable jobs"
    JOB_CALLS = "calls at our provider, of which it is known for which job they are"
    ETAS = "jobs whose clients are told an ETA"
    DEPARTURES = "clients that can say that they leave"
    QUEUE = "work that waits in the gateway"
    GATEWAY_FAULTS = "a gateway that may be killed"
    HEALTH_PAGE = "a health page that the target file names"
    ACKNOWLEDGEMENT = "answers that say whose they are, as only our provider's do"


class Check(BaseModel, ABC):
    """The contract. The docstring's first line says when the check passes; the rest says why it matters."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    needs_ledger: ClassVar[bool] = False
    """True when the check rests on our provider's ledger: without it, the judge answers inconclusive."""
    needs_attribution: ClassVar[bool] = False
    """True when it must know whose each provider call is: over 1 % unattributed makes it inconclusive."""
    needs_samples: ClassVar[tuple[str, ...]] = ()
    """Values of the gateway's samples without which nothing follows. A target's own are named in its file."""
    only_where_said: ClassVar[bool] = False
    """True when it is asked only of gateways that are said to show all of `needs_samples`, and to promise
    something of what it rests on: of others the verdict, inconclusive, is shown and fails no run."""
    without_ledger: ClassVar[WithoutLedger] = WithoutLedger.NOTHING
    """What the judge believes of it where somebody else's provider stands behind the gateway."""
    zero_tolerance: ClassVar[bool] = False
    """True when a failure stands even in a run that is void for measuring (a late generator, a stall)."""

    stalls_only_worsen: ClassVar[bool] = False
    """True when a machine that stood still can only make things look worse than they are (a queue longer, an
    answer later): a pass then stands, and only a failure is judged again without those moments."""

    extensive: ClassVar[tuple[str, ...]] = ()
    """Parameters that grow with the load (requests held, a limit), for `--scale`. Shares, latencies and the
    sizes of single requests stay as they are."""
    extensive_slots: ClassVar[tuple[str, ...]] = ()
    """Those that are calls at once."""

    rests_on: ClassVar[frozenset[Truth]] = frozenset()
    """What the gateway must be known to have been told. Where a target declares nothing of any of these, the
    judge answers inconclusive; where it declares some of them, the check judges those, and says so."""
    better_with: ClassVar[frozenset[Truth]] = frozenset()
    """What it judges more with. Without, it judges what it can, and the judge says so."""
    needs: ClassVar[frozenset[Need]] = frozenset()
    """What a target must have to be judged at all, as a doctor can see it."""

    severity: Severity = Severity.MUST

    def rests(self) -> frozenset[Truth]:
        """`rests_on`, without what this check has been told by its own parameters."""
        return self.rests_on

    def better(self) -> frozenset[Truth]:
        """`better_with`, without what this check has been told by its own parameters."""
        return self.better_with

    def is_asked(self, shows: Collection[str] | None, promises: Promises | None) -> bool:
        """Whether a gateway that shows these values (None: all) and promises so much (None: all that the
        profile says) is asked for this, so that a run may fail for it, or end undecided."""
        rests = self.rests()
        if promises is not None and is_not_asked(rests, promises):
            return False
        if not self.only_where_said:
            return True
        is_shown = shows is None or set(self.needs_samples) <= set(shows)
        return is_shown and (promises is None or not rests or bool(rests & promises.known))

    def scaled(self, by: Growth) -> Self:
        """The same question about a profile that is scaled so."""
        new = {name: grown(getattr(self, name), by.load) for name in self.extensive}
        new |= {name: grown(getattr(self, name), by.slots) for name in self.extensive_slots}
        return self.model_copy(update=new)

    @abstractmethod
    def judge(self, run: Run) -> Verdict:
        """Decide. Too few samples is inconclusive, never passed. `Verdict.severity` is set by the judge."""

    @classmethod
    @abstractmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """The smallest run that this check fails, with the parameters used."""

    @classmethod
    @abstractmethod
    def too_few(cls) -> tuple[Check, Run]:
        """A run with too little in it to decide: must be inconclusive."""

    @classmethod
    @abstractmethod
    def example(cls) -> tuple[Check, Run]:
        """A small run that this check passes."""


SEAM: Seam[Check] = Seam(__name__, Check)


def make(spec: Spec) -> Check:
    """The check a profile asked for. Raises UsageError or pydantic.ValidationError."""
    return SEAM.get(spec.kind).model_validate(spec.params)


def needs_of(specs: Iterable[Spec]) -> frozenset[Need]:
    """What the checks of a profile need, all together. Raises UsageError for one that there is not."""
    return frozenset(need for spec in specs for need in SEAM.get(spec.kind).needs)


def references(check: type[Check]) -> Iterator[tuple[str, type[TenantRef] | type[PhaseRef]]]:
    """(field, TenantRef | PhaseRef) for every parameter that names a tenant or a phase, lists included."""
    for name, field in check.model_fields.items():
        seen = [*field.metadata, *_nested_metadata(field.annotation)]
        for kind in (TenantRef, PhaseRef):
            if any(isinstance(item, kind) for item in seen):
                yield name, kind


def _nested_metadata(annotation: object) -> Iterator[object]:
    yield from getattr(annotation, "__metadata__", ())
    for argument in getattr(annotation, "__args__", ()):
        yield from _nested_metadata(argument)
