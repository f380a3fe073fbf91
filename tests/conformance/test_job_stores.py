"""Every job store does the same with the same changes, and keeps what it has confirmed."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from agentload.gateway.jobs.model import ChatCall, Job, JobState, Step, StepResult, ToolCall
from agentload.gateway.jobs.store import (
    APPLIED,
    Change,
    Delete,
    Fenced,
    Insert,
    JobStore,
    Renew,
    StoreError,
    Update,
)
from agentload.gateway.jobs.stores.memory import MemoryStore
from agentload.gateway.jobs.stores.sqlite import SqliteStore

CHAT = Step(chat=ChatCall(body=b'{"a":"\xc3\xa9"}', model="m", input_tokens=3, text_chars=12))
TOOL = Step(tool=ToolCall(name="t", payload=b'{"b":1}', seconds=0.5, side_effect=True))
RESULT = StepResult(step=0, kind="chat", status=200, output=b'{"c":2}', input_tokens=1)


def job(number: int, **more: object) -> Job:
    base = Job(
        id=f"job_{number}",
        number=number,
        tenant="t",
        service_class="standard",
        workflow="w",
        steps=(CHAT, TOOL),
        steps_total=2,
        created_at_ns=1_800_000_000_000_000_000,
        deadline_at_ns=1_800_000_100_000_000_000,
        max_attempts=3,
        key="k",
    )
    return replace(base, **more)


NUMBERS = st.integers(1, 4)
TOKENS = st.integers(0, 3)
STATES = st.sampled_from([JobState.QUEUED, JobState.RUNNING, JobState.COMPLETED, JobState.CANCELLED])
CHANGES = st.one_of(
    st.builds(lambda n: Insert(job(n)), NUMBERS),
    st.builds(
        lambda n, expect, token, state, done: Update(
            job(n, token=token, state=state, results=(RESULT,) * done, leased_until_ns=token * 7), expect
        ),
        NUMBERS,
        TOKENS,
        TOKENS,
        STATES,
        st.integers(0, 1),
    ),
    st.builds(
        lambda n, token, until: Renew(f"job_{n}", token, until), NUMBERS, TOKENS, st.integers(1, 2**62)
    ),
    st.builds(lambda n: Delete(f"job_{n}"), NUMBERS),
)


class Stores(RuleBasedStateMachine):
    """A SQLite file beside a store in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.memory = MemoryStore()
        self.sqlite = SqliteStore(self.folder / "jobs.db")

    @rule(changes=st.lists(CHANGES, min_size=1, max_size=5))
    def commit(self, changes: list[Change]) -> None:
        assert self.sqlite.commit(changes) == self.memory.commit(changes)

    @rule()
    def reopen(self) -> None:
        self.sqlite.close()
        self.sqlite = SqliteStore(self.folder / "jobs.db")

    @rule(changes=st.lists(CHANGES, min_size=1, max_size=3))
    def a_former_gateway_writes(self, changes: list[Change]) -> None:
        """It lost its lock with its life, or thought so: it writes nothing more."""
        former = self.sqlite
        shutil.copy(self.folder / "jobs.db.lock", self.folder / "lock")
        (self.folder / "jobs.db.lock").unlink()
        self.sqlite = SqliteStore(self.folder / "jobs.db")
        with pytest.raises(StoreError, match="taken over"):
            former.commit(changes)
        former.close()

    @invariant()
    def both_hold_the_same(self) -> None:
        assert self.sqlite.load() == self.memory.load()

    def teardown(self) -> None:
        self.sqlite.close()
        shutil.rmtree(self.folder)


TestStores = Stores.TestCase
TestStores.settings = settings(
    max_examples=25, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JobStore]:
    made: JobStore = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "jobs.db")
    yield made
    made.close()


def test_a_fenced_change_stops_no_other(store: JobStore) -> None:
    store.commit([Insert(job(1)), Insert(job(2, token=5))])
    running = job(1, state=JobState.RUNNING, token=1)
    outcomes = store.commit([Update(job(2, token=6), 4), Update(running, 0), Renew("job_9", 0, 1)])
    assert outcomes == [Fenced(job(2, token=5)), APPLIED, Fenced(None)]
    assert store.load() == [running, job(2, token=5)]


def test_an_ended_job_never_changes(store: JobStore) -> None:
    ended = job(1, state=JobState.CANCELLED, token=2)
    store.commit([Insert(job(1)), Update(ended, 0)])
    late = Update(job(1, state=JobState.COMPLETED, token=2), 2)
    assert store.commit([late, Renew("job_1", 2, 99)]) == [Fenced(ended), Fenced(ended)]
    assert store.load() == [ended]


def test_a_second_gateway_is_told_who_is_in(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "jobs.db")
    with pytest.raises(StoreError, match="in use by another gateway"):
        SqliteStore(tmp_path / "jobs.db")
    first.close()
    SqliteStore(tmp_path / "jobs.db").close()


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but long enough to be read as one" * 40)
    with pytest.raises(StoreError, match="not a database"):
        SqliteStore(tmp_path / "text.db")
    with pytest.raises(StoreError, match="no such file"):
        SqliteStore(tmp_path / "none" / "jobs.db")
    other = sqlite3.connect(tmp_path / "newer.db")
    other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(StoreError, match="version 99"):
        SqliteStore(tmp_path / "newer.db")


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    """SQLite's own bound on pages fails a write as a full disk does (SQLITE_FULL)."""
    store = SqliteStore(tmp_path / "jobs.db")
    store.commit([Insert(job(1))])
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    wide = replace(job(2), steps=(Step(tool=ToolCall(name="t", payload=b'"' + b"x" * 100_000 + b'"')),))
    with pytest.raises(StoreError, match="full"):
        store.commit([Renew("job_1", 0, 77), Insert(wide)])
    assert store.load() == [job(1)]
    store._db.execute("PRAGMA max_page_count = 1000000")
    assert store.commit([Insert(wide)]) == [APPLIED]
    store.close()


@pytest.mark.parametrize("most", [2**64, 10**400])
def test_a_job_that_cannot_be_written_is_an_error_and_stops_nothing(tmp_path: Path, most: int) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    with pytest.raises(StoreError):
        store.commit([Insert(job(1)), Insert(job(2, max_total_tokens=most))])
    assert store.load() == []
    assert store.commit([Insert(job(3))]) == [APPLIED]
    store.close()
