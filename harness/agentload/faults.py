"""The faults of a profile on the run's clock: for drivers that bring them about, and for judges. Pure.

for kind, start_ns, end_ns in fault_windows(profile): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from agentload import gateway_faults
from agentload.gateway_faults import Act
from agentload.model import NS, Fault, Profile
from fake_provider import faults as provider_side


class FaultWindow(NamedTuple):
    """When a fault is there: from `start_ns` (inclusive) to `end_ns` (exclusive), since the run began."""

    kind: str
    start_ns: int
    end_ns: int


class GatewayAct(NamedTuple):
    """Something to be done to the bundled gateway."""

    at_ns: int
    act: Act
    kind: str
    """The fault's."""


def kinds() -> dict[str, str]:
    """All faults: name → whose they are, `provider` or `gateway`."""
    of_provider = dict.fromkeys(provider_side.kinds(), "provider")
    return dict(sorted({**of_provider, **dict.fromkeys(gateway_faults.SEAM.names(), "gateway")}.items()))


def is_gateways(kind: str) -> bool:
    """Whether a fault of that kind happens to the gateway's process."""
    return kind in gateway_faults.SEAM.names()


def ends_a_gateway(kind: str) -> bool:
    """Whether it kills the process, which must be started again."""
    return is_gateways(kind) and gateway_faults.SEAM.get(kind).begins is Act.KILL


def window(profile: Profile, fault: Fault) -> FaultWindow:
    """When one of the profile's faults is there."""
    if fault.phase is not None:
        return FaultWindow(fault.kind, *profile.phase_window_ns(fault.phase))
    start_ns = round((fault.at_s or 0.0) * NS)
    length_ns = profile.duration_ns - start_ns if fault.seconds is None else round(fault.seconds * NS)
    return FaultWindow(fault.kind, start_ns, start_ns + length_ns)


def fault_windows(profile: Profile) -> list[FaultWindow]:
    """All of them, in order of their start."""
    return sorted((window(profile, fault) for fault in profile.faults), key=lambda one: one[1:])


def gateway_acts(profile: Profile) -> list[GatewayAct]:
    """What is to be done to the gateway, in order; at one instant, what heals comes first.

    Raises UsageError for a kind that does not exist.
    """
    acts: list[GatewayAct] = []
    for fault in profile.faults:
        if is_gateways(fault.kind):
            kind, start_ns, end_ns = window(profile, fault)
            cls = gateway_faults.SEAM.get(kind)
            acts += [GatewayAct(start_ns, cls.begins, kind), GatewayAct(end_ns, cls.ends, kind)]
    return sorted(acts, key=lambda one: (one.at_ns, one.act in (Act.KILL, Act.PAUSE)))


def provider_requests(profile: Profile, t0_ns: int = 0) -> list[dict[str, Any]]:
    """The provider's faults as its `/_fake/faults` takes them; its clock shows `t0_ns` as the run begins."""
    return [
        {
            "kind": fault.kind,
            "start_ns": t0_ns + when.start_ns,
            "end_ns": t0_ns + when.end_ns,
            "tenant": tenant,
            "params": fault.params,
        }
        for fault in profile.faults
        if not is_gateways(fault.kind)
        for when in (window(profile, fault),)
        for tenant in _places(profile, fault)
    ]


def provider_faults(profile: Profile) -> list[provider_side.Fault]:
    """The same as the provider's own objects, for a clock that shows 0 as the run begins."""
    return [_made(**request) for request in provider_requests(profile)]


def _made(kind: str, params: dict[str, Any], **times: Any) -> provider_side.Fault:
    return provider_side.of_kind(kind).model_validate({**params, **times})


def _places(profile: Profile, fault: Fault) -> Iterator[int | None]:
    """The numbers in markers of the tenants that it hits; None stands for everybody."""
    if fault.tenant is None:
        yield None
        return
    for place, tenant in enumerate(profile.tenants):
        if fault.tenant in (tenant.name, tenant.group):
            yield place
