"""A provider for other hosts: where it listens, who may control it, and the recipe for an image of it."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import fake_provider
from fake_provider.__main__ import _address, _parser, main
from fake_provider.address import split_bind
from fake_provider.control_token import TOKEN_VARIABLE, TokenError, read_token
from provider_helpers import ROOT, ProviderProcess, marked

TOKEN = "correct-horse-battery"
RECIPE = (Path(fake_provider.__file__).parent / "Containerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.5", ("10.0.0.5", 9000)),
        ("10.0.0.5:80", ("10.0.0.5", 80)),
        ("provider.staging:1", ("provider.staging", 1)),
        ("::1", ("::1", 9000)),
        ("[::]", ("::", 9000)),
        ("[fe80::1]:7", ("fe80::1", 7)),
    ],
)
def test_an_address_is_a_host_and_maybe_a_port(text: str, found: tuple[str, int]) -> None:
    assert split_bind(text, 9000) == found


@pytest.mark.parametrize("text", ["", ":80", "host:", "host:x", "host:123456", "[::1", "[::1]80", "a b:c"])
def test_what_is_no_address_is_said(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--bind", text]) == 2
    said = capsys.readouterr().err
    assert said == f"fake_provider: --bind {text}: must be HOST or HOST:PORT, e.g. 0.0.0.0:9000\n"


@pytest.mark.parametrize("where", [["--bind=0.0.0.0:0"], ["--host=0.0.0.0", "--port=0"], ["--bind=[::]:0"]])
def test_control_is_never_open_to_other_hosts(
    where: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    if "::" in where[0] and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    assert main(where) == 2
    said = capsys.readouterr().err
    assert "is reachable from other hosts" in said or "cannot listen on ::" in said
    assert said.count("\n") == 1
    assert f"put a token into the environment variable {TOKEN_VARIABLE}" in said or "cannot listen" in said


def test_with_a_token_calls_are_anybodys_and_control_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with ProviderProcess("--bind=0.0.0.0:0", settings={"latency.first_token_ms": 0}) as process:
        assert process.client.post("/v1/chat/completions", json=marked()).status_code == 200
        shown = [{}, {"authorization": "Bearer no"}, {"authorization": f"Bearer {TOKEN}"}]
        answers = [process.client.get("/_fake/health", headers=headers).status_code for headers in shown]
        assert answers == [403, 403, 200]


def test_a_token_comes_from_where_it_was_said(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}-of-file\n")
    environment = {TOKEN_VARIABLE: TOKEN, "MINE": f"{TOKEN}-of-mine"}
    assert read_token({}, None, None) is None
    assert read_token(environment, None, None) == TOKEN
    assert read_token(environment, "MINE", None) == f"{TOKEN}-of-mine"
    assert read_token(environment, None, file) == f"{TOKEN}-of-file"


@pytest.mark.parametrize("token", ["short", "with a space", "gehe\u00efmnis"])
def test_a_token_that_cannot_be_used_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(TokenError) as raised:
        read_token({TOKEN_VARIABLE: token}, None, None)
    assert token not in str(raised.value)
    with pytest.raises(TokenError, match="that environment variable is not set"):
        read_token({}, "MINE", None)
    with pytest.raises(TokenError, match=r"--token-file /nowhere/x: No such file"):
        read_token({}, None, Path("/nowhere/x"))


def test_a_token_on_our_command_line_is_not_on_the_servers() -> None:
    """`agentload provider --token …` becomes the server; `ps` shows that one for as long as it lives."""
    command = [sys.executable, "-m", "agentload", "provider", "--bind", "127.0.0.1:0", "--token", TOKEN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=without_token()) as own:
        try:
            assert own.stdout is not None
            port = json.loads(own.stdout.readline())["port"]
            assert TOKEN not in Path(f"/proc/{own.pid}/cmdline").read_text()
            url = f"http://127.0.0.1:{port}/_fake/health"
            assert httpx.get(url).status_code == 403
            assert httpx.get(url, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        finally:
            own.terminate()


def without_token() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}


# ------------------------------------------------------------------------------------------ the image


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", RECIPE, re.MULTILINE)


def test_all_that_the_image_is_made_of_exists() -> None:
    for line in instructions("COPY"):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists(), source


def test_the_image_holds_all_that_a_wheel_is_built_from() -> None:
    """What pyproject.toml names is copied: else the build in the image fails, or lacks a package."""
    copied = {word for line in instructions("COPY") for word in line.split()[:-1]}
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    included = re.search(r"only-include = \[([^\]]*)\]", text)
    assert included is not None
    needed = {name.split("/")[0] for name in re.findall(r'"([^"]+)"', included[1])}
    needed |= {"pyproject.toml", "README.md", "LICENSE"}
    assert needed - copied == set()


def test_what_the_image_runs_is_a_command_line_that_is_understood() -> None:
    [written] = instructions("ENTRYPOINT")
    python, flag, module, *arguments = json.loads(written)
    assert (python, flag, module) == ("python", "-m", "fake_provider")
    host, port = _address(_parser().parse_args(arguments))
    assert host == "0.0.0.0"
    assert [str(port)] == instructions("EXPOSE")
    assert f"-p {port}:{port}" in RECIPE


def test_the_image_runs_as_nobody_in_particular() -> None:
    [user] = instructions("USER")
    assert f"useradd --system --no-create-home {user}" in RECIPE
