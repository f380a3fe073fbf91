"""A tenant's weight: its part of what tenants share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

LEAST = 1e-6
"""Below it, or beyond `MOST`, virtual time has no digits left to tell turns apart."""
MOST = 1e6


def _tells_turns_apart(weight: float) -> float:
    if weight < LEAST:
        raise ValueError(f"must be at least {LEAST:g}, got {weight:g}")
    return weight


Weight = Annotated[float, Field(gt=0, le=MOST), AfterValidator(_tells_turns_apart)]
