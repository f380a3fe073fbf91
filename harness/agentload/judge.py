"""Runs the checks of a profile over a run, and knows when a run proves nothing.

A check decides about what it is shown. Whether that may be believed is decided here, for all checks alike: a
generator that was late, a machine that stood still, a ledger that cannot be joined, a run cut short. Each of
these makes a verdict inconclusive and never a failure of zero tolerance undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from pydantic import ValidationError

from agentload.checks import Check, Need, PhaseRef, WithoutLedger, make, references
from agentload.errors import UsageError
from agentload.evidence.attribution import answered_without_call, how_many_untraced, untraced
from agentload.evidence.history import (
    counted_phases,
    end_ns,
    from_sent,
    without_undecided,
    without_windows,
)
from agentload.evidence.moved_ledger import with_ledger_moved
from agentload.evidence.unread_gauges import unread
from agentload.evidence.verdicts import MOOT, milliseconds, seconds
from agentload.explain import explain
from agentload.model import Outcome, Run, Severity, Spec, Status, Verdict, worst
from agentload.promises import judged_without, undeclared

__all__ = ["explain", "judge", "overall"]

LITTLE_NS = 5_000_000
"""No bound between times of clients and of the provider is so tight."""
UNDECLARED = "undeclared"
"""Among the details of a verdict that no other run would decide: what the target would have to declare."""
STALL_RECOVERY_NS = 50_000_000
"""What piled up in a stall is worked off in the first moments after it."""


def judge(run: Run) -> list[Verdict]:
    """Every check of the profile, in its order. Never raises for what a run or a check contains."""
    views = _Views(run)
    return [_judge_one(spec, views) for spec in run.profile.checks]


def overall(verdicts: Sequence[Verdict]) -> Status:
    """The verdict over all: the worst of those that must hold. None of them at all is inconclusive."""
    return worst([verdict.status for verdict in verdicts if verdict.severity is Severity.MUST])


class _Views:
    """The run as each doubt wants to see it, made once for all checks."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def settled(self) -> Run:
        """What the verdicts rest on: in an interrupted run, without what the interruption left undecided."""
        return without_undecided(self.run) if self.run.interrupted else self.run

    @cached_property
    def end_ns(self) -> int:
        return end_ns(self.run)

    @cached_property
    def phases_with_unsent(self) -> set[str]:
        """Answers still come for a while after the load was stopped: these phases were cut all the same."""
        return {r.phase for r in self.run.records if r.outcome is Outcome.UNSENT and r.attempt == 0}

    @cached_property
    def unserved(self) -> str | None:
        """Why nothing may be concluded from a run in which nothing was answered and nothing arrived."""
        sent = {record.seq for record in self.run.records if record.outcome is not Outcome.UNSENT}
        answered = any(record.outcome is Outcome.ANSWERED for record in self.run.records)
        if not sent or answered or self.run.ledger or not self.run.ledger_available:
            return None
        return (
            f"none of the {len(sent):,} requests was answered and our provider saw none of them: "
            "is the gateway's upstream set to it?"
        )

    @cached_property
    def without_stalls(self) -> Run | None:
        stalls = self.run.health.stalls
        if not stalls:
            return None
        windows = [(stall.start_ns, stall.end_ns + STALL_RECOVERY_NS) for stall in stalls]
        return without_windows(self.settled, windows)

    @cached_property
    def with_moved_ledger(self) -> list[tuple[int, Run]]:
        """The run as it would be if the provider's clock were wrong by as much as it may be, either way; by
        less than that, too, where it may be much."""
        most_ns = self.run.clock_uncertainty_ns
        if not most_ns or not self.settled.ledger:
            return []
        parts = (-2, -1, 1, 2) if most_ns > LITTLE_NS else (-2, 2)
        shifts = [most_ns * part // 2 for part in parts]
        return [(by_ns, with_ledger_moved(self.settled, by_ns)) for by_ns in shifts]

    @cached_property
    def from_sent(self) -> Run | None:
        late = any(r.sent_ns != r.due_ns and r.outcome is not Outcome.UNSENT for r in self.settled.records)
        return from_sent(self.settled) if late else None


def _judge_one(spec: Spec, views: _Views) -> Verdict:
    try:
        check = make(spec)
    except (UsageError, ValidationError) as error:
        # Profiles are checked when they are read; this is for a run folder judged by another version.
        return _inconclusive(spec.kind, f"the check cannot be made: {_first_line(error)}")
    verdict = _judge_what_there_is(spec.kind, check, views)
    verdict.check, verdict.severity = spec.kind, check.severity
    promises = views.run.promises
    pageless = Need.HEALTH_PAGE in check.needs and not views.run.health_page
    is_moot = MOOT in verdict.details and views.run.interrupted is None
    if pageless or is_moot or _unheard(check, views.run) or not check.is_asked(views.run.shows, promises):
        verdict.severity = Severity.SHOULD  # shown all the same, so that nobody takes it for kept
    if missing := unread(views.run.gauges, check.needs_samples):
        verdict.because += f"; {missing}"
    if promises is not None and verdict.status is not Status.INCONCLUSIVE:
        verdict.because += judged_without(check.better(), promises, verdict.because)
    return verdict


def _unheard(check: Check, run: Run) -> bool:
    """Clients of this API cannot say that they leave: nobody can be held to what he is not told."""
    return Need.DEPARTURES in check.needs and not run.hears_departures


def _judge_what_there_is(name: str, check: Check, views: _Views) -> Verdict:
    promise = _missing_promise(check, views.run)
    if promise is not None:
        verdict = _inconclusive(name, promise)
        verdict.details[UNDECLARED] = sorted(str(truth) for truth in check.rests())
        return verdict
    missing = _missing(check, views.run)
    if missing is not None:
        return _without(name, check, missing, views)
    if views.unserved is None:
        return _judge_with_doubts(name, check, views)
    # What must never be was seen all the same; everything else would be said of the wiring.
    if check.zero_tolerance and (verdict := _safely(name, check, views.settled)).status is Status.FAILED:
        return verdict
    return _inconclusive(name, views.unserved)


def _missing_promise(check: Check, run: Run) -> str | None:
    """Nobody breaks what nobody knows to have been promised."""
    rests = check.rests()
    if run.promises is None or not rests or any(run.knows(truth) for truth in rests):
        return None
    return undeclared(rests, run.promises)


def _without(name: str, check: Check, missing: str, views: _Views) -> Verdict:
    """What may be said all the same, of a run that has no ledger."""
    if views.run.ledger_available or check.without_ledger is WithoutLedger.NOTHING:
        return _inconclusive(name, missing)
    verdict = _judge_with_doubts(name, check, views)
    if verdict.status is Status.FAILED or check.without_ledger is WithoutLedger.PART:
        return verdict
    return _inconclusive(name, missing)


def _missing(check: Check, run: Run) -> str | None:
    """What the check needs and the run has not."""
    if (check.needs_ledger or check.needs_attribution) and not run.ledger_available:
        mend = run.no_ledger_because or "put agentload's provider behind the gateway"
        if run.interrupted is not None and not run.no_ledger_because:
            mend = "it is fetched at the end, before which the run ended"
        return f"this check rests on our provider's ledger, and the run has none: {mend}"
    answered = any(record.outcome is Outcome.ANSWERED for record in run.records)
    if check.needs_ledger and answered and not run.ledger:
        return (
            "requests were answered but our provider saw none of them: is the gateway's upstream set to it?"
        )
    if check.needs_attribution and untraced(run):
        return f"{how_many_untraced(run)}: at most 1 % may be such. {_whose_doing(run)}"
    return None


def _whose_doing(run: Run) -> str:
    """Who may have made calls without a marker, and the mend of each: only those affected are blamed."""
    affected = answered_without_call(run)
    own = [
        f"{t.name} ({t.locust.user_class})"
        for t in run.profile.tenants
        if t.locust is not None and (t.name in affected or not affected)
    ]
    usual = "Guardrail, shadow or rewritten prompts? Let the gateway pass the last user message on unchanged"
    if not own:
        return usual
    said = (
        f"Of {', '.join(own)}: does their code put `marked(self, …)` of agentload.locust around each message?"
    )
    unharmed = {call.tenant for call in run.ledger} - affected - {None}
    only_own = len(own) == len(affected) and unharmed
    return said if only_own else f"{said} Or else: {usual[0].lower()}{usual[1:]}"


def _judge_with_doubts(name: str, check: Check, views: _Views) -> Verdict:
    verdict = _safely(name, check, views.settled)
    if verdict.status is Status.INCONCLUSIVE:
        cut = _cut_short(name, check, verdict, views)
        verdict.because = f"{cut}; so far, {verdict.because}" if cut else verdict.because
        return verdict
    doubtful = _clocks_differ(name, check, verdict, views)
    if doubtful is not None:
        return _doubted(verdict, doubtful)
    if verdict.status is Status.FAILED and check.zero_tolerance:
        return verdict
    # Checks of zero tolerance count what must never be, at whatever time: only the others depend on timing.
    for doubt in _DOUBTS:
        reason = doubt(name, check, verdict, views)
        if reason is not None:
            return _doubted(verdict, reason)
    return verdict


def _safely(name: str, check: Check, run: Run) -> Verdict:
    try:
        return check.judge(run)
    except Exception as error:  # a check may come from a plug-in: whatever it does, the others are judged
        return _inconclusive(name, f"the check itself crashed ({type(error).__name__}: {_first_line(error)})")


def _doubted(verdict: Verdict, reason: str) -> Verdict:
    verdict.details["would_have"] = str(verdict.status)
    verdict.because = f"{reason}; otherwise it would have {verdict.status}: {verdict.because}"
    verdict.status = Status.INCONCLUSIVE
    return verdict


# --------------------------------------------------------------------------- doubts

_Doubt = Callable[[str, Check, Verdict, _Views], "str | None"]


def _cut_short(_name: str, check: Check, verdict: Verdict, views: _Views) -> str | None:
    """A pass needs the phases it speaks of; a failure stands on what there was.

    What ended the run is said once, beside the verdict over all, and not by each of its checks.
    """
    if views.run.interrupted is None or verdict.status is Status.FAILED:
        return None
    for phase in _phases_named(check) or counted_phases(views.run):
        end = views.run.profile.phase_window_ns(phase)[1]
        if views.end_ns < end or phase in views.phases_with_unsent:
            return f"the run ended at {seconds(views.end_ns)}, before '{phase}' did: run it again"
    return None


def _phases_named(check: Check) -> list[str]:
    named: list[str] = []
    for field, kind in references(type(check)):
        if kind is PhaseRef:
            value = getattr(check, field)
            named += [value] if isinstance(value, str) else list(value or ())
    return named


def _bad_generator(_name: str, _check: Check, verdict: Verdict, views: _Views) -> str | None:
    """Void: the load was not what the plan says."""
    health = views.run.health
    if health.trustworthy or verdict.details.get("stands_under_any_load"):
        return None
    why = "; ".join(health.reasons) or f"{health.issued:,} of {health.scheduled:,} requests were sent"
    if views.run.interrupted is not None:
        return (
            f"the run ended at {seconds(views.end_ns)}, and what it sent until then cannot be trusted "
            f"({why}): run it again"
        )
    return (
        f"void, because the load was not generated as planned ({why}): use more workers or a quieter machine"
    )


def _machine_stalled(name: str, check: Check, verdict: Verdict, views: _Views) -> str | None:
    """What holds only with (or only without) the moments in which the machine stood still is its doing."""
    stands = check.zero_tolerance or (check.stalls_only_worsen and verdict.status is Status.PASSED)
    calm = None if stands else views.without_stalls
    if calm is None or (again := _safely(name, check, calm)).status is verdict.status:
        return None
    stalls = views.run.health.stalls
    times = "once" if len(stalls) == 1 else f"{len(stalls)} times"
    lost_ns = sum(stall.end_ns - stall.start_ns for stall in stalls)
    return (
        f"the machine stood still {times}, for {seconds(lost_ns)} in all, and without that the verdict is "
        f"{again.status}: run it again on a quieter machine"
    )


def _sent_late(name: str, check: Check, verdict: Verdict, views: _Views) -> str | None:
    """Latency from the intended start includes the generator's own lateness: the verdict must not rest on
    it."""
    prompt = None if check.zero_tolerance else views.from_sent
    if prompt is None or (again := _safely(name, check, prompt)).status is verdict.status:
        return None
    return (
        f"the generator's own lateness decides: counted from when requests were really sent, the verdict is "
        f"{again.status}; use more workers or a quieter machine"
    )


def _clocks_differ(name: str, check: Check, verdict: Verdict, views: _Views) -> str | None:
    """The provider's clock is known to half a round trip: no verdict may rest on less.

    Zero tolerance is no exception: what is in doubt is not how the load was generated, but what was seen.
    """
    again = {by_ns: _safely(name, check, moved).status for by_ns, moved in views.with_moved_ledger}
    other = [by_ns for by_ns, status in again.items() if status is not verdict.status]
    against = [by_ns for by_ns in other if again[by_ns] is not Status.INCONCLUSIVE]
    if not against and (not again or len(other) < len(again)):  # it stands, at worst with fewer samples
        return None
    by_ns, about = (against or other)[0], milliseconds(views.run.clock_uncertainty_ns)
    moved = f"{milliseconds(abs(by_ns))} {'earlier' if by_ns < 0 else 'later'}"
    return (
        f"the clocks here and at the provider agree only within ± {about}, and with the provider's times "
        f"{moved} the verdict is {again[by_ns]}: run it nearer to the provider, over a quicker and quieter "
        "network"
    )


_DOUBTS: tuple[_Doubt, ...] = (_cut_short, _bad_generator, _machine_stalled, _sent_late)


def _inconclusive(name: str, because: str) -> Verdict:
    return Verdict(check=name, status=Status.INCONCLUSIVE, because=because)


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return (str(error).splitlines() or [""])[0]
