"""The command line as a user meets it: one line per mistake, the right exit code, nothing started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from agentload.errors import ExitCode

GOOD = """\
name: small
about: One quiet tenant.
phases: [{name: only, seconds: 1}]
provider: {slots: 4}
gateway: {pools: {shared: {slots: 4, classes: {standard: {}}}}}
tenants:
  - name: quiet
    arrivals: {kind: uniform, rate: 5}
    workload: {kind: fixed, output_tokens: 2}
    client: {kind: no-retry}
checks: [own-answer]
"""


def agentload(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agentload", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "AGENTLOAD_DEBUG"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=60, check=False
    )


def refused(done: subprocess.CompletedProcess[str], code: ExitCode) -> str:
    """Its one complaint, after seeing that it is one line with no traceback."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--nope"), "agentload run: No such option: --nope (see agentload run --help)"),
        (("simulate", "steady", "--seed", "x"), "agentload simulate: Invalid value for '--seed'"),
        (("lisst",), "Did you mean 'list'?"),
        (("run", "x" * 300), "file name too long"),
        (("judge", "y" * 300), "file name too long"),
        (("run", "~nobody-of-this-name/x.yaml"), "no such file"),
        (("simulate", "steady", "--set", ".".join("a" * 2_000) + "=1"), "nested too deeply"),
        (("provider", "--config", "deep.yaml"), "deep.yaml: is nested too deeply"),
        (("serve", "--upstream", "http://127.0.0.1:1", "--config", "deep.yaml"), "nesting depth"),
    ],
)
def test_an_odd_command_line_is_refused_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "deep.yaml").write_text("[" * 20_000)
    message = refused(agentload(*arguments, cwd=tmp_path), ExitCode.USAGE)
    assert said in message
    assert len(message.splitlines()) == 1


def test_a_standard_output_that_takes_nothing_is_said(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "agentload", "list"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False
        )
    assert refused(done, ExitCode.USAGE) == "agentload: no space left on device"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("about:", "abuot:"), "profile.yaml:2:1: abuot: unknown key (did you mean 'about'?)"),
        (
            ("  - name: quiet", "  - weight: -2\n    name: quiet"),
            "profile.yaml:7:13: tenants[0].weight: must be > 0, got -2",
        ),
        (("slots: 4}\n", "slots: many}\n"), "provider.slots: must be a whole number, got 'many'"),
        (("[own-answer]", "[own-anser]"), "own-anser"),
        (("[own-answer]", "[victim-latency: {victims: [loud], baseline: only, noise: only}]"), "loud"),
        (("kind: uniform", "kind: unifrom"), "did you mean 'uniform'?"),
        (("kind: no-retry", "kind: no-rety"), "did you mean 'no-retry'?"),
        (("classes: {standard", "classes: {gold"), "standard"),
    ],
)
def test_a_wrong_profile_is_refused_with_file_line_and_mend(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    assert change[0] in GOOD
    (tmp_path / "profile.yaml").write_text(GOOD.replace(*change))
    message = refused(agentload("run", "profile.yaml", cwd=tmp_path), ExitCode.USAGE)
    assert said in message
    assert message.startswith("profile.yaml:")
    assert not (tmp_path / "reports").exists(), "nothing was started"


def test_all_mistakes_of_a_profile_are_told_at_once(tmp_path: Path) -> None:
    wrong = GOOD.replace("about:", "abuot:").replace("  - name: quiet", "  - weight: -2\n    name: quiet")
    (tmp_path / "profile.yaml").write_text(wrong)
    lines = refused(agentload("run", "profile.yaml", cwd=tmp_path), ExitCode.USAGE).splitlines()
    assert len([line for line in lines if line.startswith("profile.yaml:")]) >= 2


def test_two_tenants_of_one_name(tmp_path: Path) -> None:
    tenant = GOOD[GOOD.index("  - name") : GOOD.index("checks:")]
    (tmp_path / "profile.yaml").write_text(GOOD.replace(tenant, tenant * 2))
    assert "quiet" in refused(agentload("run", "profile.yaml", cwd=tmp_path), ExitCode.USAGE)


@pytest.mark.parametrize(
    "content", [b"", b"\x00\x01\x02\xff", b"- a\n- b\n", b"name: [", b"\xff\xfe\xfa", b"# only a comment\n"]
)
def test_files_that_are_no_profiles(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.yaml").write_bytes(content)
    message = refused(agentload("run", "odd.yaml", cwd=tmp_path), ExitCode.USAGE)
    assert message.startswith("odd.yaml")


def test_a_folder_and_an_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    refused(agentload("run", "folder.yaml", cwd=tmp_path), ExitCode.USAGE)
    refused(agentload("run", "missing.yaml", cwd=tmp_path), ExitCode.USAGE)
    if os.geteuid() != 0:  # root may read everything
        (tmp_path / "closed.yaml").write_text(GOOD)
        (tmp_path / "closed.yaml").chmod(0)
        refused(agentload("run", "closed.yaml", cwd=tmp_path), ExitCode.USAGE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "nosy-neighbor"), "did you mean 'noisy-neighbor'?"),
        (("run", "noisy-neighbor", "--policy", "ffo"), "ffo"),
        (("run", "noisy-neighbor", "--set", "provider.slost=3"), "did you mean 'slots'?"),
        (("run", "noisy-neighbor", "--set", "nonsense"), "--set"),
        (("run", "noisy-neighbor", "--workers", "0"), "--workers"),
        (("run", "noisy-neighbor", "--target", "ftp://x"), "--target"),
        (("run", "noisy-neighbor", "--provider", "http://127.0.0.1:9/v1"), "without /v1"),
        (("run", "noisy-neighbor", "--plugins", "nowhere"), "--plugins nowhere: is not a folder"),
        (("run", "noisy-neighbor", "--target", "http://192.0.2.1:80"), "--allow-host"),
        (("explain", "victim-latncy"), "victim-latency"),
        (("list", "profile"), "profiles"),
        (("judge", "nowhere"), "nowhere"),
        (("decode", "no marker here"), "marker"),
        (("worker", "nowhere"), "HOST:PORT"),
    ],
)
def test_wrong_commands_say_how_to_mend_them(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(agentload(*arguments, cwd=tmp_path), ExitCode.USAGE)
    assert not (tmp_path / "reports").exists(), "nothing was started"


def test_every_command_has_help(tmp_path: Path) -> None:
    for command in ("run", "list", "show", "explain", "judge", "decode", "serve", "provider", "worker"):
        done = agentload(command, "--help", cwd=tmp_path)
        assert done.returncode == 0
        assert "Usage" in done.stdout


def test_looking_around(tmp_path: Path) -> None:
    assert "noisy-neighbor" in agentload("list", cwd=tmp_path).stdout
    for kind in ("checks", "policies", "behaviours", "workloads", "arrivals"):
        assert agentload("list", kind, cwd=tmp_path).stdout.count("\n") >= 2
    shown = agentload("show", "noisy-neighbor", cwd=tmp_path).stdout
    assert "fingerprint" in shown
    assert "flood" in shown
    assert "Counterexample" in agentload("explain", "victim-latency", cwd=tmp_path).stdout


def test_a_marker_can_be_read_back(tmp_path: Path) -> None:
    from fake_provider.marker import Marker, encode

    text = encode(Marker(run=7, tenant=3, seq=4711, attempt=2, output_tokens=16))
    said = agentload("decode", f"some text {text} and more", cwd=tmp_path).stdout
    for part in ("run 7", "tenant 3", "seq 4711", "attempt 2", "16 tokens"):
        assert part in said


def test_markers_are_read_from_a_log(tmp_path: Path) -> None:
    from fake_provider.marker import Marker, encode

    one, other = (encode(Marker(run=7, tenant=3, seq=seq, attempt=0, output_tokens=16)) for seq in (1, 2))
    for log, seqs in ((f"a {one}\nb\nc {other}\n", (1, 2)), ("\n".join(one.split()), (1,))):
        command = [sys.executable, "-m", "agentload", "decode", "-"]
        done = subprocess.run(command, input=log, capture_output=True, text=True, check=True, timeout=60)
        said = done.stdout.splitlines()
        assert [f"seq {seq} " in line for seq, line in zip(seqs, said, strict=True)] == [True] * len(seqs)


def test_a_simulation_is_not_compared_with_itself(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(GOOD)
    agentload("simulate", "small.yaml", "--out", "simulated", cwd=tmp_path)
    assert "is a simulation itself" in refused(agentload("agree", "simulated", cwd=tmp_path), ExitCode.USAGE)


def test_slots_beyond_the_providers_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(GOOD)
    arguments = ("simulate", "small.yaml", "--set", "provider.slots=2", "--out")
    warned = agentload(*arguments, "one", cwd=tmp_path)
    assert "warning: the gateway's 4 slots are more than the provider's 2" in warned.stdout
    fitting = agentload(*arguments, "other", "--set", "gateway.pools.shared.slots=2", cwd=tmp_path)
    assert "warning" not in fitting.stdout


# --------------------------------------------------------------------------- targets that are not there


@contextmanager
def raw_server(answer: bytes) -> Iterator[int]:
    """Answers every connection with these bytes and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(5)
                    connection.recv(65536)
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    # Closed with something unread, it would be reset, and the answer lost.
                    while connection.recv(65536):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=5)


@contextmanager
def web_page() -> Iterator[int]:
    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = b"<html>Welcome!</html>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
    thread.join(timeout=5)


@pytest.mark.live
class TestUnreachable:
    def run(self, folder: Path, *arguments: str) -> str:
        (folder / "small.yaml").write_text(GOOD)
        return refused(agentload("run", "small.yaml", *arguments, cwd=folder), ExitCode.UNREACHABLE)

    def test_nothing_listens(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        assert "nothing listens" in self.run(tmp_path, "--target", f"http://127.0.0.1:{port}")

    def test_it_does_not_speak_http(self, tmp_path: Path) -> None:
        with raw_server(b"220 mail.example ESMTP\r\n") as port:
            assert "does not speak HTTP" in self.run(tmp_path, "--target", f"http://127.0.0.1:{port}")

    def test_it_answers_a_web_page(self, tmp_path: Path) -> None:
        with web_page() as port:
            assert "HTML" in self.run(tmp_path, "--target", f"http://127.0.0.1:{port}")

    def test_it_answers_in_the_words_of_another_api(self, tmp_path: Path) -> None:
        body = b'{"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}]}'
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        with raw_server(head + b"Content-Length: %d\r\n\r\n" % len(body) + body) as port:
            text = f"base_url: http://127.0.0.1:{port}\nprovider: external\n"
            (tmp_path / "gateway.yaml").write_text(text)
            said = self.run(tmp_path, "--target", "gateway.yaml", "--allow-cost")
        assert (
            "answered 200 in the words of anthropic-messages, and was asked in those of openai-chat (" in said
        )
        assert "say `flavour: anthropic-messages` in the target file" in said

    def test_the_providers_port_is_taken(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
            done = agentload("run", "noisy-neighbor", "--provider-port", port, cwd=tmp_path)
            assert f"--provider-port {port}: " in refused(done, ExitCode.USAGE)
            assert not (tmp_path / "reports").exists(), "nothing was started"

    def test_the_given_provider_is_not_there(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        assert "provider" in self.run(tmp_path, "--provider", f"http://127.0.0.1:{port}")

    def test_the_targets_upstream_is_nobody(self, tmp_path: Path) -> None:
        answer = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"
        with raw_server(answer) as port:
            said = self.run(tmp_path, "--target", f"http://127.0.0.1:{port}")
        assert "answered 502: the gateway cannot reach its upstream: does it call http://127.0.0.1:" in said
        assert "where our provider listens?" in said
        assert "HTML" not in said

    def test_the_targets_upstream_is_not_our_provider(self, tmp_path: Path) -> None:
        body = b'{"choices": []}'
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        head += b"Content-Length: %d\r\n\r\n" % len(body)
        with raw_server(head + body) as port:
            said = self.run(tmp_path, "--target", f"http://127.0.0.1:{port}")
        assert "our provider saw nothing: is the gateway's upstream http://127.0.0.1:" in said
