"""One request by each kind of a Locust user that a tenant plays, in a process of its own.

python own_users_tls.py PORT CA [CERT KEY]     prints for each its class, and the status or failure
"""
# ruff: noqa: E402

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from locust import FastHttpUser, HttpUser
from locust.env import Environment

from agentload import targets
from agentload.drivers.locust_user_class import playing
from agentload.targets._tls import Trust


class Fast(FastHttpUser):
    tasks = (print,)


class Requests(HttpUser):
    tasks = (print,)


class Trusting(FastHttpUser):
    """Says itself that it believes everybody."""

    tasks = (print,)
    insecure = True


def main(port: str, ca: str, *client: str) -> None:
    trust = Trust(ca=ca, client_cert=client[0] if client else None, client_key=client[1] if client else None)
    target = replace(targets.load(f"https://localhost:{port}", {}), trust=trust)
    sending = SimpleNamespace(forget=lambda: None)
    tenant = SimpleNamespace(tenant=SimpleNamespace(name="own"))
    watch: Any = SimpleNamespace(headers={"X-Tenant": "own"}, share=tenant, sending=lambda _: sending)
    for kind in (Fast, Requests, Trusting):
        heard: list[dict[str, Any]] = []
        environment = Environment()
        environment.events.request.add_listener(lambda heard=heard, **event: heard.append(event))
        playing(kind, target, watch, sys.exit)(environment).client.get("/")
        [event] = heard
        print(kind.__name__, event["exception"] or event["response"].status_code)


if __name__ == "__main__":
    main(*sys.argv[1:])
