"""Whether users' own Locust files can be played, before anything is started.

    python -P -m agentload.drivers.locust_check < LIST.json

Prints one JSON list: a line for each that cannot. A process of its own, because importing locust patches it.
"""
# ruff: noqa: E402

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sys
from contextlib import redirect_stdout

import msgspec

from agentload.drivers.locust_users_file import load_class
from agentload.errors import AgentloadError
from agentload.model import LocustUsers


def problems(written: bytes) -> list[str]:
    """One line for each class that cannot be played."""
    found: list[str] = []
    for own in msgspec.json.decode(written, type=list[dict[str, object]]):
        try:
            load_class(LocustUsers.model_validate(own))
        except AgentloadError as error:
            found += error.lines
    return list(dict.fromkeys(found))


def main() -> None:
    """Read from standard input, print the answer; what the files print goes to standard error."""
    written = sys.stdin.buffer.read()
    with redirect_stdout(sys.stderr):
        found = problems(written)
    print(msgspec.json.encode(found).decode(), flush=True)


if __name__ == "__main__":
    main()
