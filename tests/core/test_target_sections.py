"""What a target file says of keys, certificates, health, metrics and the process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentload import targets
from agentload.errors import ProfileError
from agentload.targets import Target
from agentload.targets._keys import handed_over, read_keys, refuse_missing, to_hand_over
from agentload.targets._metrics import selector

TENANTS = ["quiet-1", "flood"]
BASE = "base_url: http://127.0.0.1:8080\n"


def load(tmp_path: Path, text: str) -> Target:
    (tmp_path / "gw.yaml").write_text(BASE + text)
    return targets.load(str(tmp_path / "gw.yaml"), {})


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ProfileError) as raised:
        load(tmp_path, text)
    [line] = raised.value.lines
    return line.removeprefix(f"{tmp_path}/")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("keys: {}", "gw.yaml:2:7: keys: needs one of file, command or env"),
        ("keys: {file: a, env: B}", "gw.yaml:2:7: keys: needs one of file, command or env"),
        ("keys: {env: 'A B'}", "gw.yaml:2:13: keys.env: must be a variable's name such as "),
        ("keys: {command: \"a 'b\"}", "gw.yaml:2:17: keys.command: is no command: no closing quotation"),
        ("keys: {command: '  '}", "gw.yaml:2:17: keys.command: is no command: it is empty"),
        (
            "keys: {file: a}\nheaders: {Authorization: 'Bearer {tenant}'}",
            "gw.yaml:2:7: keys: no header holds {key}: say in headers which one does",
        ),
        (
            "headers: {X-Key: '{key}'}",
            "gw.yaml:2:18: headers.X-Key: there are no keys: add keys: {file: keys.yaml}",
        ),
        ("tls: {}", "gw.yaml:2:6: tls: needs ca, or client_cert"),
        ("tls: {client_key: a}", "gw.yaml:2:6: tls: client_key needs client_cert"),
        ("tls: {verify: false}", "gw.yaml:2:7: tls.verify: unknown key (known: ca, client_cert, client_key)"),
        ("health: healthz", "gw.yaml:2:9: health: must be a path such as /healthz, got 'healthz'"),
        (
            "tls: {ca: ca.pem}",
            "gw.yaml:2:1: tls: has no effect with http:// (did you mean https://127.0.0.1:8080?)",
        ),
        ("headers: {Authorization: 'Bearer {tennant}'}", "gw.yaml:2:26: headers.Authorization: unknown "),
        (
            "metrics: {url: /m}",
            "gw.yaml:2:10: metrics: needs a series for at least one of waiting, queue_age_s and in_flight",
        ),
        ("metrics: {url: m, waiting: a}", "gw.yaml:2:16: metrics.url: must be a path such as "),
        (
            "metrics: {url: /m, waiting: 'a{b=c}'}",
            'gw.yaml:2:29: metrics.waiting: must be a series such as name{label="value"}',
        ),
        (
            "metrics: {url: /m, waiting: 'a{b=~\"(\"}'}",
            "gw.yaml:2:29: metrics.waiting: b=~: is no regular expression: missing )",
        ),
        ("process: {}", "gw.yaml:2:10: process: needs one of pid, pid_file or name"),
        ("process: {pid: 1}", "gw.yaml:2:16: process.pid: must be > 1, got 1"),
        ("process: {name: a, restart: ''}", "gw.yaml:2:29: process.restart: must not be empty"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_with_their_place(tmp_path: Path, text: str, line: str) -> None:
    assert refusal(tmp_path, text).startswith(line)


def test_metrics_are_a_path_or_a_url_of_series_or_of_json(tmp_path: Path) -> None:
    text = "metrics: {url: /admin/m, waiting: 'a{b=\"c\"}', queue_age_s: queues.*.age}\nhealth: /healthz\n"
    target = load(tmp_path, text)
    assert target.metrics is not None
    assert target.metrics.url == "http://127.0.0.1:8080/admin/m"
    assert target.metrics.series == {"waiting": 'a{b="c"}', "oldest_age_s": "queues.*.age"}
    assert target.health == "/healthz"


def test_metrics_elsewhere_are_a_stranger_too(tmp_path: Path) -> None:
    text = "metrics: {url: 'http://10.0.0.1/m', waiting: a}"
    (tmp_path / "gw.yaml").write_text(BASE + text)
    with pytest.raises(targets.UsageError, match=r"10\.0\.0\.1 is not this machine"):
        targets.load(str(tmp_path / "gw.yaml"), {})
    assert targets.load(str(tmp_path / "gw.yaml"), {}, allow_hosts=["10.0.0.1"]).metrics is not None


def load_tls(tmp_path: Path, text: str) -> Target:
    (tmp_path / "gw.yaml").write_text(f"base_url: https://127.0.0.1:8443\ntls: {{ca: ca.pem}}\n{text}")
    return targets.load(str(tmp_path / "gw.yaml"), {})


def test_certificates_are_also_for_pages_beside_a_plain_target(tmp_path: Path) -> None:
    for beside in (
        "metrics: {url: 'https://127.0.0.1:1/m', waiting: a}",
        "provider: {running: 'https://[::1]:1'}",
    ):
        assert load(tmp_path, f"tls: {{ca: ca.pem}}\n{beside}\n").trust is not None


def test_files_lie_beside_the_target_file(tmp_path: Path) -> None:
    target = load_tls(tmp_path, "process: {pid_file: run/gw.pid}\nkeys: {file: k}\n")
    assert (target.trust and target.trust.ca) == str(tmp_path / "ca.pem")
    assert (target.process and target.process.pid_file) == str(tmp_path / "run/gw.pid")
    assert target.keys is not None
    assert (target.keys.file, target.keys.folder) == ("k", str(tmp_path))


def test_what_is_handed_on_holds_no_key_and_no_commands_arguments(tmp_path: Path) -> None:
    text = "keys: {command: './make --token s3cret'}\nprocess: {name: gw, restart: 'gw --key s3cret'}\n"
    target = load(tmp_path, text)
    target = targets.replace(target, keyring={"quiet-1": "k-s3cret"})
    said = json.dumps(target.to_dict())
    assert "s3cret" not in said
    assert "s3cret" not in repr(target).replace("--token s3cret", "").replace("--key s3cret", "")
    again = Target.from_dict(json.loads(said), {})
    assert (again.keys and again.keys.command, again.process and again.process.restart) == ("./make", "gw")
    assert again.keyring == {}


def test_a_key_is_sent_as_the_usual_bearer_or_as_a_header_says(tmp_path: Path) -> None:
    assert load(tmp_path, "keys: {file: k}").templates == (("Authorization", "Bearer {key}"),)
    named = load(tmp_path, "keys: {file: k}\ntenant_header: X-Team").templates
    assert named == (("Authorization", "Bearer {key}"), ("X-Team", "{tenant}"))
    assert load(tmp_path, "keys: {file: k}\nheaders: {x-api-key: '{key}'}").templates == (
        ("x-api-key", "{key}"),
    )


def test_a_key_that_comes_back_is_blanked(tmp_path: Path) -> None:
    target = targets.replace(load(tmp_path, "keys: {file: k}"), keyring={"flood": "abcd1234"})
    assert target.redactor()("no such key: ABCD1234") == "no such key: ***"


@pytest.mark.parametrize(
    "text",
    [
        "quiet-1=a=\nflood = 'b c'\n# nobody=x\n",
        "quiet-1: a=\nflood: b c",
        '{"quiet-1": "a=", "flood": "b c", "somebody": "d"}',
        "- a=\n- b c\n- d",
        '["a=", "b c"]',
    ],
)
def test_every_form_of_keys(text: str) -> None:
    keys = read_keys(text, TENANTS, "k")
    assert {name: keys[name] for name in TENANTS} == {"quiet-1": "a=", "flood": "b c"}


def test_plain_lines_are_handed_out_in_order() -> None:
    assert read_keys("sk-1==\nsk-2\nsk-3\n", TENANTS, "k") == {"quiet-1": "sk-1==", "flood": "sk-2"}
    assert read_keys("other=a1\n", TENANTS, "k") == {"other": "a1"}


@pytest.mark.parametrize("text", ["a: [", "a b", "quiet-1: 017", "quiet-1: {a: s3cret}", "- [s3cret]"])
def test_what_holds_no_keys_is_one_line_without_its_text(text: str) -> None:
    with pytest.raises(ProfileError) as raised:
        refuse_missing(read_keys(text, TENANTS, "k"), TENANTS, "k")
    assert "s3cret" not in str(raised.value)
    assert len(raised.value.lines) == 1


def test_who_has_no_key_is_named() -> None:
    with pytest.raises(ProfileError) as raised:
        refuse_missing({"quiet-1": "a", "flood": ""}, TENANTS, "gw.yaml: keys.file k")
    assert (
        str(raised.value) == "gw.yaml: keys.file k: needs 2 keys (quiet-1, flood), you gave 1: flood has none"
    )


def test_keys_are_handed_over_by_name() -> None:
    keys = {"quiet-1": "a", "flood": "b=c"}
    assert handed_over({"HOME": "/", **to_hand_over(keys)}) == keys


@pytest.mark.parametrize(
    ("text", "labels", "holds"),
    [
        ('a{cluster="x"}', {"cluster": "x"}, True),
        ('a{cluster="x"}', {"cluster": "y"}, False),
        ('a{cluster!="x"}', {}, True),
        ('a{cluster=~"x|y", zone="1"}', {"cluster": "y", "zone": "1"}, True),
        ('a{cluster=~"x|y"}', {"cluster": "yy"}, False),
        ('a{cluster!~"x.*",}', {"cluster": "xz"}, False),
        (r'a{cluster="\"x\""}', {"cluster": '"x"'}, True),
        ("a{}", {"cluster": "x"}, True),
        ("a", {}, True),
    ],
)
def test_a_selector_is_prometheus_own(text: str, labels: dict[str, str], holds: bool) -> None:
    meant = selector(text)
    assert meant.name == "a"
    assert all(matcher.holds(labels) for matcher in meant.matchers) is holds
