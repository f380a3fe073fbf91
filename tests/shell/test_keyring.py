"""Keys from files and commands: read once, never shown, and a mend for each that is missing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentload import targets
from agentload.drivers.keyring import with_keys, with_own_keys
from agentload.drivers.proc import running
from agentload.errors import ProfileError
from agentload.order import Options, prepare
from agentload.targets import Target
from agentload.targets._keys import to_hand_over
from process_facts import wait_until

TENANTS = ["quiet-1", "flood"]


def target(tmp_path: Path, keys: str) -> Target:
    (tmp_path / "gw.yaml").write_text(f"base_url: http://127.0.0.1:9\nkeys: {keys}\n")
    return targets.load(str(tmp_path / "gw.yaml"), {})


def script(tmp_path: Path, text: str) -> None:
    (tmp_path / "make").write_text(f"#!/bin/sh\n{text}\n")
    (tmp_path / "make").chmod(0o700)


def refusal(of: Target, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ProfileError) as raised:
        with_keys(of, TENANTS, environment or {})
    [line] = raised.value.lines
    return line.rpartition("gw.yaml: ")[2]


def test_a_file_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    file, said = tmp_path / "keys.yaml", list[str]()
    file.write_text("{quiet-1: aaaa, flood: bbbb}")
    file.chmod(0o644)
    keyed = with_keys(target(tmp_path, "{file: keys.yaml}"), TENANTS, {}, said.append)
    assert dict(keyed.keyring) == {"quiet-1": "aaaa", "flood": "bbbb"}
    assert said == [f"{file} holds keys and can be read by others (mode 0644): chmod 600 {file}"]
    file.chmod(0o600)
    with_keys(target(tmp_path, "{file: keys.yaml}"), TENANTS, {}, said.append)
    assert len(said) == 1


def test_a_command_is_told_how_many_and_who_and_is_run_once(tmp_path: Path) -> None:
    script(
        tmp_path,
        'echo run >> ran; test "$1" = 2 || exit 1; while read name; do echo "$name=key-of-$name"; done',
    )
    keyed = [with_keys(target(tmp_path, "{command: './make {n}'}"), TENANTS, {}) for _ in range(2)]
    assert [dict(one.keyring) for one in keyed] == [
        {"quiet-1": "key-of-quiet-1", "flood": "key-of-flood"}
    ] * 2
    assert (tmp_path / "ran").read_text() == "run\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("echo s3cret >&2; exit 3", "keys.command ./make: ended with status 3: run it by hand to see why"),
        (
            "echo only-one-s3cret",
            "keys.command ./make: needs 2 keys (quiet-1, flood), you gave 1: flood has none",
        ),
        ("printf 's3cret \\377'", "keys.command ./make: what it says is not UTF-8 text"),
        ("exec head -c 2000000 /dev/zero", "keys.command ./make: says more than 1048576 bytes"),
        ("yes s3cret & yes s3cret", "keys.command ./make: says more than 1048576 bytes"),
        ("sleep 30", "keys.command ./make: has not ended within 0.5 s"),
    ],
)
def test_what_goes_wrong_with_a_command(
    tmp_path: Path,
    text: str,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("agentload.drivers.keyring.COMMAND_S", 0.5 if "sleep" in text else 20.0)
    script(tmp_path, text)
    assert refusal(target(tmp_path, "{command: ./make}")) == problem
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_ends_with_us_and_so_does_what_it_has_started(
    tmp_path: Path, number: signal.Signals
) -> None:
    script(tmp_path, "sleep 60 & echo $! > started; mv started pid; wait")
    (tmp_path / "gw.yaml").write_text("base_url: http://127.0.0.1:9\nkeys: {command: ./make}\n")
    words = [
        sys.executable,
        "-m",
        "agentload",
        "run",
        "noisy-neighbor",
        "--target",
        str(tmp_path / "gw.yaml"),
    ]
    agentload = subprocess.Popen(
        words,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Under `nohup` SIGHUP is ignored, and a child inherits that.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509
    )
    wait_until((tmp_path / "pid").exists)
    agentload.send_signal(number)
    said = agentload.communicate(timeout=30)[0]
    assert (agentload.returncode, said) == (130, "interrupted\n")
    wait_until(lambda: not running([int((tmp_path / "pid").read_text())]))


def test_a_command_and_a_file_that_are_not_there(tmp_path: Path) -> None:
    assert refusal(target(tmp_path, "{command: ./none}")).endswith("cannot be run: no such file or directory")
    assert "keys.yaml: cannot be read: no such file" in refusal(target(tmp_path, "{file: keys.yaml}"))


def test_the_environment_names_the_variable_that_is_missing(tmp_path: Path) -> None:
    of = target(tmp_path, "{env: 'KEY_{tenant}'}")
    assert dict(with_keys(of, TENANTS, {"KEY_QUIET_1": "a", "KEY_FLOOD": "b"}).keyring) == {
        "quiet-1": "a",
        "flood": "b",
    }
    assert refusal(of, {"KEY_QUIET_1": "a"}).endswith("flood has none: export KEY_FLOOD=…")


def test_a_worker_takes_what_it_was_handed_or_reads_its_own_copy(tmp_path: Path) -> None:
    keys = {"quiet-1": "aaaa", "flood": "bbbb"}
    for source in ("{command: ./make}", "{file: keys.yaml}"):
        of = Target.from_dict(target(tmp_path, source).to_dict(), {})
        assert with_own_keys(of, TENANTS, to_hand_over(keys)).keyring == keys
        with pytest.raises(ProfileError, match=r"on the host of|each host reads its own copy"):
            with_own_keys(of, TENANTS, {})
    (tmp_path / "keys.yaml").write_text("{quiet-1: aaaa, flood: bbbb}")
    assert with_own_keys(of, TENANTS, {}).keyring == keys


def test_a_key_is_missed_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("quiet-1=a\nquiet-2=b\nquiet-3=c\n")
    of = target(tmp_path, "{file: k}")
    with pytest.raises(ProfileError) as raised:
        prepare(Options(profile="noisy-neighbor", target=of.name))
    assert raised.value.lines == (
        f"{of.name}: keys.file k: needs 4 keys (quiet-1, quiet-2, quiet-3, flood), "
        "you gave 3: flood has none",
    )


def test_too_many_keys_for_an_environment(tmp_path: Path) -> None:
    assert "more than 1048576 bytes" in refusal(
        target(tmp_path, "{env: 'KEY_{tenant}'}"), {"KEY_QUIET_1": "a" * 2**20, "KEY_FLOOD": "b"}
    )
