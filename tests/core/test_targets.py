"""Targets: where the gateway is and how it tells its callers apart, with keys that nobody sees."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from agentload import flavours, profile, targets
from agentload.errors import AgentloadError, ProfileError, UsageError
from agentload.model import Arrival, Job
from agentload.targets import Target

SECRET = "sk-very-secret"
ENVIRONMENT = {"GATEWAY_KEY": SECRET, "KEY_QUIET_1": "k1", "KEY_FLOOD": "k2"}
PLACEHOLDERS = "(known: {tenant}, {class}, {key}, {env:NAME})"
ARRIVAL = Arrival(
    seq=1,
    tenant="quiet-1",
    service_class="premium",
    phase="calm",
    due_ns=10_000_000,
    job=Job(input_tokens=24, output_tokens=8, declared_output_tokens=48),
)


def headers(target: Target) -> dict[str, str]:
    return dict(target.headers(ARRIVAL, 2, 0))


def refusal(text: str, environment: Mapping[str, str] = ENVIRONMENT) -> list[str]:
    with pytest.raises(UsageError) as raised:
        targets.load(text, environment)
    return list(raised.value.lines)


class TestUrl:
    def test_address_and_path(self) -> None:
        target = targets.load("http://127.0.0.1:8080", {})
        assert (target.host, target.port, target.tls) == ("127.0.0.1", 8080, False)
        assert (target.base_url, target.path) == ("http://127.0.0.1:8080", "/v1/chat/completions")

    @pytest.mark.parametrize(
        ("url", "base_url", "path"),
        [
            ("http://localhost/", "http://localhost", "/v1/chat/completions"),
            ("https://localhost", "https://localhost", "/v1/chat/completions"),
            ("https://localhost:80/v1/", "https://localhost:80", "/v1/chat/completions"),
            ("http://[::1]:8080/llm", "http://[::1]:8080", "/llm/v1/chat/completions"),
            ("http://LOCALHOST.:9/a/v1", "http://localhost.:9", "/a/v1/chat/completions"),
        ],
    )
    def test_forms(self, url: str, base_url: str, path: str) -> None:
        target = targets.load(url, {})
        assert (target.base_url, target.path) == (base_url, path)

    def test_tenants_are_named_in_both_usual_ways(self) -> None:
        assert headers(targets.load("http://127.0.0.1:1", {})) == {
            "Authorization": "Bearer quiet-1",
            "X-Tenant": "quiet-1",
            "X-Service-Class": "premium",
            "X-Workflow": "chat",
            "X-Attempt": "2",
        }

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("127.0.0.1:8080", "must be a URL with its scheme (did you mean 'http://127.0.0.1:8080'?)"),
            ("ftp://127.0.0.1", "must begin with http:// or https://, not ftp://"),
            ("http://127.0.0.1:x", "is not a URL: "),
            ("http://127.0.0.1:0", "is not a URL such as http://127.0.0.1:8080"),
            ("http://127.0.0.1:99999", "is not a URL: "),
            ("http://", "is not a URL such as http://127.0.0.1:8080"),
            ("http://a b", "is not a URL such as"),
            ("http://a..b", "is not a URL such as"),
            ("https://.a", "is not a URL such as"),
            (f"http://{'a' * 64}.example", "is not a URL such as"),
            ("http://[::1", "is not a URL: "),
            ("http://localhost/a b", "is not a URL such as"),
            ("http://localhost/\r\nX: y", "is not a URL such as"),
            ("http://localhost/?a=b", "must not have a query or fragment"),
            ("http://me:pw@localhost", "must not hold a user or password"),
        ],
    )
    def test_a_bad_one_is_one_line(self, url: str, message: str) -> None:
        [line] = refusal(url)
        assert message in line
        assert "pw" not in line or "password" in line.replace("me:pw", "")
        assert "\n" not in line

    def test_a_password_is_never_repeated(self) -> None:
        [line] = refusal(f"http://me:{SECRET}@localhost")
        assert SECRET not in line


class TestStrangers:
    @pytest.mark.parametrize(
        "host", ["gateway.example.com", "10.0.0.1", "0.0.0.0", "127.1", "localhost.evil.com"]
    )
    def test_other_machines_are_not_loaded(self, host: str) -> None:
        [line] = refusal(f"http://{host}:8080")
        assert f"{host} is not this machine" in line
        assert line.endswith(f"--allow-host {host}")

    @pytest.mark.parametrize(
        "url", ["http://127.0.0.1", "http://127.9.9.9", "http://[::1]", "http://localhost"]
    )
    def test_this_machine_is(self, url: str) -> None:
        assert targets.load(url, {}).name == url

    def test_unless_allowed(self) -> None:
        assert (
            targets.load("http://GW.example.com", {}, allow_hosts=["gw.Example.com"]).host == "gw.example.com"
        )

    def test_a_file_is_no_way_around(self, tmp_path: Path) -> None:
        path = tmp_path / "gw.yaml"
        path.write_text("base_url: https://gw.example.com")
        assert "is not this machine" in refusal(str(path))[0]
        assert targets.load(str(path), {}, allow_hosts={"gw.example.com"}).port == 443
        path.write_text("base_url: http://localhost\nprovider: {running: http://elsewhere.example}")
        assert "elsewhere.example is not this machine" in refusal(str(path))[0]


class TestFile:
    TEXT = """\
base_url: http://127.0.0.1:8080/v1
model: gpt-4o-mini
headers:
  Authorization: "Bearer {env:GATEWAY_KEY}"
  X-Team: "{class}/{tenant}"
  x-attempt: none
provider: {listens: "127.0.0.1:9100"}
"""

    def load(self, tmp_path: Path, text: str, environment: Mapping[str, str] = ENVIRONMENT) -> Target:
        path = tmp_path / "gw.yaml"
        path.write_text(text)
        return targets.load(str(path), environment)

    def refusal(self, tmp_path: Path, text: str) -> list[str]:
        with pytest.raises(ProfileError) as raised:
            self.load(tmp_path, text)
        return [line.removeprefix(f"{tmp_path}/") for line in raised.value.lines]

    def test_everything(self, tmp_path: Path) -> None:
        target = self.load(tmp_path, self.TEXT)
        assert (target.model, target.path) == ("gpt-4o-mini", "/v1/chat/completions")
        assert (target.provider.listens, target.provider.running) == ("127.0.0.1:9100", None)
        assert headers(target) == {
            "Authorization": f"Bearer {SECRET}",
            "X-Team": "premium/quiet-1",
            "x-attempt": "none",
            "X-Service-Class": "premium",
            "X-Workflow": "chat",
        }

    def test_a_provider_may_be_somebody_elses(self, tmp_path: Path) -> None:
        target = self.load(tmp_path, "base_url: http://localhost\nprovider: external\n")
        assert target.provider.external
        assert Target.from_dict(target.to_dict(), {}).provider == target.provider
        assert not self.load(tmp_path, "base_url: http://localhost\n").provider.external

    def test_a_path_of_its_own_and_a_tenant_header(self, tmp_path: Path) -> None:
        target = self.load(tmp_path, "base_url: http://localhost\npath: /api/chat\ntenant_header: X-Org\n")
        assert target.path == "/api/chat"
        assert headers(target)["X-Org"] == "quiet-1"
        assert "Authorization" not in headers(target)

    def test_without_headers_tenants_are_named_as_with_a_url(self, tmp_path: Path) -> None:
        target = self.load(tmp_path, "base_url: http://localhost\n")
        assert headers(target)["Authorization"] == "Bearer quiet-1"

    def test_a_key_for_each_tenant(self, tmp_path: Path) -> None:
        target = self.load(tmp_path, 'base_url: http://localhost\nheaders: {X-Key: "{env:KEY_{tenant}}"}\n')
        assert headers(target)["X-Key"] == "k1"
        target.check_tenants([("quiet-1", "a"), ("flood", "a")])
        with pytest.raises(
            ProfileError, match=r"gw.yaml: headers.X-Key: the environment variable KEY_SLOW is not set$"
        ):
            target.check_tenants([("quiet-1", "a"), ("slow", "a")])

    def test_a_key_that_is_no_header_value(self, tmp_path: Path) -> None:
        target = self.load(tmp_path, self.TEXT, {"GATEWAY_KEY": f"{SECRET}\r\nX-Evil: 1"})
        with pytest.raises(ProfileError, match="characters that no header may carry") as raised:
            target.check_tenants([("quiet-1", "a")])
        assert SECRET not in str(raised.value)

    def test_keys_are_in_no_repr_error_or_json(self, tmp_path: Path) -> None:
        target = self.load(tmp_path, self.TEXT)
        assert SECRET not in repr(target)
        assert SECRET not in str(target)
        assert SECRET not in json.dumps(target.to_dict())
        assert "{env:GATEWAY_KEY}" in json.dumps(target.to_dict())

    def test_a_worker_gets_the_same_target(self, tmp_path: Path) -> None:
        target = self.load(tmp_path, self.TEXT)
        again = Target.from_dict(json.loads(json.dumps(target.to_dict())), ENVIRONMENT)
        assert again == target
        assert headers(again) == headers(target)

    @pytest.mark.parametrize(
        ("text", "lines"),
        [
            ("", ["gw.yaml:1:1: must be a mapping with at least a base_url, got nothing"]),
            ("- 1", ["gw.yaml:1:1: must be a mapping with at least a base_url, got a list"]),
            ("model: m", ["gw.yaml:1:1: base_url: is required"]),
            (
                "base_url: localhost\nmodle: m",
                [
                    "gw.yaml:1:11: base_url: must be a URL with its scheme (did you mean 'http://localhost'?)",
                    "gw.yaml:2:1: modle: unknown key (did you mean 'model'?)",
                ],
            ),
            (
                'base_url: http://localhost\nheaders: {"X Y": a, Host: b, X-Z: "{tenat}", X-E: "{env:}"}',
                [
                    "gw.yaml:2:18: headers.X Y: 'X Y' is not the name of a header field",
                    "gw.yaml:2:27: headers.Host: Host is set by agentload itself",
                    f"gw.yaml:2:35: headers.X-Z: unknown placeholder {{tenat}} {PLACEHOLDERS}",
                    f"gw.yaml:2:51: headers.X-E: unknown placeholder {{env:}} {PLACEHOLDERS}",
                ],
            ),
            (
                "base_url: http://localhost\nprovider: {listens: '8080'}",
                ["gw.yaml:2:21: provider.listens: must be 127.0.0.1:PORT, got '8080'"],
            ),
            (
                "base_url: http://localhost\nprovider: {}",
                ["gw.yaml:2:11: provider: needs either listens or running, not both"],
            ),
            (
                "base_url: http://localhost\nprovider: extern",
                ["gw.yaml:2:11: provider: must be a mapping, got 'extern'"],
            ),
            (
                "base_url: http://localhost\nprovider: {external: true, running: 'http://h:1'}",
                ["gw.yaml:2:11: provider: needs either listens or running, not both"],
            ),
            (
                "base_url: http://localhost\nprovider: {running: here}",
                [
                    "gw.yaml:2:21: provider.running: must be a URL with its scheme (did you mean 'http://here'?)"
                ],
            ),
            (
                "base_url: http://localhost\npath: v1/chat",
                ["gw.yaml:2:7: path: must be a path such as /v1/chat/completions, got 'v1/chat'"],
            ),
            ("baseurl: http://localhost", ["gw.yaml:1:1: baseurl: unknown key (did you mean 'base_url'?)"]),
            ("base_url: [", ["gw.yaml:2:1: YAML syntax: did not find expected node content"]),
        ],
    )
    def test_mistakes_name_their_place(self, tmp_path: Path, text: str, lines: list[str]) -> None:
        assert self.refusal(tmp_path, text) == lines

    def test_a_missing_file(self) -> None:
        assert refusal("/no/gw.yaml") == ["/no/gw.yaml: cannot be read: no such file or directory"]


GENERATE = "{body: {q: '{prompt}'}, text: a}"


class TestFlavour:
    @pytest.mark.parametrize(
        ("url", "flavour", "path"),
        [
            ("http://localhost:1/v1/messages", "anthropic-messages", "/v1/messages"),
            ("http://localhost:1/a/v1/responses/", "openai-responses", "/a/v1/responses"),
            ("http://localhost:1/v1/jobs", "jobs", "/v1/jobs"),
            ("http://localhost:1/chat/completions", "openai-chat", "/chat/completions"),
            ("http://localhost:1/v1", "openai-chat", "/v1/chat/completions"),
            ("http://localhost:1/messages", "openai-chat", "/messages/v1/chat/completions"),
        ],
    )
    def test_a_url_that_ends_as_an_apis_path_is_of_that_api(
        self, tmp_path: Path, url: str, flavour: str, path: str
    ) -> None:
        (tmp_path / "gw.yaml").write_text(f"base_url: {url}")
        for target in (targets.load(url, {}), targets.load(str(tmp_path / "gw.yaml"), {})):
            assert (target.flavour, target.path) == (flavour, path)

    @pytest.mark.parametrize(
        ("text", "path"),
        [
            ("flavour: openai-chat", "/llm/v1/chat/completions"),
            ("flavour: openai-responses", "/llm/v1/responses"),
            ("flavour: anthropic-messages", "/llm/v1/messages"),
            ("flavour: jobs", "/llm/v1/jobs"),
            ("flavour: jobs\npath: /predictions", "/predictions"),
            (f"flavour: http\npath: /gen\nhttp: {GENERATE}", "/gen"),
            ("flavour: openai-chat\npath: /v1/messages", "/v1/messages"),
            ("path: /v1/messages", "/v1/messages"),
        ],
    )
    def test_each_has_its_own_path(self, tmp_path: Path, text: str, path: str) -> None:
        (tmp_path / "gw.yaml").write_text(f"base_url: http://localhost/llm\n{text}\n")
        assert targets.load(str(tmp_path / "gw.yaml"), {}).path == path

    def test_tenants_are_named_as_is_usual_in_it(self, tmp_path: Path) -> None:
        sent = headers(targets.load("http://localhost:1/v1/messages", {}))
        assert (sent["x-api-key"], sent["anthropic-version"]) == ("quiet-1", "2023-06-01")
        assert "Authorization" not in sent
        (tmp_path / "gw.yaml").write_text(
            "base_url: http://localhost/v1/messages\n"
            "headers: {anthropic-version: '2030-01-01', X-Org: '{tenant}'}"
        )
        sent = headers(targets.load(str(tmp_path / "gw.yaml"), {}))
        assert (sent["anthropic-version"], "x-api-key" in sent) == ("2030-01-01", False)

    def test_a_worker_speaks_it_too(self, tmp_path: Path) -> None:
        more = "flavour: openai-responses\nbackground: true\npoll_s: 2\nbody: {a: [1]}\n"
        (tmp_path / "gw.yaml").write_text(f"base_url: http://localhost\n{more}")
        target = targets.load(str(tmp_path / "gw.yaml"), {})
        again = Target.from_dict(json.loads(json.dumps(target.to_dict())), {})
        assert (again, again.api) == (target, target.api)
        assert (again.api.asks_after_s, again.api.body) == (2, {"a": [1]})
        assert target.to_dict()["flavour"] == "openai-responses"

    @pytest.mark.parametrize("name", flavours.SEAM.names())
    def test_a_probe_is_in_it(self, name: str) -> None:
        options = (
            {"http": {"body": {"q": "{prompt}"}, "text": "a", "method": "PUT"}} if name == "http" else {}
        )
        target = Target(name="t", host="127.0.0.1", port=1, path="/x", flavour=name, options=options)
        probe = targets.probe_request(target, profile.load(profile.find("noisy-neighbor")))
        assert (probe.method, b"ping" in probe.body) == ("PUT" if name == "http" else "POST", True)

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            (
                "flavour: openai-caht",
                "2:10: flavour: no flavour named 'openai-caht' (did you mean 'openai-chat'?",
            ),
            ("flavour: 5", "2:10: flavour: no flavour named 5 (known: "),
            ("jobs: {}", "2:1: jobs: belongs to flavour: jobs; this target's is openai-chat"),
            (
                "flavour: jobs\nbackground: true",
                "3:1: background: belongs to flavour: openai-responses; this ta",
            ),
            ("poll_s: 1", "2:1: poll_s: belongs to flavour: jobs or openai-responses; this target's is open"),
            (f"flavour: http\nhttp: {GENERATE}", "1:1: path: is required of the flavour http"),
            ("flavour: http\npath: /x", "1:1: http: is required"),
            (
                "flavour: http\nhttp: {body: {q: '{promt}'}}",
                "3:14: http.body: unknown placeholder {promt} (did",
            ),
            ("flavour: http\nhttp: {body: {q: x}, text: a}", "3:14: http.body: must hold {prompt}"),
            ("flavour: http\nhttp: {text: a..b}", "3:14: http.text: must be a place in the answer such as"),
            ("flavour: http\nhttp: {txt: a}", "3:8: http.txt: unknown key (did you mean 'text'?)"),
            ("flavour: jobs\njobs: {poll: /x}", "3:14: jobs.poll: must be a path with {id} in it"),
            ("flavour: jobs\njobs: {done: []}", "3:14: jobs.done: needs at least 1"),
            ("flavour: jobs\njobs: 3", "3:7: jobs: must be a mapping, got 3"),
            ("flavour: jobs\npoll_s: 0", "3:9: poll_s: must be > 0, got 0"),
            ("body: {model: x, a: 1}", "2:8: body.model: is set by agentload itself"),
            ("body: x", "2:7: body: must be a mapping, got 'x'"),
            ("flavor: jobs", "2:1: flavor: unknown key (did you mean 'flavour'?)"),
            ("backgrund: true", "2:1: backgrund: unknown key (did you mean 'background'?)"),
        ],
    )
    def test_mistakes_name_their_place(self, tmp_path: Path, text: str, line: str) -> None:
        (tmp_path / "gw.yaml").write_text(f"base_url: http://localhost\n{text}\n")
        lines = [one.removeprefix(f"{tmp_path}/gw.yaml:") for one in refusal(str(tmp_path / "gw.yaml"))]
        assert any(line in one for one in lines), lines


def test_what_is_no_target_at_all() -> None:
    [line] = refusal("gateway")
    assert line.startswith("--target gateway: must be a URL such as http://127.0.0.1:8080, or a YAML file")


def test_the_bundled_gateway_knows_tenants_by_name() -> None:
    target = targets.bundled("http://127.0.0.1:7777")
    assert (target.base_url, target.path) == ("http://127.0.0.1:7777", "/v1/chat/completions")
    assert headers(target)["X-Tenant"] == "quiet-1"
    assert "Authorization" not in headers(target)


def test_envelopes_of_tools_and_deadlines() -> None:
    job = Job(
        input_tokens=24,
        output_tokens=8,
        declared_output_tokens=48,
        workflow="agent",
        tool_calls=3,
        tool_ns=2_500_000_000,
        deadline_ns=5_000_000,
    )
    arrival = Arrival(seq=1, tenant="t", service_class="c", phase="p", due_ns=10_000_000, job=job)
    target = targets.bundled("http://127.0.0.1:7777")
    fields = dict(target.headers(arrival, 0, 11_200_000))
    assert fields["X-Workflow"] == "agent"
    assert (fields["X-Expected-Tool-Calls"], fields["X-Expected-Tool-Seconds"]) == ("3", "2.5")
    assert fields["X-Deadline-Ms"] == "4"
    assert dict(target.headers(arrival, 0, 99_000_000))["X-Deadline-Ms"] == "1"


def test_a_probe_is_a_small_call_of_the_first_tenant() -> None:
    chosen = profile.load(profile.find("noisy-neighbor"))
    probe = targets.probe_request(targets.bundled("http://127.0.0.1:7777"), chosen)
    assert probe.url == "http://127.0.0.1:7777/v1/chat/completions"
    assert dict(probe.headers)["X-Tenant"] == "quiet-1"
    assert json.loads(probe.body)["max_tokens"] == 1


def test_a_probe_needs_every_tenants_key(tmp_path: Path) -> None:
    path = tmp_path / "gw.yaml"
    path.write_text('base_url: http://localhost\nheaders: {X-Key: "{env:KEY_{tenant}}"}\n')
    with pytest.raises(ProfileError, match="KEY_QUIET_2 is not set"):
        targets.probe_request(
            targets.load(str(path), ENVIRONMENT), profile.load(profile.find("noisy-neighbor"))
        )


def test_every_error_is_for_people() -> None:
    for text in ("", "http://", "x.yaml", "nonsense", "http://x.example"):
        with pytest.raises(AgentloadError) as raised:
            targets.load(text, {})
        assert all(line and "\n" not in line for line in raised.value.lines)
