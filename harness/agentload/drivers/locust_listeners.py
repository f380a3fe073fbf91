"""What a user's own file asks Locust to be told of, besides requests: `events.init`, its options, the end.

Locust's own program fires these before it has a runner, or when it quits; a worker of ours imports the file
later, and ends otherwise. Imports locust: only the Locust processes may import this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import gevent
from locust.argument_parser import get_empty_argument_parser

_NAMES = ("init_command_line_parser", "init", "test_stop")
END_S = 2.0
"""How long listeners may take at the end."""

log = logging.getLogger(__name__)


class Listeners:
    """Made before the files are imported: what they add is theirs."""

    def __init__(self, environment: Any, host: str) -> None:
        """`host`: the target's, for those that ask the environment for it."""
        self._environment, self._host = environment, host
        self._hook("test_start").add_listener(self._on_test_start)
        self._before = {name: list(self._hook(name)._handlers) for name in _NAMES}

    def begin(self, told: Callable[[BaseException], None]) -> None:
        """The files are there. `told` hears what their listeners raise.

        An option of theirs has its default, or what its environment variable says: there is no command line.
        """
        self._environment.host = self._host
        if parsers := self._theirs("init_command_line_parser"):
            parser = get_empty_argument_parser(add_help=False, default_config_files=[])
            for listener in parsers:
                _call(told, listener, parser=parser)
            _call(told, self._take_options, parser)
        for listener in self._theirs("init"):
            _call(told, listener, environment=self._environment, runner=self._environment.runner, web_ui=None)

    def end(self, told: Callable[[BaseException], None]) -> None:
        """The last of their users has gone; Locust must not tell it again."""
        listeners, hook = self._theirs("test_stop"), self._hook("test_stop")
        quietly: Any = False
        with gevent.Timeout(END_S, quietly):
            for listener in listeners:
                hook.remove_listener(listener)
                _call(told, listener, environment=self._environment)

    def leave(self) -> None:
        """Another run begins in this process."""
        self._hook("test_start").remove_listener(self._on_test_start)

    def _on_test_start(self, **_: Any) -> None:
        """Before theirs: the master knows no host, and says so when a test begins."""
        self._environment.host = self._host

    def _take_options(self, parser: Any) -> None:
        for name, value in vars(parser.parse_args([])).items():
            if not hasattr(self._environment.parsed_options, name):
                setattr(self._environment.parsed_options, name, value)

    def _theirs(self, name: str) -> list[Callable[..., object]]:
        return [one for one in self._hook(name)._handlers if one not in self._before[name]]

    def _hook(self, name: str) -> Any:
        return getattr(self._environment.events, name)


def _call(
    told: Callable[[BaseException], None], listener: Callable[..., object], *given: Any, **named: Any
) -> None:
    try:
        listener(*given, **named)
    except (Exception, SystemExit) as error:
        log.exception("a listener of a user's own file")
        told(error)
