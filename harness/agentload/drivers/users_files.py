"""Looks at users' own Locust files through a process that may import them. No gevent in this one."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from agentload.errors import ProfileError
from agentload.model import LocustUsers, Profile

PATIENCE_S = 60.0


def check(profile: Profile) -> None:
    """Nothing to do for a profile without such tenants. Raises ProfileError, one line per problem."""
    own = [tenant.locust for tenant in profile.tenants if tenant.locust is not None]
    if not own:
        return
    files = ", ".join(dict.fromkeys(one.file for one in own))
    done = _asked(own, files)
    try:
        found = msgspec.json.decode(done.stdout.splitlines()[-1] if done.stdout else b"", type=list[str])
    except msgspec.DecodeError:
        last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it says nothing"])[-1]
        because = f"ended the process that imports it ({done.returncode}): {last}"
        raise ProfileError(f"{files}: {because}") from None
    if found:
        raise ProfileError(*found)


def _asked(own: list[LocustUsers], files: str) -> subprocess.CompletedProcess[bytes]:
    asked = msgspec.json.encode([one.model_dump(by_alias=True) for one in own])
    # -P: a `json.py` in the user's folder is the user's, not ours to import.
    command = [sys.executable, "-P", "-m", "agentload.drivers.locust_check"]
    try:
        return subprocess.run(command, input=asked, capture_output=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        raise ProfileError(f"{files}: has not been imported within {PATIENCE_S:g} s") from None
