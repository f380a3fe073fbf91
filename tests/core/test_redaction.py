"""Secrets do not get written down; what only sounds like one does."""

from __future__ import annotations

import pytest

from agentload.redaction import without_secrets

KEPT = [
    "run",
    "--seed",
    "7",
    {"tokens_per_minute": 1000, "max_tokens": 5, "key_env": "GATEWAY_KEY", "monkey": "yes"},
    [["Authorization", "Bearer {tenant}"], ["X-Api-Key", "{tenant}"]],
    [["Authorization", "Bearer {env:GATEWAY_KEY_{tenant}}"], ["X-Tenant", "{tenant}"]],
    "http://127.0.0.1:8080/v1",
    {"api_key": None},
]
SECRET = [
    {"api_key": "hunter2"},
    {"X-API-Key": "hunter2"},
    {"nested": [{"Authorization": "Basic hunter2"}]},
    {"Set-Cookie": "hunter2"},
    [["X-Api-Key", "hunter2"]],
    [["X-Api-Key", "hunter2-{tenant}"]],
    [["Authorization", "Basic hunter2 {tenant}"]],
    "Authorization: Bearer hunter2",
    "http://user:hunter2@host/path",
    "sk-hunter2",
    ("a", ["b", "bearer hunter2"]),
]


@pytest.mark.parametrize("value", KEPT, ids=str)
def test_kept(value: object) -> None:
    assert without_secrets(value) == value


@pytest.mark.parametrize("value", SECRET, ids=str)
def test_blanked(value: object) -> None:
    safe = str(without_secrets(value))
    assert "hunter2" not in safe
    assert "***" in safe


def test_the_original_is_left_alone() -> None:
    value = {"api_key": "hunter2"}
    without_secrets(value)
    assert value == {"api_key": "hunter2"}
