"""Makes a gateway's jobs from its configuration. SHELL."""

from __future__ import annotations

from pathlib import Path

from yarl import URL

from agentload.errors import UsageError
from agentload.gateway.core import GatewayCore
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.front import JobsFront
from agentload.gateway.jobs.shell import JobsShell
from agentload.gateway.jobs.store import JobStore, StoreError
from agentload.gateway.jobs.stores.memory import MemoryStore
from agentload.gateway.jobs.stores.sqlite import SqliteStore
from agentload.gateway.jobs.tool_client import ToolClient
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.jobs_config import SQLITE, JobsSettings


def with_database(config: GatewayConfig, path: Path | None) -> GatewayConfig:
    """The configuration with jobs in that file (`--jobs-db`), whatever it says of their store."""
    if path is None:
        return config
    jobs = (config.jobs or JobsSettings()).model_copy(update={"store": f"{SQLITE}{path}"})
    return config.model_copy(update={"jobs": jobs})


def open_shell(core: GatewayCore, jobs: JobsCore, upstream: str) -> JobsShell:
    """The shell of a gateway with jobs. Raises UsageError when the store cannot be opened."""
    settings = jobs.settings
    url = settings.tool_url or str(URL(upstream).origin() / "_tool")
    try:
        store = _store(settings)
        return JobsShell(JobsFront(core, jobs), store, store.load(), ToolClient(url))
    except StoreError as error:
        raise UsageError(f"jobs.store: {error}") from None


def _store(settings: JobsSettings) -> JobStore:
    if not settings.store.startswith(SQLITE):
        return MemoryStore()
    return SqliteStore(Path(settings.store.removeprefix(SQLITE)))
