"""Whatever a gauge answers, the sampler goes on."""

from __future__ import annotations

import httpx
import pytest

from agentload.drivers.sampler import Sampler
from agentload.model import Sample

NONSENSE = [
    b"[]", b'"x"', b"null", b'{"now_ns": "x"}', b'{"now_ns": null}', b"[" * 100_000, b"\xff", b"",
    b'{"queued": ' + b"9" * 400 + b"}",
]  # fmt: skip


def read(body: bytes) -> tuple[list[Sample], int]:
    kept: list[Sample] = []
    sampler = Sampler("http://gauge/", "gateway", 0, lambda: 5, kept.append)
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, content=body))) as http:
        sampler._read(http)
    return kept, sampler.misses


@pytest.mark.parametrize("body", NONSENSE, ids=range(len(NONSENSE)))
def test_what_is_no_reading_is_a_miss(body: bytes) -> None:
    assert read(body) == ([], 1)


def test_a_reading_is_kept() -> None:
    assert read(b'{"queued": 3, "now_ns": 4, "name": "x"}') == (
        [Sample(at_ns=4, source="gateway", values={"queued": 3.0})],
        0,
    )
