"""Faults of a profile: what is wrong with them is said at its place; when they happen is the same for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload import catalogue, faults, profile
from agentload.gateway_faults import Act
from agentload.model import NS, Profile
from fake_provider import faults as provider_side
from fake_provider.faults.outage import Outage
from fake_provider.faults.slots_cut import SlotsCut

TEXT = """\
name: faulty
about: What goes wrong.
phases:
  - {name: warm-up, seconds: 3, record: false}
  - {name: load, seconds: 20}
  - {name: outage, seconds: 10}
tenants:
  - {name: app, arrivals: {kind: constant, rate: 1}, workload: {kind: chat}}
  - {name: quiet, count: 2, arrivals: {kind: constant, rate: 1}, workload: {kind: chat}}
checks: [bounded-queue]
faults:
"""


def parsed(*written: str) -> Profile:
    return profile.parse(TEXT + "".join(f"  - {one}\n" for one in written), "faulty.yaml")


def complaints(*written: str) -> tuple[str, ...]:
    with pytest.raises(profile.ProfileError) as raised:
        parsed(*written)
    return tuple(line.removeprefix("faulty.yaml:") for line in raised.value.lines)


CUT = "{kind: slots-cut, phase: outage, to: 3}"
OUTAGE = "{kind: outage, at_s: 12, seconds: 10, tenant: quiet, params: {retry_after_s: 2}}"
KILL = "{kind: gateway-kill, at_s: 20, restart_after_s: 1.5}"
PAUSE = "{kind: gateway-pause, at_s: 4, seconds: 2}"


def test_windows_are_in_order_on_the_runs_clock() -> None:
    assert faults.fault_windows(parsed(CUT, KILL, OUTAGE)) == [
        ("outage", 12 * NS, 22 * NS),
        ("gateway-kill", 20 * NS, 21_500_000_000),
        ("slots-cut", 23 * NS, 33 * NS),
    ]
    assert faults.fault_windows(profile.parse(TEXT.replace("faults:\n", ""), "f.yaml")) == []


def test_the_provider_gets_its_own_with_tenants_by_number() -> None:
    requests = faults.provider_requests(parsed(CUT, OUTAGE, KILL), t0_ns=500)
    assert requests[0] == {
        "kind": "slots-cut",
        "start_ns": 500 + 23 * NS,
        "end_ns": 500 + 33 * NS,
        "tenant": None,
        "params": {"to": 3},
    }
    assert [one["tenant"] for one in requests] == [None, 1, 2]
    cut, first, second = faults.provider_faults(parsed(CUT, OUTAGE, KILL))
    assert cut == SlotsCut(start_ns=23 * NS, end_ns=33 * NS, to=3)
    assert first == Outage(start_ns=12 * NS, end_ns=22 * NS, tenant=1, retry_after_s=2)
    assert second.tenant == 2


def test_the_gateway_is_healed_before_the_next_thing_happens_to_it() -> None:
    acts = faults.gateway_acts(parsed(KILL, "{kind: gateway-pause, at_s: 21.5, seconds: 1}"))
    assert [(one.at_ns / NS, one.act) for one in acts] == [
        (20, Act.KILL),
        (21.5, Act.START),
        (21.5, Act.PAUSE),
        (22.5, Act.RESUME),
    ]


def test_faults_travel_with_the_profile() -> None:
    whole = parsed(CUT, OUTAGE, KILL, PAUSE)
    assert profile.from_json(profile.to_json(whole)) == whole


def test_a_quick_run_keeps_them_in_their_place() -> None:
    quick = profile.quick(parsed(CUT, OUTAGE, "{kind: slow, at_s: 1, seconds: 1, factor: 2}", KILL))
    assert [phase.seconds for phase in quick.phases] == [3, 10, 5]
    windows = [(kind, start / NS, end / NS) for kind, start, end in faults.fault_windows(quick)]
    assert windows == [
        ("slow", 1, 2),
        ("outage", 7.5, 12.5),
        ("gateway-kill", 11.5, 12.25),
        ("slots-cut", 13, 18),
    ]


def test_show_says_what_goes_wrong(tmp_path: Path) -> None:
    file = tmp_path / "faulty.yaml"
    file.write_text(TEXT + f"  - {CUT}\n  - {OUTAGE}\n")
    lines = list(catalogue.profile_lines(str(file), None, ()))
    assert "  slots-cut      23–33 s      to 3" in lines
    assert "  outage         12–22 s      tenant quiet, retry_after_s 2" in lines


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        (
            "{kind: outtage, at_s: 1, seconds: 1}",
            "12:12: faults[0].kind: no fault named 'outtage' (did you mean 'outage'?)",
        ),
        ("{at_s: 1, seconds: 1}", "12:5: faults[0]: needs a kind (known: error-in-stream"),
        (
            "outage",
            "12:5: faults[0]: must be a mapping such as {kind: outage, at_s: 10, seconds: 5}, got 'outage'",
        ),
        ("{kind: stall, phase: lode}", "12:26: faults[0].phase: no phase 'lode' (did you mean 'load'?)"),
        ("{kind: stall, at_s: 1}", "12:5: faults[0]: needs a phase, or at_s and seconds: seconds is missing"),
        ("{kind: stall, seconds: 1}", "12:5: faults[0]: needs a phase, or at_s and seconds: at_s is missing"),
        (
            "{kind: stall, phase: load, at_s: 1}",
            "12:26: faults[0].phase: says when already: leave out at_s and seconds, or the phase",
        ),
        ("{kind: stall, at_s: -1, seconds: 1}", "12:25: faults[0].at_s: must be >= 0, got -1"),
        (
            "{kind: stall, at_s: 40, seconds: 1}",
            "12:25: faults[0].at_s: is after the run, which ends at 33 s",
        ),
        (
            "{kind: stall, at_s: 30, seconds: 5}",
            "12:5: faults[0]: ends at 35 s, after the run, which ends at 33 s",
        ),
        (
            "{kind: stall, phase: load, tenant: quite}",
            "12:40: faults[0].tenant: no tenant 'quite' (did you mean 'quiet'?)",
        ),
        (
            "{kind: slots-cut, phase: load, to: 3, tenant: app}",
            "12:51: faults[0].tenant: slots-cut hits everybody: it takes no tenant",
        ),
        ("{kind: slots-cut, phase: load}", "12:5: faults[0].to: is required"),
        ("{kind: slots-cut, phase: load, to: -3}", "12:40: faults[0].to: must be >= 0, got -3"),
        ("{kind: slots-cut, phase: load, too: 3}", "12:36: faults[0].too: unknown key (did you mean 'to'?)"),
        (
            "{kind: slots-cut, phase: load, params: {slots: 3}}",
            "12:45: faults[0].params.slots: unknown key (known: to)",
        ),
        ("{kind: outage, phase: load, start_ns: 3}", "12:33: faults[0].start_ns: unknown key"),
        (
            "{kind: gateway-kill, at_s: 1}",
            "needs a phase, or at_s and restart_after_s: restart_after_s is missing",
        ),
        (
            "{kind: gateway-kill, at_s: 1, seconds: 1, restart_after_s: 1}",
            "12:44: faults[0].seconds: is the same as restart_after_s: write one of them",
        ),
        (
            "{kind: gateway-pause, at_s: 1, restart_after_s: 1}",
            "12:53: faults[0].restart_after_s: only gateway-kill restarts something: write seconds",
        ),
        (
            "{kind: gateway-pause, phase: load, tenant: app}",
            "gateway-pause hits everybody: it takes no tenant",
        ),
        ("{kind: gateway-pause, phase: load, signal: 9}", "12:40: faults[0].signal: unknown key"),
    ],
)
def test_what_is_wrong_is_said_where_it_is(written: str, complaint: str) -> None:
    assert complaint in "\n".join(complaints(written))


def test_nothing_is_done_to_a_gateway_that_something_is_being_done_to() -> None:
    assert complaints(KILL, "{kind: gateway-pause, at_s: 21, seconds: 2}") == (
        "13:5: faults[1]: overlaps faults[0]: there is one gateway",
    )
    assert parsed(
        KILL, "{kind: gateway-pause, at_s: 21.5, seconds: 2}", "{kind: slow, phase: load, factor: 2}"
    )


# --------------------------------------------------------------------------- from elsewhere

PLUGIN = '''
from fake_provider.call import Reason
from fake_provider.faults import Fault, RefuseCall

class Tantrum(Fault):
    """Every call gets a teapot's answer."""
    status: int = 418
    def at_arrival(self, call):
        return RefuseCall(self.status, Reason.SERVER_ERROR)
'''


def test_a_fault_from_a_folder_elsewhere_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faults").mkdir()
    (tmp_path / "faults" / "tantrum.py").write_text(PLUGIN)
    (tmp_path / "faults" / "broken.py").write_text("import no_such_module\n")
    assert "tantrum" not in faults.kinds()
    monkeypatch.setenv("AGENTLOAD_PLUGINS", str(tmp_path))
    assert faults.kinds()["tantrum"] == "provider"
    [tantrum] = faults.provider_faults(parsed("{kind: tantrum, phase: load, status: 499}"))
    assert (tantrum.kind, tantrum.start_ns, tantrum.model_dump()["status"]) == ("tantrum", 3 * NS, 499)
    assert complaints("{kind: tantrum, phase: load, statsu: 1}") == (
        "12:34: faults[0].statsu: unknown key (did you mean 'status'?)",
    )
    assert "broken.py: ModuleNotFoundError" in complaints("{kind: broken, phase: load}")[0]
    assert "tantrum" in provider_side.kinds()
