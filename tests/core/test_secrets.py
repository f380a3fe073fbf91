"""A target that says our key back does not get it written down; a key in a target file is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload import targets
from agentload.client.wire import Ending, ReplyReader
from agentload.errors import ProfileError
from agentload.targets import Target

KEY = "sk-Very-Secret-123"
ENVIRONMENT = {
    "KEY_ACME": f"Bearer {KEY}",
    "KEY_ZED_9": "other-secret",
    "HOME": "/some/where",
    "KEYS": "hidden",
}


def target(*templates: str) -> Target:
    fields = tuple((f"X-{place}", text) for place, text in enumerate(templates))
    return Target("t", "127.0.0.1", 1, "/", templates=fields, environment=ENVIRONMENT)


def test_every_tenants_key_is_blanked_in_any_capitals() -> None:
    redact = target("{env:KEY_{tenant}}", "{tenant}").redactor()
    assert redact(f"bad key {KEY.upper()} or Other-secret, /some/where") == "bad key *** or ***, /some/where"
    assert redact("hidden 7") == "hidden 7"


def test_a_target_without_keys_blanks_nothing() -> None:
    assert target("Bearer {tenant}").redactor()(KEY) == KEY


def test_what_is_copied_from_an_answer_is_blanked_before_it_is_cut() -> None:
    redact = target("{env:KEY_ACME}").redactor()
    for fields, body in (
        ([(b"X-Admission-Reason", b"x" * 110 + KEY.encode())], b""),
        ([], b'{"error": {"message": "' + b"y" * 110 + KEY.encode() + b'"}}'),
    ):
        reader = ReplyReader(False, 1, redact)
        reader.head(429, [*fields, (b"Retry-After", KEY.encode())], 0.0)
        reader.feed(body, 1)
        result = reader.result(Ending.COMPLETE, 0)
        assert result.retry_after == "***"
        assert result.reason is not None
        assert result.reason.endswith("***")
        assert "sk-" not in result.reason.lower()


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "api-key", "X-Auth-Token", "Cookie"])
def test_a_key_in_a_target_file_is_refused_with_its_place(tmp_path: Path, name: str) -> None:
    file = tmp_path / "gw.yaml"
    file.write_text(f"base_url: http://127.0.0.1:1\nheaders:\n  {name}: {KEY}\n")
    with pytest.raises(ProfileError) as raised:
        targets.load(str(file), {})
    [line] = raised.value.lines
    assert line.startswith(f"{file}:3:")
    assert line.endswith(f"headers.{name}: is a key: put it into the environment: {{env:NAME}}")
    assert KEY not in line


@pytest.mark.parametrize(
    "field", ["Authorization: 'Bearer {env:K}'", "X-Api-Key: '{tenant}'", "X-Team: a", "Idempotency-Key: a"]
)
def test_placeholders_and_other_fields_are_not(tmp_path: Path, field: str) -> None:
    file = tmp_path / "gw.yaml"
    file.write_text(f"base_url: http://127.0.0.1:1\nheaders:\n  {field}\n")
    assert len(targets.load(str(file), {"K": KEY}).templates) == 1
