"""What the caps kept tenants' own code from, as lines for the user."""

from __future__ import annotations

import pytest

from agentload.drivers.withheld import Why, WithheldBook, told
from agentload.model import NS


@pytest.mark.parametrize(
    ("why", "line"),
    [
        (Why.HOST, "own: 3 × refused: a.example is neither the target nor allowed (--allow-host a.example)"),
        (Why.REDIRECT, "own: 3 × no redirect to a.example followed (--allow-host a.example)"),
        (Why.RATE, "own: 3 × waited, 1.5 s in all, for --max-rate: the load was the cap's, not the code's"),
        (
            Why.CONNECTIONS,
            "own: 3 × waited, 1.5 s in all, for --max-connections: the load was the cap's, not the code's",
        ),
        (Why.BYTES, "own: 3 × an answer was longer than --max-answer-bytes, and not heard out"),
    ],
)
def test_each_kind_is_one_line_over_all_workers(why: Why, line: str) -> None:
    workers = [WithheldBook(), WithheldBook()]
    workers[0].add("own", why, "a.example", waited_ns=NS)
    workers[0].add("own", why, "a.example", waited_ns=NS // 2)
    workers[1].add("own", why, "a.example")
    assert told(kind for worker in workers for kind in worker.kinds()) == [line]


def test_tenants_and_hosts_are_told_apart_in_order() -> None:
    book = WithheldBook()
    for tenant, host in (("b", "y"), ("a", "z"), ("b", "x")):
        book.add(tenant, Why.HOST, host)
    assert [line.split(" is ")[0] for line in told(book.kinds())] == [
        "a: 1 × refused: z",
        "b: 1 × refused: x",
        "b: 1 × refused: y",
    ]
    assert told([]) == []
