"""`agentload locustfile`: writes a file with which plain `locust -f` plays a profile's plan.

Loads no Locust itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from agentload import __version__, profile
from agentload.errors import UsageError
from agentload.model import NS, Profile
from agentload.order import Options, prepare
from agentload.report.text import printable
from agentload.rundir import write_file

_FILE = '''\
"""{title}, for plain Locust; written by agentload {version}.

    locust -f {name} --web-host 127.0.0.1     # http://127.0.0.1:8089: its Start button plays the plan
    locust -f {name} --headless               # to its end
    locust -f {name} --headless --processes 2 # or --master and --worker, on hosts that have agentload

Each tenant is a name in Locust's statistics. Numbers of users and spawn rates mean nothing here: one `Plan`
user in each process plays its share of {arrivals} planned requests, each at its time. `-t` (`--run-time`)
shorter than the plan ({seconds:g} s) decides nothing: what was due later was never sent. Nothing is judged
meanwhile, and Locust's exit code, tables and percentiles are Locust's. Afterwards: agentload judge FOLDER
"""

from agentload.drivers.locust_file import under_locust

Plan, Schedule = under_locust({arguments})
'''


def write(options: Options, file: Path | None) -> str | None:
    """The text, or None after writing it to `file`. Raises AgentloadError for whatever would not run."""
    prepared = prepare(options)
    name = "FILE" if file is None else file.name
    text = _FILE.format(
        title=_title(prepared.profile),
        version=__version__,
        name=name,
        seconds=prepared.profile.duration_ns / NS,
        arrivals=f"{len(prepared.plan.arrivals):,}",
        arguments=_arguments(options),
    )
    if file is None:
        return text
    if file.exists():
        raise UsageError(f"--out {file}: exists already; choose another, or remove it")
    write_file(file, text.encode())
    return None


def _title(chosen: Profile) -> str:
    """As a docstring may hold it."""
    about = printable(chosen.about).rstrip(".").replace("\\", "/").replace('"', "'")
    return f"{chosen.name}: {about}"


def _arguments(options: Options) -> str:
    """As written in the file: complete, whatever folder it is run from; what is as by default is left out."""
    given: dict[str, Any] = {
        "profile": _lasting(str(profile.find(options.profile)), options.profile),
        "seed": options.seed,
        "target": None if options.target is None else _lasting(options.target, options.target),
        "settings": options.settings,
        "quick": options.quick,
        "provider": options.provider_url,
        "provider_port": options.provider_port,
        "allow_hosts": options.allow_hosts,
        "allow_cost": options.allow_cost,
    }
    return ", ".join(f"{name}={value!r}" for name, value in given.items() if value)


def _lasting(file: str, written: str) -> str:
    """A name stays one; a path is made absolute."""
    is_path = os.path.exists(written) and written.endswith(profile.SUFFIXES)
    return os.path.abspath(file) if is_path else written
