"""Jobs in one SQLite file. SHELL.

WAL with synchronous=FULL: a commit returns when the log has been synced, so what is confirmed survives a
power cut; the writer makes many batches one commit (`writer.py`), which makes that cheap. One process at a
time may write: a lock file says so while it lives, and a number in the file, raised by whoever opens it,
shuts out one that only seemed dead.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from agentload.gateway.jobs.model import Job
from agentload.gateway.jobs.store import (
    APPLIED,
    Change,
    Delete,
    Fenced,
    Insert,
    Outcome,
    Renew,
    StoreError,
    Update,
)

VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT,
    state TEXT NOT NULL,
    ended INTEGER NOT NULL,
    token INTEGER NOT NULL,
    leased_until_ns INTEGER NOT NULL,
    job BLOB NOT NULL
);
"""
_LIVE = "SELECT job, leased_until_ns FROM jobs WHERE id = ?"


class SqliteStore:
    """One file, one process, one thread at a time (any thread)."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises StoreError: in use, not writable, not a store of ours."""
        self.path = path
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Job)
        self._lock = _locked(path)
        try:
            self._db = _opened(path)
            self._generation = self._take_over()
        except (sqlite3.Error, StoreError) as error:
            os.close(self._lock)
            raise StoreError(f"{path}: {error}") from None
        self._open = True

    def load(self) -> list[Job]:
        """Every job, in order of their numbers. Raises StoreError."""
        try:
            rows = self._db.execute("SELECT job, leased_until_ns FROM jobs ORDER BY number").fetchall()
            return [self._job(blob, until_ns) for blob, until_ns in rows]
        except (sqlite3.Error, msgspec.DecodeError, ValueError) as error:
            raise StoreError(f"{self.path}: {error}") from None

    def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        """Make the changes in order, as one transaction; when this returns, they are synced to the disk.

        Raises StoreError, and then nothing was changed.
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
            if self._read_generation() != self._generation:
                raise StoreError("another gateway has taken over")
            outcomes = [self._make(change) for change in changes]
            self._db.execute("COMMIT")
        except (sqlite3.Error, StoreError, OverflowError, ValueError) as error:
            self._roll_back()  # the last two: a job that cannot be written, as one with too large a number
            raise StoreError(f"{self.path}: {error}") from None
        return outcomes

    def close(self) -> None:
        """Closes the file and lets others in; closing twice does nothing."""
        if self._open:
            self._open = False
            self._db.close()
            os.close(self._lock)

    # ----------------------------------------------------------------- changes

    def _make(self, change: Change) -> Outcome:
        match change:
            case Insert():
                return self._insert(change.job)
            case Update():
                return self._update(change)
            case Renew():
                renewed = self._db.execute(
                    "UPDATE jobs SET leased_until_ns = ? WHERE id = ? AND token = ? AND NOT ended",
                    (change.leased_until_ns, change.id, change.token),
                )
                return APPLIED if renewed.rowcount else Fenced(self._standing(change.id))
            case Delete():
                self._db.execute("DELETE FROM jobs WHERE id = ?", (change.id,))
                return APPLIED

    def _insert(self, job: Job) -> Outcome:
        made = self._db.execute(
            "INSERT INTO jobs (id, number, tenant, key, state, ended, token, leased_until_ns, job)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
            (job.id, job.number, job.tenant, job.key, *self._columns(job)),
        )
        return APPLIED if made.rowcount else Fenced(self._standing(job.id))

    def _update(self, change: Update) -> Outcome:
        job = change.job
        made = self._db.execute(
            "UPDATE jobs SET state = ?, ended = ?, token = ?, leased_until_ns = ?, job = ?"
            " WHERE id = ? AND token = ? AND NOT ended",
            (*self._columns(job), job.id, change.expect_token),
        )
        return APPLIED if made.rowcount else Fenced(self._standing(job.id))

    def _columns(self, job: Job) -> tuple[str, bool, int, int, bytes]:
        return job.state.value, job.state.ended, job.token, job.leased_until_ns, self._encoder.encode(job)

    def _standing(self, job_id: str) -> Job | None:
        row = self._db.execute(_LIVE, (job_id,)).fetchone()
        return None if row is None else self._job(row[0], row[1])

    def _job(self, blob: bytes, until_ns: int) -> Job:
        """Renewing touches the column alone."""
        job = self._decoder.decode(blob)
        return job if job.leased_until_ns == until_ns else replace(job, leased_until_ns=until_ns)

    # ----------------------------------------------------------------- who may write

    def _take_over(self) -> int:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(
            "INSERT INTO meta VALUES ('generation', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
        )
        generation = self._read_generation()
        self._db.execute("COMMIT")
        return generation

    def _read_generation(self) -> int:
        row = self._db.execute("SELECT value FROM meta WHERE name = 'generation'").fetchone()
        return int(row[0])

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the file is beyond reach; the next commit will say so


def _locked(path: Path) -> int:
    """The lock, held until the descriptor is closed or the process ends."""
    try:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise StoreError(f"{path}: in use by another gateway") from None
    return lock


def _opened(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version not in (0, VERSION):
            raise StoreError(f"has version {version} of the job store's format, this is version {VERSION}")
        db.executescript(_SCHEMA)
        db.execute(f"PRAGMA user_version = {VERSION}")
    except BaseException:
        db.close()
        raise
    return db
