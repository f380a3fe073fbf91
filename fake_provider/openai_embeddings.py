"""OpenAI's embeddings: what a gateway asks for on its own account, for a semantic cache or a guardrail.

Source: https://platform.openai.com/docs/api-reference/embeddings. A vector belongs to its text and says
nothing of its meaning: equal texts have equal vectors, all others are far apart. A marker in the text is not
read: such a call is the gateway's and no attempt of the tenant's, so that it is counted apart.
"""

from __future__ import annotations

import math
import sys
from array import array
from base64 import b64encode
from hashlib import shake_128
from typing import Literal

import msgspec

from fake_provider.call import Call, CallRequest
from fake_provider.openai_common import OpenAIWire, Wrong, asked_of
from fake_provider.wire import Frames, RequestHeaders, bearer_key, retry_count
from fake_provider.words import count_tokens

ENDPOINT = "embeddings"
DIMENSIONS = 1_536
MOST_INPUTS = 2_048
_DIGEST_BYTES = 16
_encode = msgspec.json.Encoder().encode


class _Body(msgspec.Struct):
    model: str | None = None
    input: str | list[str | int | list[int]] | None = None
    dimensions: int | None = None
    encoding_format: Literal["float", "base64"] | None = None

    def inputs(self) -> list[str | list[int]]:
        """Each text, or each text's tokens."""
        if self.input is None or isinstance(self.input, str):
            return [self.input] if self.input else []
        tokens = [one for one in self.input if isinstance(one, int)]
        if tokens:
            return [tokens] if len(tokens) == len(self.input) else []
        return [one for one in self.input if not isinstance(one, int)]


class _Wanted(msgspec.Struct):
    """What the answer needs to know of the request."""

    dimensions: int
    base64: bool
    digests: list[bytes]


_decode = msgspec.json.Decoder(_Body).decode
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(_Wanted).decode


def _check(asked: _Body) -> None:
    if not asked.model:
        raise Wrong("you must provide a model parameter", "model")
    inputs = asked.inputs()
    if not inputs or not all(inputs):
        raise Wrong("'$.input' is invalid. Please check the API reference.", "input")
    if len(inputs) > MOST_INPUTS:
        raise Wrong(f"'$.input' is too long: at most {MOST_INPUTS} inputs a request.", "input")
    if asked.dimensions is not None and not 1 <= asked.dimensions <= DIMENSIONS:
        raise Wrong(f"Invalid value for 'dimensions': must be from 1 to {DIMENSIONS}.", "dimensions")


class OpenAIEmbeddings(OpenAIWire):
    """`POST /v1/embeddings`."""

    def parse(self, headers: RequestHeaders, body: bytes) -> CallRequest:
        """The call that a request asks for; Unreadable carries what OpenAI would answer."""
        asked = asked_of(headers, body, ENDPOINT, _decode, _check)
        inputs = asked.inputs()
        wanted = _Wanted(
            dimensions=asked.dimensions or DIMENSIONS,
            base64=asked.encoding_format == "base64",
            digests=[shake_128(_encode(one)).digest(_DIGEST_BYTES) for one in inputs],
        )
        return CallRequest(
            api_key=bearer_key(headers),
            model=asked.model or "",
            endpoint=ENDPOINT,
            text_chars=sum(len(one) if isinstance(one, str) else 4 * len(one) for one in inputs),
            input_tokens=sum(count_tokens(one) if isinstance(one, str) else len(one) for one in inputs),
            max_tokens=1,  # nothing is written, but an answer has at least one token
            retry_count=retry_count(headers),
            detail=_pack(wanted),
        )

    def whole(self, call: Call) -> bytes:
        """The body of a complete answer."""
        wanted, tokens = _unpack(call.request.detail), call.request.input_tokens
        data = [
            {"object": "embedding", "index": i, "embedding": _embedding(digest, wanted)}
            for i, digest in enumerate(wanted.digests)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return _encode({"object": "list", "data": data, "model": call.request.model, "usage": usage})

    def frames(self, call: Call) -> Frames:
        """There are no streams here: `parse` never asks for one."""
        raise TypeError(f"call {call.number}: embeddings are not streamed")


def _embedding(digest: bytes, wanted: _Wanted) -> list[float] | str:
    vector = unit_vector(digest, wanted.dimensions)
    if not wanted.base64:
        return vector.tolist()
    if sys.byteorder == "big":
        vector.byteswap()
    return b64encode(vector.tobytes()).decode()


def unit_vector(digest: bytes, dimensions: int) -> array[float]:
    """The vector of length 1 that belongs to a text's digest."""
    numbers = [byte - 127.5 for byte in shake_128(digest).digest(dimensions)]
    length = math.sqrt(math.fsum(number * number for number in numbers))
    return array("f", [number / length for number in numbers])
