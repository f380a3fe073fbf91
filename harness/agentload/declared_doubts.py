"""What a target declares that a run of this profile would misread: lines for its user. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentload import checks
from agentload.model import Profile
from agentload.profile import slots_beyond_provider
from agentload.promises import Truth
from agentload.targets import Target
from agentload.targets._declares import Declares, as_declared

_NAMED = 3
"""So many tenants are named; of more there are dots."""


def doubts(profile: Profile, target: Target) -> Iterator[str]:
    """One line each; they stop nothing."""
    if isinstance(target.declares, dict):
        said = Declares.model_validate(target.declares)
        yield from _without_weight(profile, said)
    if not target.provider.external:
        yield from _beyond_provider(profile, target)


def _without_weight(profile: Profile, said: Declares) -> Iterator[str]:
    """Who is not named has weight 1 beside the others, which was perhaps forgotten."""
    weighed = any(one.weight is not None for one in said.tenants.values())
    everybody = said.each_tenant is not None and said.each_tenant.weight is not None
    if not weighed or everybody or not _rests_on_weights(profile):
        return
    unnamed = [t.group for t in profile.tenants if t.name not in said.tenants and t.group not in said.tenants]
    if names := list(dict.fromkeys(unnamed)):
        listed = ", ".join([*names[:_NAMED], *("…" for _ in names[_NAMED : _NAMED + 1])])
        are = "is" if len(names) == 1 else "are"
        yield f"declares.tenants: {listed} of this profile {are} not named: weight 1 is assumed"


def _rests_on_weights(profile: Profile) -> bool:
    asked = [checks.make(spec) for spec in profile.checks]
    return any(Truth.WEIGHTS in check.rests() | check.better() for check in asked)


def _beyond_provider(profile: Profile, target: Target) -> Iterator[str]:
    """What the provider would refuse, though the gateway keeps to what it declares."""
    declared, promises = as_declared(profile, target.to_dict())
    if promises is None:
        beyond = slots_beyond_provider(declared)
    elif Truth.SLOTS in promises.known:
        beyond = slots_beyond_provider(declared, _slots_keys(target.declares))
    else:
        beyond = None
    if beyond is not None:
        yield beyond
    if promises is not None:
        yield from _limits_beyond(declared)


def _slots_keys(written: Any) -> str:
    pools = written.get("pools")
    return ", ".join(f"declares.pools.{name}.slots" for name in pools) if pools else "declares.slots"


def _limits_beyond(declared: Profile) -> Iterator[str]:
    for limit in ("tokens_per_minute", "requests_per_minute"):
        upstream, provider = getattr(declared.gateway.upstream, limit), getattr(declared.provider, limit)
        if upstream is not None and provider is not None and upstream > provider:
            amiss = f"declares.upstream.{limit}: {upstream:,.0f} is more than the provider's {provider:,.0f}"
            yield f"{amiss}, so the provider will refuse calls with 429: lower it, or raise provider.{limit}"
