"""A process with another monotonic clock, as on another host: Linux time namespaces."""

from __future__ import annotations

import shutil
import subprocess

AHEAD_S = 86_400
AHEAD = ["unshare", "--time", "--monotonic", str(AHEAD_S), "--fork", "--kill-child"]
"""Before a command: it runs with a monotonic clock that is a day ahead of ours."""
NO_NAMESPACES = "needs time namespaces (Linux, privileged)"


def has_time_namespaces() -> bool:
    """Whether the kernel has them and we may make one."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*AHEAD, "true"], capture_output=True, check=False).returncode == 0
