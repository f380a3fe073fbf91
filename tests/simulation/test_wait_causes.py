"""Why did it wait? Scenes in which one thing is wrong, each beside its opposite, in which that is not."""

from __future__ import annotations

from collections import Counter

import pytest

from agentload import profile
from agentload.drivers.simulated.recording import Recording
from agentload.gateway.metrics import unaccounted
from agentload.plan import draw

HEAD = """\
name: {name}
about: One thing is wrong.
phases:
  - {{name: calm, seconds: 8}}
  - {{name: trouble, seconds: 10}}
  - {{name: after, seconds: 6}}
checks: [status-codes]
"""
SMALL = "{kind: chat, input_tokens: 24, max_tokens: 48, output_tokens: {min: 8, max: 24}}"
LATENCY = "latency: {first_token_ms: 100, first_token_cv: 0.4, inter_token_ms: 10}"
EQUAL = f"""\
  - {{name: a, arrivals: {{kind: poisson, rate: 14}}, workload: {SMALL}}}
  - {{name: b, arrivals: {{kind: poisson, rate: 14}}, workload: {SMALL}}}
  - {{name: c, arrivals: {{kind: poisson, rate: 14}}, workload: {SMALL}}}
"""


def scene(name: str, *, provider: str, gateway: str, tenants: str, faults: str = "") -> str:
    text = HEAD.format(name=name) + f"provider: {{{provider}, {LATENCY}}}\n"
    text += f"gateway: {{pools: {{shared: {gateway}}}}}\ntenants:\n{tenants}"
    return text + (f"faults:\n{faults}" if faults else "")


def pool(*, slots: int = 16, tenant_slots: int = 16, queue: int = 128) -> str:
    return f"{{slots: {slots}, tenant_slots: {tenant_slots}, classes: {{standard: {{max_queue: {queue}}}}}}}"


MODEL_SLOW = scene(
    "model-slow",
    provider="slots: 16",
    gateway=pool(),
    tenants=EQUAL,
    faults="  - {kind: slow, phase: trouble, factor: 4}\n",
)
NORMAL_SPEED = scene(
    "more-than-fits", provider="slots: 16", gateway=pool(slots=4, tenant_slots=4), tenants=EQUAL
)
FLOOD = scene(
    "tenant-over-quota",
    provider="slots: 16",
    gateway=pool(),
    tenants=EQUAL.replace("rate: 14", "rate: 5")
    + f"  - {{name: flood, during: [trouble], arrivals: {{kind: poisson, rate: 120}}, workload: {SMALL}}}\n",
)
SPREAD = scene(
    "spread",
    provider="slots: 16",
    gateway=pool(),
    tenants=f"  - {{name: t, count: 4, arrivals: {{kind: poisson, rate: 30}}, workload: {SMALL}}}\n",
)
CLASSES = (
    "{slots: 16, tenant_slots: 16, classes: {gold: {nominal_share: 0.75, max_queue: 64},"
    " batch: {nominal_share: 0.25, max_queue: 256}}}"
)
LONG = "{kind: fixed, input_tokens: 24, max_tokens: 400, output_tokens: 300}"
BATCH = f"  - {{name: batch, class: batch, users: 48, workload: {LONG}, client: obeys}}\n"
GOLD = (
    "  - {name: gold, count: 3, class: gold, during: [trouble], arrivals: {kind: poisson, rate: 8},"
    f" workload: {SMALL}}}\n"
)
BORROWED = scene("class-borrowed", provider="slots: 16", gateway=CLASSES, tenants=BATCH + GOLD)
NOT_LENT = scene(
    "not-lent",
    provider="slots: 16",
    gateway=CLASSES.replace("nominal_share: 0.75", "nominal_share: 0.75, lendable: false"),
    tenants=BATCH + GOLD,
)
HAMMERS = EQUAL.replace("}}\n", "}, client: {kind: hammer, max_attempts: 12, timeout_s: 2}}\n").replace(
    "rate: 14", "rate: 17"
)
STORM = scene(
    "retry-storm",
    provider="slots: 16, overflow: queue",
    gateway=pool(queue=256),
    tenants=HAMMERS,
    faults="  - {kind: slots-cut, phase: trouble, to: 3}\n",
)
FRESH = scene(
    "fresh-work",
    provider="slots: 16",
    gateway=pool(queue=256),
    tenants=EQUAL.replace("rate: 14", "rate: 60"),
)
TOKENS = scene(
    "provider-limit",
    provider="slots: 64, tokens_per_minute: 86400, bucket_s: 2",
    gateway=pool(slots=64, tenant_slots=64),
    tenants=EQUAL,
)


def causes(text: str, seed: int = 1, *, tenant: str = "", phase: str = "trouble") -> Counter[str]:
    """What clients were told in one phase, some of them or all, as the gateway's own books have it, too."""
    read = profile.parse(text, "scene.yaml")
    recording = Recording(read, draw(read, seed))
    run = recording.record()
    core = recording.world.gateway.core
    assert unaccounted(core.admission.snapshot(recording.world.kernel.now_ns), core.books) == 0
    told = Counter(record.wait_cause for record in run.records if record.wait_cause is not None)
    booked: Counter[str] = Counter()
    for (_, cause), count in core.books.causes.items():
        booked[cause] += round(count)
    assert all(booked[cause] >= told[cause] for cause in told), "told, but not in the books"
    assert sum(booked.values()) - sum(told.values()) <= sum(r.status == 0 for r in run.records)
    return Counter(
        record.wait_cause
        for record in run.records
        if record.wait_cause is not None and record.phase == phase and record.tenant.startswith(tenant)
    )


def share(told: Counter[str], cause: str) -> float:
    """Of the slow and refused ones, those that were told this cause."""
    assert sum(told.values()) >= 20, f"too few to say anything: {told}"
    return told[cause] / sum(told.values())


WRONG = {
    "model_slow": (MODEL_SLOW, ""),
    "tenant_over_quota": (FLOOD, "flood"),
    "class_borrowed": (BORROWED, "gold"),
    "retry_storm": (STORM, ""),
    "provider_limit": (TOKENS, ""),
}
OPPOSITES = {
    "model_slow": (NORMAL_SPEED, ""),
    "tenant_over_quota": (SPREAD, ""),
    "class_borrowed": (NOT_LENT, ""),
    "retry_storm": (FRESH, ""),
    "provider_limit": (NORMAL_SPEED, ""),
}


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("cause", WRONG)
def test_what_is_wrong_is_named(cause: str, seed: int) -> None:
    text, tenant = WRONG[cause]
    told = causes(text, seed, tenant=tenant)
    assert share(told, cause) >= 0.85, told


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("cause", OPPOSITES)
def test_what_is_not_wrong_is_not_named(cause: str, seed: int) -> None:
    text, tenant = OPPOSITES[cause]
    told = causes(text, seed, tenant=tenant)
    assert share(told, cause) <= 0.02, told
