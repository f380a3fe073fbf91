"""Units of the nouns. A time is integer nanoseconds since the run began, unless a name says otherwise."""

from __future__ import annotations

NS = 1_000_000_000
"""Nanoseconds in a second."""
