"""The master's side of Locust: its runner, and the web UI where one is wanted. Imports locust: only
`locust_master` may import this, after gevent has patched the process.
"""

from __future__ import annotations

from typing import Any

from flask import request
from locust import User, argument_parser, events
from locust.env import Environment

from agentload.drivers.locust_common import shard_class
from agentload.drivers.protocol import MasterConfig
from agentload.errors import InconclusiveError


def listening(config: MasterConfig) -> Any:
    """The runner, which workers can connect to. Raises InconclusiveError when it cannot listen."""
    environment: Any = _environment(shard_class(lambda: None))
    try:
        runner = environment.create_master_runner(config.bind, config.bind_port)
    except (Exception, SystemExit) as error:
        raise InconclusiveError(f"cannot listen on {config.bind}:{config.bind_port}: {error}") from error
    if config.web_port:
        _open_web_ui(environment, config.web_port)
    return runner


def _environment(shard: type[User]) -> Environment:
    """The master's. It has no options to pass on: for each one a worker would ask its argument parser."""
    return Environment(user_classes=[shard], events=events, parsed_options=None)


def _open_web_ui(environment: Environment, port: int) -> None:
    """Locust's own, on loopback alone, to look at and to stop the run: what it would start is not planned.

    It asks Locust's parser for options of a user's own, which reads this process's command line,
    ./locust.conf, ./pyproject.toml and LOCUST_*, and ends it for what it does not know: there are none.
    """
    argument_parser.ui_extra_args_dict = _no_options
    ui = environment.create_web_ui("127.0.0.1", port, delayed_start=True)

    @ui.app.before_request  # type: ignore[untyped-decorator]
    def refuse_to_start() -> tuple[str, int] | None:
        if request.path in ("/swarm", "/user"):
            return "agentload has planned this run: start another with `agentload run`\n", 403
        return None

    ui.start()


def _no_options(args: object = None) -> dict[str, dict[str, Any]]:  # noqa: ARG001
    return {}
