"""The contract of a job store. PURE: a Protocol and what passes through it.

A store is written by one gateway process at a time, from one thread, and read once, at its start: the process
keeps every job that it may be asked for in memory. (A store for several replicas must also let nobody take
a lease that has not lapsed; nothing here stands in its way.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

from agentload.gateway.jobs.model import Job


class Insert(msgspec.Struct, frozen=True):
    """A new job. Fenced when there is one of its id."""

    job: Job


class Update(msgspec.Struct, frozen=True):
    """A job changes. Fenced when the row is gone, has ended, or has another token than `expect_token`."""

    job: Job
    expect_token: int


class Renew(msgspec.Struct, frozen=True):
    """A lease is renewed, and nothing else changes. Fenced as an Update."""

    id: str
    token: int
    leased_until_ns: int


class Delete(msgspec.Struct, frozen=True):
    """An ended job is forgotten. Never fenced."""

    id: str


Change: TypeAlias = Insert | Update | Renew | Delete


class Applied(msgspec.Struct, frozen=True):
    """The change is made, and safe."""


class Fenced(msgspec.Struct, frozen=True):
    """The change was not made: the writer is not up to date."""

    standing: Job | None
    """The row as it stands; None when there is none."""


Outcome: TypeAlias = Applied | Fenced
APPLIED = Applied()


class StoreError(Exception):
    """The store cannot be used; nothing of what was being written is in it. Its text says why, in words."""


class JobStore(Protocol):
    """Where jobs are kept."""

    def load(self) -> list[Job]:
        """Every job, in order of their numbers. Raises StoreError."""
        ...

    def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        """Make the changes in order, as one transaction; when this returns, they are safe.

        A fenced change stops no other. Raises StoreError, and then nothing was changed.
        """
        ...

    def close(self) -> None:
        """Let go of everything; closing twice does nothing."""
        ...
