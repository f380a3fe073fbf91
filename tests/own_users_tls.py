"""One request by each kind of a Locust user that a tenant plays, in a process of its own.

python own_users_tls.py PORT CA [CERT KEY]     prints for each its class, and the status or failure
"""

from __future__ import annotations

import sys
from typing import Any

from agentload.targets._tls import Trust
from own_users_played import Fast, Plain, Scene


class Trusting(Fast):
    """Says itself that it believes everybody."""

    insecure = True


def main(port: str, ca: str, *client: str) -> None:
    trust = Trust(ca=ca, client_cert=client[0] if client else None, client_key=client[1] if client else None)
    for kind in (Fast, Plain, Trusting):
        scene, heard = Scene(f"https://localhost:{port}", trust=trust), list[dict[str, Any]]()
        scene.environment.events.request.add_listener(lambda heard=heard, **event: heard.append(event))
        scene.user(kind).client.get("/")
        [event] = heard
        print(kind.__name__, event["exception"] or event["response"].status_code)


if __name__ == "__main__":
    main(*sys.argv[1:])
