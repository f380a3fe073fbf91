"""Whose the provider's calls are: known by the marker in each message, unless somebody changed it. Pure."""

from __future__ import annotations

from collections import Counter

from agentload.model import Outcome, Run

MOST_UNATTRIBUTED = 0.01
"""Share of the provider's calls that may carry no marker before joins with the ledger mean nothing."""


def untraced(run: Run) -> bool:
    """Whether so many of the provider's calls are nobody's that nothing may rest on whose the others are."""
    return run.unattributed > MOST_UNATTRIBUTED * len(run.ledger)


def how_many_untraced(run: Run) -> str:
    """`183 of 391 provider calls cannot be traced to a request`."""
    return f"{run.unattributed:,} of {len(run.ledger):,} provider calls cannot be traced to a request"


def answered_without_call(run: Run) -> set[str]:
    """Tenants of whom more than the share above were answered though no call at the provider is known."""
    called = {call.seq for call in run.ledger if call.tenant is not None}
    answered = [record for record in run.records if record.outcome is Outcome.ANSWERED]
    all_of = Counter(record.tenant for record in answered)
    lacking = Counter(record.tenant for record in answered if record.seq not in called)
    return {tenant for tenant, count in lacking.items() if count > MOST_UNATTRIBUTED * all_of[tenant]}
