"""OpenAI's embeddings: what gateways ask for on their own account."""

from __future__ import annotations

import json
import math
from array import array
from base64 import b64decode
from typing import Any

import pytest

from fake_provider.call import Call
from fake_provider.config import ProviderConfig
from fake_provider.core import Provider
from fake_provider.marker import Marker, message
from fake_provider.openai_embeddings import OpenAIEmbeddings
from fake_provider.wire import Unreadable
from provider_helpers import EXACT, refusal, service

WIRE = OpenAIEmbeddings()
MARKED = message(Marker(run=0, tenant=3, seq=7, attempt=0, output_tokens=12), 40)


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "e", "input": "a b c", **fields}).encode()


def call(core: Provider | None = None, **fields: Any) -> Call:
    core = core or Provider(ProviderConfig(latency=EXACT))
    return service(core.arrive(0, WIRE.parse({}, body(**fields))))


def answered(**fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(WIRE.whole(call(**fields)))
    return answer


def test_equal_texts_have_equal_vectors_of_length_one_and_others_are_far() -> None:
    answer = answered(input=["a b", "c", "a b"])
    first, other, again = (one["embedding"] for one in answer["data"])
    assert (len(first), [one["index"] for one in answer["data"]]) == (1_536, [0, 1, 2])
    assert math.hypot(*first) == pytest.approx(1, abs=1e-6)
    assert first == again
    assert abs(sum(a * b for a, b in zip(first, other, strict=True))) < 0.2
    assert answer["usage"] == {"prompt_tokens": 5, "total_tokens": 5}


def test_base64_holds_the_same_numbers() -> None:
    [floats] = answered(dimensions=8)["data"]
    [packed] = answered(dimensions=8, encoding_format="base64")["data"]
    assert array("f", b64decode(packed["embedding"])).tolist() == floats["embedding"]


@pytest.mark.parametrize(("tokens", "inputs"), [([1, 2, 3], 1), ([[1, 2], [3]], 2)])
def test_tokens_may_be_given_instead_of_text(tokens: list[Any], inputs: int) -> None:
    answer = answered(input=tokens, dimensions=2)
    assert (len(answer["data"]), answer["usage"]["prompt_tokens"]) == (inputs, 3)


def test_it_is_the_gateways_call_even_with_a_tenants_marker_in_it() -> None:
    core = Provider(ProviderConfig(latency=EXACT, tokens_per_minute=6_000))
    entry = call(core, input=MARKED).entry
    assert (entry.endpoint, entry.tenant, entry.input_tokens) == ("embeddings", None, 40)
    assert entry.charged_tokens == -(-len(MARKED) // 4)
    assert core.unattributed() == [{"endpoint": "embeddings", "model": "e", "calls": 1}]


def test_limits_hold_for_it() -> None:
    core = Provider(ProviderConfig(latency=EXACT, requests_per_minute=60, bucket_s=1))
    call(core)
    refused = refusal(core.arrive(0, WIRE.parse({}, body())))
    headers, text = WIRE.refusal(refused)
    assert (refused.status, dict(headers)) == (429, {b"retry-after": b"1"})
    assert json.loads(text)["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize(
    "fields",
    [
        {"model": None},
        {"input": ""},
        {"input": []},
        {"input": ["a", ""]},
        {"input": ["a", 1]},
        {"input": [[]]},
        {"input": ["a"] * 2_049},
        {"dimensions": 0},
        {"encoding_format": "text"},
        {"input": {"a": 1}},
    ],
)
def test_what_cannot_be_read_is_a_400(fields: dict[str, Any]) -> None:
    with pytest.raises(Unreadable) as caught:
        WIRE.parse({}, body(**fields))
    assert caught.value.status == 400
    assert json.loads(caught.value.body)["error"]["type"] == "invalid_request_error"
