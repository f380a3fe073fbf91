"""What the tests of users of somebody's own code share: a Locust file, and a profile that plays it."""

from __future__ import annotations

from pathlib import Path

from agentload import profile
from agentload.model import Profile

USERS = '''\
"""Users as somebody might have written them for plain Locust."""

from agentload.locust import marked
from locust import FastHttpUser, HttpUser, User, constant, task


def body(user: User) -> dict[str, object]:
    message = {"role": "user", "content": marked(user, "Why is the sky blue?", output_tokens=8)}
    return {"model": "fake-model", "max_tokens": 8, "messages": [message]}


class Quick(FastHttpUser):
    wait_time = constant(0.05)

    @task
    def ask(self) -> None:
        self.client.post("/v1/chat/completions", json=body(self))


class Plain(HttpUser):
    wait_time = constant(0.05)

    @task
    def ask(self) -> None:
        with self.client.post("/v1/chat/completions", json=body(self), catch_response=True) as answer:
            answer.json()


class Unmarked(FastHttpUser):
    wait_time = constant(0.05)

    @task
    def ask(self) -> None:
        message = {"role": "user", "content": "Why is the sky blue?"}
        self.client.post("/v1/chat/completions", json={"model": "fake-model", "messages": [message]})
'''

PROFILE = """\
name: homegrown
about: Planned tenants beside users of somebody's own Locust file.
phases: [{name: before, seconds: 1}, {name: beside, seconds: 2}]
provider: {slots: 16, latency: {first_token_ms: 20, inter_token_ms: 2}}
gateway: {pools: {shared: {slots: 16}}}
tenants:
  - name: planned
    arrivals: {kind: uniform, rate: 20}
    workload: {kind: fixed, input_tokens: 24, output_tokens: 4}
  - name: own
    during: [beside]
    locust: {file: users.py, class: Quick, users: 5}
checks: [own-answer, status-codes]
"""


def written(folder: Path, text: str = PROFILE, users: str = USERS) -> Path:
    """The profile's path, with its users beside it."""
    (folder / "users.py").write_text(users)
    path = folder / "homegrown.yaml"
    path.write_text(text)
    return path


def loaded(folder: Path, text: str = PROFILE, users: str = USERS) -> Profile:
    """Written and read."""
    return profile.load(written(folder, text, users))
