"""`agentload doctor`: a careful look at a target before any load, and which checks it will let decide.

Asked is one request for each tenant, a stream, a call that is left, and a small burst, in front of our
provider. `findings` and `decidable` say what follows, and are pure; `ask` sends.
"""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from agentload import order, screen
from agentload.clock_alignment import ClockAlignment
from agentload.doctor import show
from agentload.doctor.ask import Asker
from agentload.doctor.decidable import Prospect, anybody_served, own_prospects, prospects, summary
from agentload.doctor.findings import Finding, Grade, findings
from agentload.doctor.observed import Asked, Call, Kind, Seen
from agentload.drivers import target_probe
from agentload.drivers.first_look import refuse_other_words, refuse_unusable
from agentload.drivers.foreign_process import ForeignProcess
from agentload.drivers.gauges import own_page
from agentload.drivers.provider_control import ProviderControl, token_of
from agentload.drivers.stage import Stage
from agentload.errors import ExitCode, UnreachableError
from agentload.model import Outcome, Profile
from agentload.report.text import limits_line, printable
from agentload.targets import Target, probe_request
from agentload.targets._declares import as_declared

MOST_TENANTS = 20
"""More are not asked: they are alike."""
_CALLS_SETTLE_S = 2.0
"""How long the call of a client that has left is watched."""


def run(options: order.Options, burst: int, *, every: bool = False) -> int:
    """Look, print one table, and say by the exit code what it means.

    0: a run of the profile will decide all that it must; 1: something is wrong that must be mended first; 3:
    it works, but some checks will be inconclusive; 4: our provider is not behind it. `every`: show the checks
    of other profiles, too. Raises AgentloadError as `run` does (2, 4).
    """
    prepared = _prepared(options)
    seen = _seen(options, prepared, burst)
    found, own = findings(seen), own_prospects(prepared.profile, seen)
    code = ExitCode.UNREACHABLE if _passed_us_by(seen) else exit_code(found, own)
    asked = {one.check for one in own}
    others = [one for one in prospects(seen) if one.check not in asked] if every else []
    rows = [*show.groups(own), *show.groups(others, "others ")]
    console = screen.console()
    show.table(str(options.target), found, rows if anybody_served(seen) else show.NOBODY_SERVED, console)
    decided = summary(own) if anybody_served(seen) else "nothing is decidable yet"
    line = f"{prepared.profile.name}: {decided}; next: {next_step(options, code)}"
    console.print(printable(line), soft_wrap=True)
    return code


def examine(options: order.Options, burst: int) -> Seen:
    """Start or take our provider, ask, and read its ledger. Raises AgentloadError."""
    return _seen(options, _prepared(options), burst)


def exit_code(found: Sequence[Finding], own: Sequence[Prospect] = ()) -> ExitCode:
    """By the worst finding, and by what the profile must decide and will not. `own`: the profile's checks."""
    grades = {finding.grade for finding in found}
    if Grade.BAD in grades:
        return ExitCode.FAILED
    all_decided = Grade.UNSURE not in grades and all(one.decides for one in own)
    return ExitCode.PASSED if all_decided else ExitCode.INCONCLUSIVE


def next_step(options: order.Options, code: ExitCode) -> str:
    """What to do now. A run of a provider that costs money says how much before it wants `--allow-cost`."""
    if code not in (ExitCode.PASSED, ExitCode.INCONCLUSIVE):
        return "mend what is marked ✗, then ask the doctor again"
    words = ["agentload", "run", options.profile, "--target", str(options.target)]
    words += ["--provider", options.provider_url] if options.provider_url else []
    words += ["--provider-port", str(options.provider_port)] if options.provider_port else []
    words += [word for host in options.allow_hosts for word in ("--allow-host", host)]
    return shlex.join(words) + (" (exit code 3 at best)" if code is ExitCode.INCONCLUSIVE else "")


def _prepared(options: order.Options) -> order.Prepared:
    prepared = order.prepare(msgspec.structs.replace(options, drives=False))
    for warning in prepared.warnings:
        screen.warn(screen.console(), printable(warning))
    return prepared


def _seen(options: order.Options, prepared: order.Prepared, burst: int) -> Seen:
    assert prepared.target is not None
    return _look(options, prepared.profile, prepared.target, burst)


def _look(options: order.Options, profile: Profile, target: Target, burst: int) -> Seen:
    run_id = secrets.randbelow(0xFFFF) + 1
    with (
        TemporaryDirectory(prefix="agentload-doctor-") as folder,
        Stage(profile, Path(folder), run_id, token_of(os.environ), target.trust) as stage,
    ):
        _set_up(stage, options, target)
        if target.health is not None:
            target_probe.await_ready(target)
        asked = _ask(Asker(target, profile, run_id), profile, burst, streams=target.api.streams)
        if all(one.status == 0 for one in asked):
            raise UnreachableError(f"the target gateway at {target.base_url}: {asked[0].failure}")
        served = any(one.outcome is Outcome.ANSWERED for one in asked)
        gauges, trouble = _gauges(target)
        return Seen(
            tenants=tuple(tenant.name for tenant in profile.tenants),
            asked=tuple(asked),
            calls=() if stage.control is None else _calls(stage),
            streams=target.api.streams,
            asks_after=target.api.asks_after_s is not None,
            can_call_off=target.api.can_call_off,
            job_key=target.api.key_field,
            external=stage.control is None,
            upstream_keys=None if stage.control is None else _upstream_keys(stage.control),
            provider_url=stage.provider_url,
            provider_takes=limits_line(profile.provider),
            trouble=None if served else _trouble(stage, target, profile),
            any_port=not (_running(options, target) or _port(options, target)),
            gauges=gauges,
            gauges_named=_gauges_named(target),
            metrics_trouble=trouble,
            promises=as_declared(profile, target.to_dict())[1],
            health_page=target.health is not None,
            can_be_killed=target.process is not None and target.process.restart is not None,
        )


def _trouble(stage: Stage, target: Target, profile: Profile) -> str | None:
    """What a run would end with: its own look, at one more request of its own."""
    request = probe_request(target, profile)
    try:
        reply = target_probe.ask(target, request)
        unseen = stage.control is not None and stage.calls_seen() == 0
        refuse_unusable(target, request, reply, stage.provider_url if unseen else None)
        refuse_other_words(target, request, reply)
    except UnreachableError as error:
        return error.lines[0]
    return None


def _set_up(stage: Stage, options: order.Options, target: Target) -> None:
    if target.provider.external:
        return
    if (running := _running(options, target)) is not None:
        stage.use_provider(running)
    else:
        stage.start_provider(_port(options, target))


def _running(options: order.Options, target: Target) -> str | None:
    return options.provider_url or target.provider.running


def _port(options: order.Options, target: Target) -> int:
    return options.provider_port or target.provider.port


def _gauges(target: Target) -> tuple[tuple[str, ...], str | None]:
    """What can be read of the target's own values, named as in a run's samples; what a run would end with."""
    found, trouble = list[str](), None
    try:
        found += own_page(target)
    except UnreachableError as error:
        trouble = error.lines[0]
    if target.process is not None and ForeignProcess(target.process, "process").resident_bytes():
        found.append("resident_bytes")
    return tuple(found), trouble


def _gauges_named(target: Target) -> tuple[str, ...]:
    series = () if target.metrics is None else tuple(target.metrics.series)
    return series if target.process is None else (*series, "resident_bytes")


def _passed_us_by(seen: Seen) -> bool:
    """Requests got through, but to somebody else, or to nobody: as in a run, that is no target of ours."""
    return (
        not seen.calls
        and not seen.external
        and any(one.status < 300 or one.status >= 500 for one in seen.asked)
    )


def _ask(asker: Asker, profile: Profile, burst: int, *, streams: bool) -> list[Asked]:
    some = profile.tenants[:MOST_TENANTS]
    asked = [asker.ask(Kind.CAREFUL, tenant) for tenant in some]
    if all(one.outcome is not Outcome.ANSWERED for one in asked):
        return asked  # more of what is not served would show nothing
    asked += [asker.ask(kind, some[0]) for kind in (Kind.STREAMED, Kind.LEFT) if streams or kind is Kind.LEFT]
    return asked + asker.ask_at_once(some[-1], burst)


def _calls(stage: Stage) -> tuple[Call, ...]:
    """The ledger, once no call is open any more or `_CALLS_SETTLE_S` have passed."""
    until_s = time.monotonic() + _CALLS_SETTLE_S
    while True:
        entries: list[dict[str, Any]] = []
        stage.ledger(entries.extend)
        if all(entry["ending"] != "open" for entry in entries) or time.monotonic() > until_s:
            return tuple(_call(entry, stage.clock) for entry in entries)
        time.sleep(0.05)


def _call(entry: dict[str, Any], clock: ClockAlignment | None) -> Call:
    call = msgspec.convert({name: entry[name] for name in Call.__struct_fields__ if name in entry}, Call)
    if call.ended_ns is None or clock is None:
        return call
    return msgspec.structs.replace(call, ended_ns=clock.ours_ns(call.ended_ns))


def _upstream_keys(control: ProviderControl) -> int | None:
    """How many API keys our provider keeps an allowance for; none where its policy has no allowances."""
    levels = control.stats().get("limits")
    digests = {level.get("key_digest") for level in levels or ()}
    return len(digests) or None
