"""Profiles: found by name, read from YAML, changed by `--set`, shortened by `--quick`, handed to workers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from agentload import arrivals
from agentload.errors import ProfileError, UsageError
from agentload.model import Phase, Profile, Tenant
from agentload.profile.source import read
from agentload.profile.stretch import stretched
from agentload.registry import did_you_mean, plugin_folders
from agentload.yaml_positions import Document, compose, on_one_line, read_text

SUFFIXES = (".yaml", ".yml")
QUICK_FACTOR = 0.5
P95_SAMPLES = 72
"""Fewer samples than this say nothing about a 95th percentile."""


def load(path: Path | str, settings: Sequence[str] = ()) -> Profile:
    """Read a profile file, with `--set` options applied.

    Raises ProfileError with one line per problem: a file that cannot be read, YAML syntax, unknown keys,
    wrong values, references to nothing.
    """
    return parse(read_text(path), str(path), settings)


def parse(text: str, file: str, settings: Sequence[str] = ()) -> Profile:
    """A profile from its text; `file` is what messages call it."""
    document = compose(text, file)
    apply_settings(document, settings)
    return read(document)


def apply_settings(document: Document, settings: Iterable[str]) -> None:
    """Apply `--set KEY=VALUE` options, such as `provider.slots=8` or `tenants.flood.arrivals.rate=100`.

    List elements go by name (`phases.noise.seconds`, `checks.no-starvation.max_wait_s`) or index. Values are
    YAML. Raises ProfileError for an option that is none; `read` finds unknown keys and wrong values.
    """
    for setting in settings:
        option = f"--set {on_one_line(setting)}"
        key, equals, value = setting.partition("=")
        keys = key.strip().split(".")
        if not equals or not all(keys):
            raise ProfileError(f"{option}: must be KEY=VALUE, such as provider.slots=8")
        if not isinstance(document.data, dict):
            return
        try:
            given = compose(value, option)
            given.raise_problems()
        except ProfileError as error:
            raise ProfileError(f"{option}: not a YAML value: {error.lines[0].rsplit(': ', 1)[-1]}") from None
        document.set(option, keys, given.data)


def slots_beyond_provider(profile: Profile, where: str | None = None) -> str | None:
    """What is amiss when the gateway may have more calls in flight than the provider serves, or None.

    Calls beyond are refused with 503 by the provider, which a profile seldom means to ask about. `where`: the
    keys that say the gateway's slots; those of the profile for the bundled one.
    """
    provider, pools = profile.provider, profile.gateway.pools
    total = sum(pool.slots for pool in pools.values())
    if provider.slots is None or provider.overflow == "queue" or total <= provider.slots:
        return None
    where = where or ", ".join(f"gateway.pools.{name}.slots" for name in pools)
    amiss = f"the gateway's {total} slots are more than the provider's {provider.slots}"
    return f"{amiss}, so the provider will refuse calls with 503: lower {where}"


# --------------------------------------------------------------------------- finding


def bundled_folder() -> Path:
    """Where the bundled profiles are: beside the modules in a wheel, at the top of a checkout."""
    package = Path(__file__).resolve().parent.parent
    shipped = package / "profiles"
    return shipped if shipped.is_dir() else package.parents[1] / "profiles"


def names() -> list[str]:
    """The names of all bundled and plugged-in profiles, sorted."""
    return sorted(_files())


def find(name_or_path: str) -> Path:
    """The file of a profile: a path (with a slash or a YAML suffix), or the name of a known one.

    Raises UsageError, with a suggestion, when there is none.
    """
    path = Path(os.path.expanduser(name_or_path))  # unlike Path.expanduser, it leaves an unknown ~user alone
    if os.sep in name_or_path or path.suffix in SUFFIXES:
        if path.exists():
            return path
        raise UsageError(f"{on_one_line(name_or_path)}: no such file{_near(path)}")
    files = _files()
    if name_or_path in files:
        return files[name_or_path]
    if path.is_file():
        return path
    hint = did_you_mean(name_or_path, sorted(files))
    raise UsageError(f"no profile named '{on_one_line(name_or_path)}'{hint}")


def _files() -> dict[str, Path]:
    """Name → file; a plug-in may not take a bundled name."""
    found: dict[str, Path] = {}
    for folder in [bundled_folder(), *plugin_folders("profiles")]:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.suffix in SUFFIXES and not path.name.startswith("."):
                if path.stem in found:
                    raise UsageError(
                        f"{path}: the profile '{path.stem}' exists already in {found[path.stem].parent}"
                    )
                found[path.stem] = path
    return found


def _near(path: Path) -> str:
    folder = path.parent
    siblings = [p.name for p in folder.iterdir() if p.suffix in SUFFIXES] if folder.is_dir() else []
    return did_you_mean(path.name, sorted(siblings)) if siblings else ""


# --------------------------------------------------------------------------- shortening


def quick(profile: Profile) -> Profile:
    """The profile with its recorded phases halved, but not below what a p95 needs.

    A tenant that was to bring 72 requests or more to a phase still does (on average, where arrivals are
    random); a phase and the one it replays stay equally long. Warm-ups keep their length. A fault stays where
    it is in its phase and is shortened with it.
    """
    factor = {phase.name: _quick_factor(profile, phase) for phase in profile.phases}
    for phase in (*profile.phases, *reversed(profile.phases)):  # both ways along every chain of replays
        if phase.replays is not None:
            factor[phase.name] = factor[phase.replays] = max(factor[phase.name], factor[phase.replays])
    return stretched(profile, factor)


def _quick_factor(profile: Profile, phase: Phase) -> float:
    if not phase.record:
        return 1.0
    counts = [_mean_count(tenant, phase) for tenant in profile.tenants]
    needed = [P95_SAMPLES / count for count in counts if count >= P95_SAMPLES]
    return max([QUICK_FACTOR, *needed])


def _mean_count(tenant: Tenant, phase: Phase) -> float:
    if tenant.arrivals is None or (tenant.during and phase.name not in tenant.during):
        return 0.0
    return arrivals.make(tenant.arrivals).mean_count(phase.seconds) or 0.0


# --------------------------------------------------------------------------- for workers


def to_json(profile: Profile) -> str:
    """The profile as JSON, complete: `from_json` gives an equal one, in another process too."""
    return profile.model_dump_json()


def from_json(text: str | bytes) -> Profile:
    """A profile from `to_json`. Raises pydantic.ValidationError for anything else."""
    return Profile.model_validate_json(text)
