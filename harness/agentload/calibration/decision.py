"""From what a target carries to the factor by which a profile is scaled. Pure."""

from __future__ import annotations

from math import floor
from typing import Any

import msgspec

from agentload.calibration.demand import Demand
from agentload.calibration.knee import Carried, EndedBy
from agentload.errors import InconclusiveError
from agentload.model import Profile
from agentload.profile.scale import Bound, least, most, slots_decide

HEADROOM = 0.8
"""Share of what the target carries that the profile's busiest moments may ask for: what is to be judged is
what it does with a scarce provider, not what it does when it has no processor left."""
MOST = 4.0
"""Never made larger than this unasked."""
BUSY = 0.1
"""Where the load generator waits for a larger share of the time, the target on the same machine does, too."""
FITS = 0.8
"""A limit that lets through no more than what the provider takes, and a quarter, fits it."""
NEARLY = 0.1
"""So much of a slot may be made up for by the headroom."""
ALIKE = (0.9, 1.15)
"""A profile whose factor is so near to 1 is run as it stands."""


class TooSmallError(InconclusiveError):
    """The target carries too little for a profile: nothing was run."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The factor and why."""

    factor: float
    because: str
    carried: Carried
    demand: Demand

    @property
    def advice(self) -> str:
        """What who has set limits in the target should know; empty where there is nothing to do."""
        takes, limit = self.demand.capacity_per_s, self.carried.limit_per_s
        if takes is None or self.factor == 1 or (limit is not None and takes * self.factor > FITS * limit):
            return ""
        has = (
            "if the target has limits of its own"
            if limit is None
            else f"the target lets {limit:,.0f}/s through"
        )
        return (
            f"the provider behind it takes {takes * self.factor:.3g} calls/s then: {has}, "
            f"make them {self.factor:.3g} × what fits the profile as it stands"
        )

    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return {"asked": "auto", **plain}


def decide(profile: Profile, demand: Demand, found: Carried) -> Decision:
    """How to scale the profile. Raises TooSmallError where it cannot be made small enough."""
    wanted, because = _wanted(demand, found)
    low, high = least(profile), most(profile)
    if wanted < low.factor:
        if wanted / HEADROOM < low.factor:
            raise TooSmallError(_too_small(profile, wanted, low, demand, because))
        because += f", and {low.factor:g} is the least: {low.because}"
        wanted = low.factor
    if wanted > min(MOST, high.factor):
        wanted = min(MOST, high.factor)
        because += f", and {_ceiling(profile, wanted)}"
    factor = 1.0 if ALIKE[0] <= wanted <= ALIKE[1] else max(low.factor, _whole_slots(profile, wanted))
    return Decision(factor=factor, because=because, carried=found, demand=demand)


def _wanted(demand: Demand, found: Carried) -> tuple[float, str]:
    by_load = HEADROOM * found.per_s / demand.peak_per_s
    peak = f"{demand.peak_per_s:,.0f} are asked for at most"
    because = f"{_what_carries(found)} {found.per_s:,.0f} requests/s, {peak}"
    if found.limit_per_s is None or demand.capacity_per_s is None:
        return by_load, because
    by_limit = found.limit_per_s / demand.capacity_per_s
    limited = (
        f"it answers {found.limit_per_s:,.0f}/s and refuses the rest, so its limits are for a provider of "
        f"that capacity, and the profile's has {demand.capacity_per_s:,.0f}/s"
    )
    return (by_limit, limited) if by_limit < by_load else (by_load, because)


def _too_small(profile: Profile, wanted: float, low: Bound, demand: Demand, because: str) -> str:
    needed = low.factor * demand.peak_per_s
    return (
        f"--scale auto: {profile.name} would have to be scaled by {wanted:.3g} ({because}), and cannot be by "
        f"less than {low.factor:.3g}: {low.because}; it takes a target that carries {needed:,.0f}/s, or a "
        "profile whose busiest tenant asks for less (--set tenants.NAME.arrivals.rate=…)"
    )


def _what_carries(found: Carried) -> str:
    match found.ended_by:
        case EndedBy.GENERATOR:
            return "this machine can send in time no more than"
        case EndedBy.TOP:
            return "the target carries at least"
        case EndedBy.TARGET if found.waited > BUSY:
            waited = f"the load waited {found.waited:.0%} of the time for a processor"
            return f"on this busy machine ({waited}) the target carries"
        case _:
            return "the target carries"


def _ceiling(profile: Profile, factor: float) -> str:
    if factor < MOST:
        return f"{profile.name} is not scaled by more than {factor:g}: {profile.scale.because}"
    return f"nothing is scaled by more than {MOST:g} unasked"


def _whole_slots(profile: Profile, factor: float) -> float:
    """The next smaller factor that leaves the provider whole slots: half a slot would be another capacity."""
    slots = profile.provider.slots
    if slots is None or not slots_decide(profile):
        return floor(factor * 1_000) / 1_000
    return max(1, floor(factor * slots + NEARLY)) / slots
