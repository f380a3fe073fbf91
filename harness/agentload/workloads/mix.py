"""Several kinds of requests from one tenant."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, model_validator

from agentload.errors import UsageError
from agentload.model import Job, Noun, Spec
from agentload.workloads import Workload, make


def _with_workload(written: Any) -> Any:
    """`{share: 0.4, kind: chat, …}` as a profile has it: all but the share is the part's workload's."""
    if not isinstance(written, dict) or "workload" in written:
        return cast("Any", written)
    given = cast("dict[str, Any]", written)
    params = {key: value for key, value in given.items() if key not in ("share", "kind")}
    own = {"share": given["share"]} if "share" in given else {}
    return {**own, "workload": {"kind": given.get("kind", ""), "params": params}}


class Part(Noun):
    """One kind of request."""

    share: float = Field(gt=0, le=1)
    """Of the tenant's requests; all shares add up to 1."""
    workload: Spec


class Mix(Workload):
    """`{kind: mix, parts: [{share: 0.4, kind: chat, workflow: qa, …}, {share: 0.6, kind: pareto, …}]}`.

    Which part a request is of is drawn; everything else, `workflow` included, is the part's.
    """

    parts: tuple[Annotated[Part, BeforeValidator(_with_workload)], ...] = Field(min_length=2)

    _workloads: tuple[Workload, ...] = PrivateAttr(default=())
    _reached: list[float] = PrivateAttr(default_factory=list[float])
    """The shares added up."""

    @model_validator(mode="after")
    def _make(self) -> Mix:
        self._workloads = tuple(_made(place, part.workload) for place, part in enumerate(self.parts))
        self._reached = list(accumulate(part.share for part in self.parts))
        if abs(self._reached[-1] - 1) > 1e-6:
            raise ValueError(f"the shares must add up to 1, got {self._reached[-1]:g}")
        return self

    def draw(self, random: Random, at_ns: int) -> Job:
        """Two draws: the part, and the seed of its own draws, of which parts may take different numbers."""
        drawn = random.random() * self._reached[-1]
        place = next(place for place, upper in enumerate(self._reached) if drawn <= upper)
        return self._workloads[place].draw(Random(int(random.random() * 2**53)), at_ns)


def _made(place: int, spec: Spec) -> Workload:
    """Raises ValueError, with the first thing that is wrong and where."""
    try:
        return make(spec)
    except UsageError as error:
        raise ValueError(f"parts[{place}]: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ValueError(f"parts[{place}].{where}: {first['msg']}") from None
