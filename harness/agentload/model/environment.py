"""Where secrets come from."""

from __future__ import annotations

from collections.abc import Mapping

Environment = Mapping[str, str]
"""Environment variables, handed in rather than read, so that secrets have one door."""
