"""What the Locust master and its workers share. Imports locust: only `locust_master` and `locust_worker` may
import this, after gevent has patched the process.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import Any

from locust import User, constant, events, task
from locust.env import Environment
from locust.exception import StopUser

CONTEXT = "agentload"
"""The key in a request event's `context` by which we know our own."""
PLANNED = "planned"
"""Its value in events of planned load: they have their record."""
PAYLOAD = "agentload"
"""The key of our part in the data of a Locust message."""


def worker_environment(shard: type[User]) -> Environment:
    """A worker's, which reads no configuration of its own.

    Given no options, a worker parses ./locust.conf, ./pyproject.toml and LOCUST_* before its first user.
    Given no events, `@locust.events.*` listeners never fire.
    """
    options = argparse.Namespace(
        web_base_path="",
        headless=True,
        enable_rebalancing=False,
        tags=None,
        exclude_tags=None,
        stop_timeout=0.0,
        expect_workers=1,
    )
    return Environment(user_classes=[shard], events=events, parsed_options=options)


def shard_class(run_share: Callable[[], None]) -> type[User]:
    """The one user class: each worker plays one, and it runs the worker's whole share.

    More classes would be no use: Locust may hand all users of one class to one worker.
    """

    class Shard(User):  # type: ignore[misc]
        wait_time = constant(0)

        @task  # type: ignore[untyped-decorator]
        def play(self) -> None:
            run_share()
            raise StopUser

    return Shard


def log_to_stderr() -> None:
    """Locust's and our own log, without colours: it goes to a file in the run folder."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def payload(message: Any) -> bytes:
    """Our part of a Locust message."""
    return bytes(message.data[PAYLOAD])


def with_payload(body: bytes) -> dict[str, bytes]:
    """The data of a Locust message of ours: what `payload` reads again."""
    return {PAYLOAD: body}
