"""The ledger's sums."""

from __future__ import annotations

import msgspec

from fake_provider.ledger import EARLY_GRACE_NS, Ending, Entry, Ledger

CALLER = ("key", "model")


def entry(call: int, at_ns: int = 0, tenant: int | None = 1, retry: int | None = None) -> Entry:
    return Entry(
        call=call,
        arrived_ns=at_ns,
        ending=Ending.OPEN,
        tenant=tenant,
        model="model",
        input_tokens=30,
        charged_tokens=48,
        retry_header=retry,
    )


def test_every_ending_is_counted_where_it_belongs() -> None:
    ledger = Ledger()
    calls = [entry(number) for number in range(7)]
    for call in calls:
        ledger.arrived(call, CALLER)
    ledger.refused(calls[0], 1, Ending.THROTTLED, 429, "tokens")
    ledger.refused(calls[1], 1, Ending.FAULTED, 503, "outage")
    ledger.refused(calls[2], 1, Ending.INVALID, 400, "invalid")
    for call in calls[3:]:
        ledger.admitted(call)
    ledger.ended(calls[3], 2, Ending.COMPLETED)
    ledger.ended(calls[4], 2, Ending.CANCELLED)
    ledger.ended(calls[5], 2, Ending.CUT)
    counts = ledger.counts
    assert (counts.offered, counts.throttled, counts.faulted, counts.invalid, counts.admitted) == (
        7,
        1,
        1,
        1,
        4,
    )
    assert (counts.completed, counts.cancelled, counts.cut, counts.in_flight) == (1, 1, 1, 1)
    assert counts.disconnects == 1
    assert counts.conserved()


def test_a_sum_that_does_not_add_up_is_seen() -> None:
    ledger = Ledger()
    ledger.arrived(entry(1), CALLER)
    assert not ledger.counts.conserved()


def test_tokens_are_counted_by_tenant() -> None:
    ledger = Ledger()
    for call in (entry(1, tenant=4), entry(2, tenant=5), entry(3, tenant=None)):
        ledger.arrived(call, CALLER)
        ledger.admitted(call)
        ledger.produced(call, 7)
        ledger.ended(call, 9, Ending.COMPLETED)
    assert set(ledger.tenants) == {4, 5}
    four = ledger.tenants[4]
    assert (four.offered, four.admitted, four.completed) == (1, 1, 1)
    assert (four.input_tokens, four.charged_tokens, four.output_tokens) == (30, 48, 7)
    assert ledger.unattributed == {("chat", "model"): 1}
    assert ledger.counts.unattributed == 1


def test_who_comes_before_the_promised_instant_is_early() -> None:
    ledger = Ledger()
    refused = entry(1)
    ledger.arrived(refused, CALLER)
    ledger.promised(refused, CALLER, 1_000_000_000)
    arrivals = [
        (CALLER, 999_000_000 - EARLY_GRACE_NS),
        (CALLER, 1_000_000_000 - EARLY_GRACE_NS),
        (("key", "other"), 5),
    ]
    early = []
    for number, (caller, at_ns) in enumerate(arrivals, 2):
        call = entry(number, at_ns)
        ledger.arrived(call, caller)
        early.append(call.early)
    assert early == [True, False, False]
    assert ledger.counts.early_retries == 1
    assert refused.not_before_ns == 1_000_000_000


def test_an_earlier_promise_does_not_undo_a_later_one() -> None:
    ledger = Ledger()
    for at_ns in (2_000_000_000, 1_000_000_000):
        ledger.promised(entry(1), CALLER, at_ns)
    late = entry(2, 1_500_000_000)
    ledger.arrived(late, CALLER)
    assert late.early


def test_retries_are_counted_from_their_header() -> None:
    ledger = Ledger()
    for number, retry in enumerate((None, 0, 1, 2)):
        ledger.arrived(entry(number, retry=retry), CALLER)
    assert ledger.counts.retries == 2


def test_each_entry_is_told_once_when_it_is_final() -> None:
    told: list[int] = []
    ledger = Ledger(on_ended=lambda ended: told.append(ended.call))
    first, second = entry(1), entry(2)
    for call in (first, second):
        ledger.arrived(call, CALLER)
    ledger.refused(first, 5, Ending.THROTTLED, 429, "tokens")
    ledger.admitted(second)
    assert told == [1]
    ledger.ended(second, 6, Ending.COMPLETED)
    assert told == [1, 2]


def test_a_full_ledger_still_counts() -> None:
    ledger = Ledger(max_entries=2)
    for number in range(5):
        ledger.arrived(entry(number), CALLER)
    assert len(ledger.entries) == 2
    assert (ledger.counts.offered, ledger.counts.entries_dropped) == (5, 3)


def test_entries_survive_json() -> None:
    before = Entry(
        call=3, arrived_ns=5, ending=Ending.CUT, tenant=2, status=200, reason="truncate", early=True
    )
    assert msgspec.json.decode(msgspec.json.encode(before), type=Entry) == before
