"""Greenlets that are kept for the next job."""

from __future__ import annotations

from typing import Any

import gevent

from agentload.drivers.crew import Crew

Doers = list[tuple[str, Any]]
"""Who has done which job."""


def crew_that_waits(doers: Doers, left: list[str], seconds: float = 0.0) -> Crew[str]:
    def work(job: str) -> None:
        doers.append((job, gevent.getcurrent()))
        try:
            gevent.sleep(seconds)
        except gevent.GreenletExit:
            left.append(job)

    return Crew(work)


def test_jobs_are_done_at_once_and_whoever_is_done_takes_the_next() -> None:
    doers: Doers = []
    crew = crew_that_waits(doers, [])
    for round_of_jobs in ("abc", "de", "fgh"):
        for job in round_of_jobs:
            crew.hand(job)
        assert sorted(crew.busy.values()) == list(round_of_jobs)
        while crew.busy:
            gevent.sleep(0)
    assert [job for job, _ in doers] == list("abcdefgh")
    assert len({doer for _, doer in doers}) == 3
    assert crew.dismiss() == []


def test_a_job_begins_only_when_the_one_who_hands_it_lets_go() -> None:
    doers: Doers = []
    crew = crew_that_waits(doers, [])
    crew.hand("a")
    assert doers == []
    gevent.sleep(0)
    assert [job for job, _ in doers] == ["a"]
    crew.dismiss()


def test_the_dismissed_leave_what_they_do_and_name_what_they_had_not_begun() -> None:
    doers: Doers = []
    left: list[str] = []
    crew = crew_that_waits(doers, left, seconds=60.0)
    crew.hand("begun")
    gevent.sleep(0)
    crew.hand("not begun")
    assert crew.dismiss() == ["not begun"]
    assert left == ["begun"]
    assert [job for job, _ in doers] == ["begun"]
    assert all(doer.dead for _, doer in doers)


def test_idle_members_take_no_job_that_comes_with_the_dismissal() -> None:
    doers: Doers = []
    crew = crew_that_waits(doers, [])
    crew.hand("a")
    while crew.busy:
        gevent.sleep(0)
    crew.hand("late")
    assert crew.dismiss() == ["late"]
    assert [job for job, _ in doers] == ["a"]
