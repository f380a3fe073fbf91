"""Runs the gateway as a process: binds, says when it is ready, drains on SIGTERM. SHELL."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import uvicorn
from prometheus_client import disable_created_metrics

from agentload.errors import UsageError
from agentload.gateway import config_file, log_lines
from agentload.gateway.app import build_app
from agentload.gateway.core import GatewayCore
from agentload.gateway.driver import Driver
from agentload.gateway.jobs import opening
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.shell import JobsShell
from agentload.gateway.protocol import Drain, Stop
from agentload.gateway.settings import GatewaySettings
from agentload.gateway.upstream import Upstream
from agentload.scheduler.addresses import base_url
from agentload.scheduler.config import GatewayConfig
from fake_provider.bounded_http import BoundedProtocol

LOG = logging.getLogger("agentload.gateway")
BACKLOG = 4_096
MAX_FILES = 65_536
_POLL_S = 0.05
_GIVE_BACK_NS = 2_000_000_000
"""How long saving what was given back may take."""


def serve(
    config_path: Path | None,
    *,
    upstream: str,
    host: str = "127.0.0.1",
    port: int = 8080,
    upstream_key_env: str | None = None,
    policy: str | None = None,
    mutant: str | None = None,
    jobs_db: Path | None = None,
    parent_pipe: bool = False,
    log_level: str = "warning",
    log_format: str = "text",
) -> None:
    """Serve until told to stop. Raises UsageError for a wrong configuration, and for an address in use.

    `upstream`: base URL of the provider; its key is read from the environment variable `upstream_key_env`.
    `jobs_db`: keep durable jobs in this file (`jobs:` of the configuration says the rest).
    `mutant`: the safeguard that is switched off (see `agentload.mutants`), to see what it is worth.
    `log_format`: text or json, one line for each event (see `log_lines`).
    `parent_pipe`: end when standard input reaches its end, so that no gateway outlives what started it.
    """
    _check_upstream(upstream)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # one gauge less for each counter
    _raise_file_limit()
    log_lines.configure(log_format, log_level, sys.stderr)
    config, settings = config_file.load(config_path)
    if policy is not None:
        config = config.model_copy(update={"policy": policy})
    config = opening.with_database(config, jobs_db)
    key = _upstream_key(upstream_key_env)
    core = _core(config, settings, mutant)
    jobs = _jobs(config, core, mutant, upstream)
    app = build_app(config, core, Upstream(upstream, key, settings), jobs)
    with _bound(host, port) as listener:
        server = GatewayServer(
            uvicorn.Config(
                app,
                http=BoundedProtocol,
                log_config=None,
                access_log=False,
                backlog=BACKLOG,
                lifespan="on",
                server_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=1,
            ),
            app.state.driver,
        )
        if parent_pipe:
            server.watch_parent()
        server.run(sockets=[listener])


def _core(config: GatewayConfig, settings: GatewaySettings, mutant: str | None) -> GatewayCore:
    """The reference's core, or one with a safeguard switched off."""
    keys = config_file.tenant_keys(config, os.environ)
    wall_offset_ns = time.time_ns() - time.monotonic_ns()
    if mutant is None:
        return GatewayCore(config, settings, random.Random(), keys, wall_offset_ns=wall_offset_ns)
    from agentload.mutants import parts_of  # brings the simulator along, which nobody else here needs

    parts = parts_of(mutant)
    LOG.warning("the mutant %s is on: this gateway is broken on purpose", mutant)
    changed = parts.gateway_config(config)
    return parts.make_core(
        changed, random.Random(), settings=settings, keys=keys, wall_offset_ns=wall_offset_ns
    )


def _jobs(config: GatewayConfig, core: GatewayCore, mutant: str | None, upstream: str) -> JobsShell | None:
    """Its durable jobs, if it is to keep any."""
    if config.jobs is None:
        return None
    make: Callable[..., JobsCore] = JobsCore
    if mutant is not None:
        from agentload.mutants import parts_of

        make = parts_of(mutant).jobs
    keys = config_file.tenant_keys(config, os.environ)
    wall_offset_ns = time.time_ns() - time.monotonic_ns()
    jobs = make(config, config.jobs, core.settings, random.Random(), keys, wall_offset_ns=wall_offset_ns)
    return opening.open_shell(core, jobs, upstream)


def _check_upstream(url: str) -> None:
    try:
        base_url(url, "http://127.0.0.1:9000")
    except ValueError as error:
        raise UsageError(f"--upstream {url}: {error}") from None


def _upstream_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UsageError(f"--upstream-key-env: the environment variable {variable} is not set")
    return key


def _raise_file_limit() -> None:
    """Each client and each call takes a file descriptor: use as many as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(ValueError, OSError):  # macOS refuses what it has said is allowed
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, MAX_FILES), hard))


def _bound(host: str, port: int) -> socket.socket:
    """A listening address of our own, taken before anything else so that a taken one is a clear error."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}"
        ) from None
    except UnicodeError:  # of the host's name, which cannot be asked for
        raise UsageError(f"cannot listen on {host}:{port}: that is no host's name") from None
    return listener


class GatewayServer(uvicorn.Server):
    """uvicorn that says when it listens, and that lets calls in flight finish while it refuses new ones."""

    def __init__(self, config: uvicorn.Config, driver: Driver) -> None:
        super().__init__(config)
        self._driver = driver
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving = False
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then print the one line that whoever started us waits for."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started and sockets:
            ready = {"event": "ready", "port": sockets[0].getsockname()[1], "pid": os.getpid()}
            print(json.dumps(ready), flush=True)
            if sys.stdout.isatty():
                host, port = sockets[0].getsockname()[:2]
                print(f"listening on http://{host}:{port}/v1/chat/completions", file=sys.stderr)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: refuse newcomers, let calls in flight finish. Second: end them. Third: leave."""
        if self.should_exit or self._loop is None or not self.started:
            super().handle_exit(sig, frame)
        elif self._leaving:
            self._loop.call_soon_threadsafe(self._leave)
            self.should_exit = True
        else:
            self._leaving = True
            self._loop.call_soon_threadsafe(self._begin_drain)

    def _begin_drain(self) -> None:
        self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        driver, settings = self._driver, self._driver.core.settings
        driver.feed(Drain())
        last_ns = driver.now_ns() + round(settings.drain_s * 1e9)
        while driver.busy and driver.now_ns() < last_ns:
            await asyncio.sleep(_POLL_S)
        driver.feed(Stop())
        last_ns = driver.now_ns() + _GIVE_BACK_NS
        while driver.busy and driver.now_ns() < last_ns:  # what jobs give back is being saved
            await asyncio.sleep(_POLL_S)
        self.should_exit = True

    def watch_parent(self) -> None:
        """Leave at once when standard input ends: whoever started us is gone, or wants us gone."""

        descriptor = sys.stdin.fileno()

        def watch() -> None:
            # Not sys.stdin: a thread that waits inside its buffer makes the interpreter abort at exit.
            while os.read(descriptor, 4_096):
                pass
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._leave)
            self.should_exit = True

        threading.Thread(target=watch, name="parent-pipe", daemon=True).start()

    def _leave(self) -> None:
        self._driver.feed(Drain())
        self._driver.feed(Stop())
