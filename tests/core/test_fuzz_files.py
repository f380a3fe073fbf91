"""Thousands of malformed profiles, targets and configurations: read, or refused line by line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from agentload import profile, targets
from agentload.client.metrics_page import read_page
from agentload.errors import AgentloadError, ProfileError
from agentload.gateway import config_file
from agentload.model import Arrival, Job
from agentload.targets._keys import read_keys, refuse_missing
from agentload.yaml_positions import MAX_PROBLEMS, compose
from fuzzing import YAML_SCRAPS, peak_kib, spoilt

PROFILES = [path.read_bytes() for path in sorted(profile.bundled_folder().glob("*.yaml"))]
TARGETS = [
    b"base_url: http://127.0.0.1:1\ndeclares:\n  fairness: seconds\n  tenants: {a: {weight: 2, burst_s: 1}}\n"
    b"  classes: {x: {min_units: 5}}\n  slots: 3\n  queue: {requests: 9, age_s: 2}\n  jobs: {lease_s: 1}\n",
    b"base_url: http://127.0.0.1:8080/v1\nmodel: gpt-4o\nheaders:\n  Authorization: \"Bearer {env:KEY}\"\n"
    b"  X-Tenant: '{tenant}'\nprovider: {listens: \"127.0.0.1:9100\"}\n",
    b"base_url: http://127.0.0.1:1/v1/messages\nbody: {temperature: 0, tags: [a, {b: c}]}\n",
    b"base_url: http://127.0.0.1:1\nflavour: openai-responses\nbackground: true\npoll_s: 0.5\nbody: {a: 1}\n",
    b"base_url: http://127.0.0.1:1\nflavour: jobs\npath: /predictions\npoll_s: 1\njobs:\n  body: {input: {"
    b"prompt: '{prompt}', n: '{max_tokens}'}}\n  poll: /predictions/{id}\n  state: status\n  done: [ok]\n"
    b"  text: output.0\n  output_tokens: usage.out\n",
    b"base_url: http://127.0.0.1:1\nflavour: http\npath: /generate\nhttp:\n  method: PUT\n  body: {inputs:"
    b" '{prompt}', of: '{tenant}/{class}'}\n  text: generated_text\n",
    b"base_url: http://127.0.0.1:1\nkeys: {command: './make {n}'}\ntls: {ca: a.pem, client_cert: b.pem}\n"
    b"health: /healthz\nmetrics: {url: /m, waiting: 'a{b=\"c\",d=~\"e|f\"}', queue_age_s: q.*.age}\n"
    b"process: {pid_file: gw.pid, restart: 'start \"it\"'}\n",
    b"base_url: https://[::1]:8443\npath: /chat\ntenant_header: X-Org\nprovider:\n  running: http://127.0.0.1:9\n",
]  # fmt: skip
CONFIGS = [
    b"pools:\n  agent-shared:\n    capacity_units: 100\n    classes:\n      urgent: &c {nominal_share: 0.5,"
    b" min_units: 20, max_queue: 200}\n      batch:\n        <<: *c\n        nominal_share: 0.2\n"
    b"tenants:\n  a: {weight: 2, key_env: A_KEY}\nretry: {max_attempts: 3, base_seconds: 1, jitter: full}\n"
    b"server: {keepalive_s: 60}\n",
]
MOST_KIB = 256 * 1024
ARRIVAL = Arrival(
    seq=7, tenant="a", service_class="standard", phase="load", due_ns=0,
    job=Job(input_tokens=24, output_tokens=10, declared_output_tokens=48),
)  # fmt: skip


def runs(few: int) -> pytest.MarkDecorator:
    many = pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])
    return pytest.mark.parametrize("count", [few, many])


def check_lines(lines: tuple[str, ...]) -> None:
    assert 1 <= len(lines) <= MAX_PROBLEMS + 1
    assert all(line.isprintable() and 0 < len(line) < 2_500 for line in lines), lines


def tally(read: Callable[[bytes], object], examples: list[bytes], count: int, seed: int) -> tuple[int, int]:
    """How many were read, and how many refused, within bounded memory."""
    good, refused, before_kib = 0, 0, peak_kib()
    for data in spoilt(examples, YAML_SCRAPS, count, seed):
        try:
            read(data)
            good += 1
        except AgentloadError as error:
            refused += 1
            check_lines(error.lines)
    assert peak_kib() - before_kib < MOST_KIB
    return good, refused


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes], Path]:
    path = tmp_path / "fuzz.yaml"

    def write(data: bytes) -> Path:
        path.write_bytes(data)
        return path

    return write


@runs(60)
def test_a_malformed_profile_is_read_or_refused(count: int, file: Callable[[bytes], Path]) -> None:
    good, refused = tally(lambda data: profile.quick(profile.load(file(data))), PROFILES, count, seed=1)
    assert good
    assert refused


@runs(300)
def test_a_malformed_target_is_read_or_refused(count: int, file: Callable[[bytes], Path]) -> None:
    environment = {"KEY": "secret"}

    def read(data: bytes) -> object:
        target = targets.load(str(file(data)), environment)
        return json.loads(target.api.request_body("ref one", ARRIVAL, target.model))

    good, refused = tally(read, TARGETS, count, seed=2)
    assert good
    assert refused


@runs(300)
def test_a_malformed_configuration_is_read_or_refused(count: int, file: Callable[[bytes], Path]) -> None:
    good, refused = tally(lambda data: config_file.load(file(data)), CONFIGS, count, seed=3)
    assert good
    assert refused


@runs(100)
def test_a_malformed_setting_is_taken_or_refused(count: int) -> None:
    steady = (profile.bundled_folder() / "steady.yaml").read_text()
    examples = [
        b"provider.slots=8",
        b"phases.steady.seconds=5",
        b"checks.0.max_wait_s={a: 1}",
        b"gateway.x=1",
    ]

    def read(data: bytes) -> object:
        return profile.parse(steady, "steady.yaml", [data.decode("utf-8", "surrogateescape")])

    assert tally(read, examples, count, seed=4)[1]


NESTED = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 9}]\n" for n in range(1, 9))
BOMBS = {
    "texts": f"a: &a {'x' * 4000}\nb: [{'*a,' * 3000}]",
    "keys": f"a: &a\n  ? {'k' * 4000}\n  : 1\nb: [{'*a,' * 3000}]",
    "merges": f"a: &a {{{', '.join(f'k{n}: 1' for n in range(1000))}}}\nb: {{<<: [{'*a,' * 1000}]}}",
    "lists": NESTED,
    "itself": "a: &a [*a]",
}  # fmt: skip


@pytest.mark.parametrize("text", ["pools:\n  ? {key}\n  : {{a: 1}}", "pools:\n  <<:\n    ? {key}\n    : 1"])
def test_a_key_without_end_is_refused(text: str) -> None:
    with pytest.raises(AgentloadError, match="a key has more than 200 characters"):
        config_file.parse(text.format(key="k" * 201), "key.yaml")


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_of_aliases_is_refused(name: str) -> None:
    with pytest.raises(ProfileError, match="aliases count each time") as refused:
        compose(BOMBS[name], "bomb.yaml")
    assert len(refused.value.lines) == 1


def test_many_problems_are_told_up_to_a_bound_and_none_without_end() -> None:
    pool = "p" * 150
    text = f"pools:\n  ? {pool}\n  : {{{', '.join(f'k{n}: 1' for n in range(MAX_PROBLEMS + 5))}}}"
    with pytest.raises(AgentloadError) as refused:
        config_file.parse(text, "many.yaml")
    assert len(refused.value.lines) == MAX_PROBLEMS + 1
    assert refused.value.lines[-1] == f"many.yaml: there may be more: only {MAX_PROBLEMS} problems are told"
    assert max(map(len, refused.value.lines)) < 2_500


@pytest.mark.parametrize(
    "text",
    ["a: !%ED%A0%80 b", "a: !%0Ax b", '"a\\nb": 1', '"a\\x1b[2Jb": 1', "a: \udcff"],
    ids=[
        "tag of half a character",
        "line break in a tag",
        "line break in a key",
        "escape in a key",
        "surrogate",
    ],
)
def test_each_problem_is_one_printable_line(text: str) -> None:
    with pytest.raises(AgentloadError) as refused:
        config_file.parse(text, "odd.yaml")
    assert all(line.isprintable() for line in refused.value.lines)


def test_a_configuration_without_end_is_refused() -> None:
    with pytest.raises(ProfileError, match="is a device, not a file"):
        config_file.load(Path("/dev/zero"))


KEYS = [
    b"quiet-1=sk-a\nflood='b c'\n",
    b"sk-1\nsk-2==\n",
    b"quiet-1: sk-1\nflood: {a: b}\n",
    b'["sk-1", "sk-2"]',
]


@runs(300)
def test_malformed_keys_are_read_or_refused_without_a_word_of_them(count: int) -> None:
    def read(data: bytes) -> None:
        refuse_missing(
            read_keys(data.decode("utf-8", "replace"), ["quiet-1", "flood"], "k"), ["quiet-1", "flood"], "k"
        )

    good, refused = tally(read, KEYS, count, 5)
    assert good
    assert refused


PAGES = [
    b'# TYPE up gauge\nup{job="a",x="\\"y"} 1\nup 2.5 1395066363000\nother 3\n',
    b'{"queue": {"depth": 4, "ages": [1, 3.5]}, "up": 2, "now_ns": 5}',
]


@runs(1_000)
def test_a_malformed_metrics_page_is_read_or_refused(count: int) -> None:
    series = {"waiting": 'up{job="a"}', "in_flight": "queue.*.1", "oldest_age_s": "queue.ages.*", "x": "up"}
    good, refused = 0, 0
    for data in spoilt(PAGES, [*YAML_SCRAPS, b"NaN", b"{", b'"', b"1e999"], count, 6):
        try:
            assert all(math.isfinite(value) for value in read_page(data, series).values())
            good += 1
        except ValueError:
            refused += 1
    assert good > count // 10
    assert refused
