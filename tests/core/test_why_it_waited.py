"""The cause that a refused request is told, where it is refused whatever the load."""

from __future__ import annotations

from agentload.scheduler.admission import Refused
from agentload.scheduler.reasons import Reason
from agentload.scheduler.wait_cause import WaitCause
from scheduler_kit import NS, Scene, gateway


def served_for(scene: Scene, seconds: float, times: int) -> None:
    """So many calls of one kind, one after another."""
    for _ in range(times):
        call = scene.submit("a", workflow="chat")
        scene.pass_time(round(seconds * NS))
        scene.end(call)


def why(scene: Scene, deadline_s: float) -> tuple[Reason, WaitCause | None]:
    """The reason and the cause of a refusal."""
    before = len(scene.refusals)
    scene.submit("a", workflow="chat", deadline_ns=scene.now_ns + round(deadline_s * NS))
    [event] = scene.refusals[before:]
    assert isinstance(event, Refused)
    return event.reason, scene.admission.diagnosis.cause(scene.now_ns, event)


def test_a_deadline_too_short_for_the_call_itself_is_nobodys_load() -> None:
    scene = Scene(gateway(slots=1))
    served_for(scene, 2.0, 3)
    assert why(scene, 0.5) == (Reason.DEADLINE_UNMEETABLE, None)
    scene.submit("a", workflow="chat")  # the slot is taken: now it would have to wait as well
    assert why(scene, 2.5) == (Reason.DEADLINE_UNMEETABLE, WaitCause.CAPACITY)
