"""A run that ended before any load was sent: its folder shows nothing, and is cleared away."""

from __future__ import annotations

import shutil

from agentload.errors import AgentloadError, InconclusiveError
from agentload.rundir.folder import RunDir

_STARTED_WITH = frozenset(
    {"manifest.json", "provider.json", "gateway.json", "driver.json", "workers.json", "logs"}
)


def clear_away(folder: RunDir, error: BaseException) -> str:
    """Remove the folder, and say so; or say where the logs are, where `error` is explained by them.

    A folder that holds anything else with a byte in it is never removed; then nothing is said.
    """
    if str(folder.logs) in str(error):
        return ""
    if not isinstance(error, AgentloadError | KeyboardInterrupt) or type(error) is InconclusiveError:
        return f"no load was sent; what its parts have logged: {folder.logs}"
    try:
        others = [one for one in folder.path.iterdir() if one.name not in _STARTED_WITH]
        if any(one.is_dir() or one.stat().st_size for one in others if not one.name.startswith("jobs.db")):
            return ""
        shutil.rmtree(folder.path)
    except OSError:
        return ""  # a folder too many is no reason to hide why there was no run
    return f"no load was sent: {folder.path} is removed"
