"""Every timeout of a call fits into what the deadline leaves of it, whatever is configured."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.gateway.patience import Patience
from agentload.gateway.settings import GatewaySettings
from agentload.model import NS

SECONDS = st.floats(0.001, 1_000)
SETTINGS = st.builds(
    GatewaySettings,
    connect_s=SECONDS,
    first_byte_s=SECONDS,
    idle_s=SECONDS,
    total_s=SECONDS,
    linger_s=SECONDS,
    answer_margin_s=st.floats(0, 1),
)


@settings(max_examples=200, deadline=None)
@given(SETTINGS, st.integers(0, 10**15), st.floats(0.001, 2_000), st.booleans(), st.floats(0, 1))
def test_nothing_outlasts_the_whole_nor_the_whole_the_deadline(
    chosen: GatewaySettings, start_ns: int, left_s: float, has_deadline: bool, passed: float
) -> None:
    deadline_ns = start_ns + round(left_s * NS) if has_deadline else None
    patience = Patience(chosen, start_ns, deadline_ns)
    total_ns = start_ns + round(chosen.total_s * NS)
    assert patience.limit_ns <= total_ns
    assert deadline_ns is None or patience.limit_ns <= deadline_ns
    now_ns = start_ns + round(passed * (patience.limit_ns - start_ns))
    instants = (
        now_ns + patience.connect_ns(now_ns),
        patience.first_event_ns(),
        patience.silence_ns(now_ns),
        patience.close_ns(now_ns),
    )
    assert max(instants) <= patience.limit_ns, "each is cut down to what is left"
    assert patience.connect_ns(now_ns) <= round(chosen.connect_s * NS)
    assert patience.silence_ns(now_ns) <= now_ns + round(chosen.idle_s * NS)
    assert patience.first_event_ns() <= start_ns + round(chosen.first_byte_s * NS)


@settings(max_examples=100, deadline=None)
@given(SETTINGS, st.floats(0.1, 2_000), st.booleans())
def test_whose_patience_ran_out_is_said_truly(chosen: GatewaySettings, left_s: float, begun: bool) -> None:
    deadline_ns = round(left_s * NS)
    patience = Patience(chosen, 0, deadline_ns)
    failure = patience.failure(patience.limit_ns, begun=begun)
    own = round(chosen.total_s * NS) <= deadline_ns - round(chosen.answer_margin_s * NS)
    assert failure.reason == ("upstream_total_timeout" if own else "deadline_exceeded")
    assert failure.upstream == own, "the provider is not to blame for a caller's deadline"
