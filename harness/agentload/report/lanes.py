"""What a chart shows side by side: tenants while they are few, else groups, else the biggest and the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from agentload.model import Profile, RequestRecord

MOST_LANES = 8
"""Curves that an eye can still tell apart."""
OTHERS = "others"

Lanes = Mapping[str, list[str]]
"""Lane → its tenants, in the profile's order."""


def lanes_of(profile: Profile, records: Iterable[RequestRecord]) -> Lanes:
    """At most eight lanes that hold every tenant of the profile between them, each tenant once."""
    if len(profile.tenants) <= MOST_LANES:
        return {tenant.name: [tenant.name] for tenant in profile.tenants}
    groups: dict[str, list[str]] = {}
    for tenant in profile.tenants:
        groups.setdefault(tenant.group, []).append(tenant.name)
    return groups if len(groups) <= MOST_LANES else _merged(groups, records)


def lane_by_tenant(lanes: Lanes) -> dict[str, str]:
    """The other way round."""
    return {tenant: lane for lane, tenants in lanes.items() for tenant in tenants}


def _merged(groups: dict[str, list[str]], records: Iterable[RequestRecord]) -> Lanes:
    group_of = lane_by_tenant(groups)
    attempts = Counter(group_of.get(record.tenant, "") for record in records)
    biggest = set(sorted(groups, key=lambda group: -attempts[group])[: MOST_LANES - 1])
    kept = {group: tenants for group, tenants in groups.items() if group in biggest}
    rest = [tenant for group, tenants in groups.items() if group not in biggest for tenant in tenants]
    name = OTHERS
    while name in kept:
        name += "'"
    return kept | {name: rest}
