"""Answers stop coming; what was due during the stall arrives at its end, as on a frozen connection."""

from __future__ import annotations

from typing import ClassVar

from fake_provider.faults import Fault


class Stall(Fault):
    """Calls keep their slots and their connections, and no token moves."""

    holds_tokens: ClassVar[bool] = True
