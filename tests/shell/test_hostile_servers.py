"""Whatever a target answers ends in a named outcome, soon, and in little memory: for each part that listens.

Measured in a process of its own for each part, over real sockets.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hostile_reader import SECONDS
from hostile_servers import (
    BOMB,
    CHUNKED,
    Script,
    chunked_flood,
    drips,
    endless_interim,
    floods,
    says,
    serving,
    stalls,
)

MIB = 2**20
TESTS = Path(__file__).resolve().parent.parent
OK = b"HTTP/1.1 200 OK\r\n"
PARTS = ("load_client", "doctor", "probe", "sampler")
SLOW: Mapping[str, Script] = {
    "slow-head": drips(OK + b"X: "),
    "slow-body": drips(OK + b"Content-Length: 99999\r\n\r\n"),
    "slow-body-without-length": drips(OK + b"\r\n"),
    "slow-chunks": drips(CHUNKED, b"1\r\nx\r\n"),
    "slow-interim": drips(b"", b"HTTP/1.1 103 Early\r\n\r\n", 0.2),
    "stalled-head": stalls(b"HTTP/1.1 200"),
    "stalled-body-without-length": stalls(OK + b"\r\n{"),
    "silence": stalls(b""),
}
"""What ends by the clock."""
ENDLESS: Mapping[str, Script] = {
    "endless-chunks": chunked_flood,
    "endless-body-without-length": floods(OK + b"\r\n", b"x" * 65_536),
    "endless-body-of-a-terabyte": floods(OK + b"Content-Length: 1099511627776\r\n\r\n", b"x" * 65_536),
    "endless-fields": floods(OK, b"X-A: " + b"b" * 1_000 + b"\r\n"),
    "endless-field": floods(OK + b"X-A: ", b"b" * 65_536),
    "endless-interim": endless_interim,
    "endless-trailers": floods(CHUNKED + b"1\r\n{\r\n0\r\n", b"X-A: " + b"b" * 1_000 + b"\r\n"),
    "endless-extension": floods(CHUNKED + b"1;", b"x" * 65_536),
}
"""What ends by its size."""
ODD: Mapping[str, Script] = {
    "gzip-bomb": says(BOMB, fields=b"Content-Encoding: gzip\r\n"),
    "not-utf-8": says(b'{"error": "\xff\xfe"}'),
    "two-lengths": lambda sock, _: sock.sendall(OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
    "length-and-chunks": lambda sock, _: sock.sendall(
        OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "negative-length": lambda sock, _: sock.sendall(OK + b"Content-Length: -1\r\n\r\n{}"),
    "chunk-too-long-for-a-number": lambda sock, _: sock.sendall(CHUNKED + b"F" * 40 + b"\r\n"),
    "no-http": lambda sock, _: sock.sendall(b"220 mail.example ESMTP\r\n\r\n"),
    "cut-off": lambda sock, _: sock.sendall(OK + b"Content-Length: 99\r\n\r\n{"),
    "no-answer": lambda sock, _: None,
    "switched-protocols": lambda sock, _: sock.sendall(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"),
    "redirect": says(b"{}", b"307 Moved", b"Location: http://192.0.2.1/\r\n"),
    "garbage-behind": lambda sock, _: sock.sendall(OK + b"Content-Length: 2\r\n\r\n{}" + b"x" * 1_000),
    "many-equal-fields": says(b"{}", b"429 Full", b"Retry-After: 1\r\n" * 1_000),
}
"""What is answered at once, and is none, or a strange one."""
ALL = {**SLOW, **ENDLESS, **ODD}
LOAD_CLIENT = {
    **{name: {"abandoned timeout"} for name in SLOW},
    # A busy machine may not read as much as is too much before the time is up.
    **{
        name: {"truncated answer-too-large", "failed answer-too-large", "abandoned timeout"}
        for name in ENDLESS
    },
    "endless-interim": {"failed malformed-answer"},
    "gzip-bomb": {"failed malformed-answer"},
    "not-utf-8": {"failed malformed-answer"},
    "two-lengths": {"failed malformed-answer"},
    "length-and-chunks": {"failed malformed-answer"},
    "negative-length": {"failed malformed-answer"},
    "chunk-too-long-for-a-number": {"truncated malformed-answer"},
    "no-http": {"failed malformed-answer"},
    "cut-off": {"truncated closed-mid-answer"},
    "no-answer": {"failed closed-before-answer"},
    "switched-protocols": {"failed malformed-answer"},
    "redirect": {"failed"},
    "garbage-behind": {"failed answer-without-choices"},
    "many-equal-fields": {"rejected"},
}


@pytest.fixture(scope="module")
def read() -> Generator[dict[str, dict[str, dict[str, Any]]]]:
    """What each part made of each server."""
    with ExitStack() as exit_:
        ports = {name: exit_.enter_context(serving(script)).port for name, script in ALL.items()}
        asked = "".join(f"{name} {port}\n" for name, port in ports.items())

        def ask(part: str) -> dict[str, dict[str, Any]]:
            words = [sys.executable, str(TESTS / "hostile_reader.py"), part]
            done = subprocess.run(
                words, input=asked, capture_output=True, text=True, check=False, timeout=150
            )
            assert done.returncode == 0, done.stderr
            return {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}

        with ThreadPoolExecutor(len(PARTS)) as threads:
            found = dict(zip(PARTS, threads.map(ask, PARTS), strict=True))
        yield found


@pytest.mark.parametrize("part", PARTS)
def test_it_is_over_soon_and_in_little_memory(read: dict[str, dict[str, dict[str, Any]]], part: str) -> None:
    mine = read[part]
    assert mine.keys() == ALL.keys()
    assert all(one["said"] for one in mine.values()), mine
    late = {name: one["seconds"] for name, one in mine.items() if one["seconds"] > SECONDS + 4}
    assert not late
    big = {name: one["grew"] / MIB for name, one in mine.items() if one["grew"] > 32 * MIB}
    assert not big
    assert {name for name, one in mine.items() if one["seconds"] < 0.5 * SECONDS}.isdisjoint(SLOW)


def test_each_has_an_outcome_of_its_own_in_the_records(read: dict[str, dict[str, dict[str, Any]]]) -> None:
    said = {name: one["said"] for name, one in read["load_client"].items()}
    wrong = {name: text for name, text in said.items() if text not in LOAD_CLIENT[name]}
    assert not wrong


@pytest.mark.parametrize("part", ["probe", "sampler"])
def test_each_has_a_line_of_its_own(read: dict[str, dict[str, dict[str, Any]]], part: str) -> None:
    said = {name: str(one["said"]) for name, one in read[part].items()}
    assert {said[name] for name in SLOW} == {f"no answer within {SECONDS:g} s"}
    for name in set(ENDLESS) - {"endless-interim"}:
        assert "answered with more than" in said[name] or "no answer within" in said[name], said[name]
    for name in ("two-lengths", "length-and-chunks", "negative-length", "no-http", "endless-interim"):
        assert said[name] == "does not speak HTTP (its answer is malformed)"
    assert said["gzip-bomb"] == "answered with a Content-Encoding that nobody asked for"
    assert said["no-answer"] == "closes the connection without an answer"
    assert said["redirect"] in ("307", "answers 307")


def test_the_doctor_calls_nobody_served(read: dict[str, dict[str, dict[str, Any]]]) -> None:
    assert not [name for name, one in read["doctor"].items() if one["said"].startswith("answered")]


@pytest.mark.parametrize("part", PARTS)
def test_nobody_is_sent_elsewhere(part: str) -> None:
    with serving(says(b"{}")) as elsewhere:
        location = b"Location: http://127.0.0.1:%d/\r\n" % elsewhere.port
        with serving(says(b"{}", b"307 Moved", location)) as server:
            words = [sys.executable, str(TESTS / "hostile_reader.py"), part]
            done = subprocess.run(
                words, input=f"moved {server.port}\n", capture_output=True, text=True, check=True, timeout=60
            )
    assert json.loads(done.stdout)["said"] in ("failed", "307", "answers 307")
    assert (server.connections, elsewhere.connections) == (2, 0)
