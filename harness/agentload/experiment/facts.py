"""experiment.json: everything that was played, measured and expected.

A measure that is null is infinite where `censored` names it; else there was too little to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from agentload.evidence.expectations import Column, Expectation
from agentload.experiment.play import Play, Played
from agentload.experiments import Arm
from agentload.model import worst
from agentload.report import text

SCHEMA = 1
"""Version of the file."""


def summarise(
    name: str,
    command: Sequence[str],
    play: Play,
    played: Sequence[Played],
    expectations: Sequence[Expectation],
) -> dict[str, Any]:
    """The whole file."""
    chosen = play.experiment
    return {
        "schema": SCHEMA,
        "experiment": name,
        "command": list(command),
        "question": text.printable((chosen.__doc__ or "").split("\n", 1)[0]),
        "source": msgspec.to_builtins(chosen.source),
        "seeds": list(play.seeds),
        "interrupted": play.stopped,
        "status": str(worst([one.status for one in expectations])),
        "columns": [msgspec.to_builtins(column) for column in chosen.columns],
        "arms": [_arm(arm, play, played) for arm in play.arms],
        "expectations": [_expectation(one) for one in expectations],
    }


def _arm(arm: Arm, play: Play, played: Sequence[Played]) -> dict[str, Any]:
    return {
        "arm": arm.name,
        "about": arm.about,
        "policy": play.load(arm).gateway.policy,
        "mutant": arm.mutant,
        "other_parts": arm.parts is not None,
        "profile": play.load(arm).model_dump(mode="json", by_alias=True),
        "runs": [_run(one, play.experiment.columns) for one in played if one.arm == arm.name],
    }


def _run(one: Played, columns: Sequence[Column]) -> dict[str, Any]:
    values = {column.name: one.measures[column.name] for column in columns}
    endless = [name for name, value in values.items() if value is not None and math.isinf(value)]
    return {
        "seed": one.seed,
        "fingerprint": one.fingerprint,
        "digest": one.digest,
        "measures": {name: None if name in endless else value for name, value in values.items()},
        "censored": endless,
    }


def _expectation(one: Expectation) -> dict[str, Any]:
    facts = msgspec.to_builtins(one)
    facts["status"] = str(one.status)
    del facts["exchange"]
    return dict(facts)
