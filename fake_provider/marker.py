"""Who an upstream call was for, in plain words: message content is all that every gateway forwards.

A marker is 13 words: the opener `ref`, then run (2), tenant (2), seq (3), attempt (1), wanted output (2) and
a CRC-16 (2), one word of `words.MARKER_WORDS` per byte, big-endian. It has the same size for every tenant
and holds no names. It must be the first line of the LAST user message. The answer begins with `ack`, the
seq and a CRC, so that the client can tell that the answer is its own.

The CRC is CRC-16/CCITT (x^16 + x^12 + x^5 + 1, start 0xFFFF): it finds every change of one word, and of two
words side by side.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from struct import Struct
from struct import error as StructError

import msgspec

from fake_provider.words import MARKER_WORDS, filler, filler_chars

OPENER = "ref"
ACK = "ack"
MARKER_TOKENS = 13
"""Words in a marker, so tokens too."""
ACK_TOKENS = 6
"""Words in an acknowledgement."""

_NUMBER = {word: number for number, word in enumerate(MARKER_WORDS)}
_LENGTH = tuple(map(len, MARKER_WORDS))
_LAYOUT = Struct(">HHBHBH")
"""The three bytes of seq are a high one and two low ones."""
# Between two words at most eight characters that are no letters: enough for any wrapping or quoting, and a
# bound on what a match may cost.
_WORD = r"[^a-z]{1,8}([a-z]+)"
_AFTER_OPENER = re.compile(rf"(?<![a-z]){OPENER}{_WORD * (MARKER_TOKENS - 1)}")
_ACK = re.compile(rf"(?<![a-z]){ACK}(?={_WORD * (ACK_TOKENS - 1)})")


class Marker(msgspec.Struct, frozen=True, gc=False):
    """What a client says about itself. Raises ValueError when a number does not fit its words."""

    run: int
    """0..65535, drawn anew for every run: markers of an earlier run are not counted for this one."""
    tenant: int
    """0..65535, the tenant's place in the profile."""
    seq: int
    """0..16,777,215, the logical request."""
    attempt: int
    """0..255, counted from 0 by the client (a client that tries more often stays at 255)."""
    output_tokens: int
    """0..65535: how many tokens the model shall produce; 0 leaves it to the provider's default."""

    def to_bytes(self) -> bytes:
        """The ten bytes that the words stand for, without the CRC."""
        try:
            high, low = divmod(self.seq, 1 << 16)
            return _LAYOUT.pack(self.run, self.tenant, high, low, self.attempt, self.output_tokens)
        except StructError:
            raise ValueError(f"{self!r}: a number does not fit its words") from None

    def __post_init__(self) -> None:
        """Numbers that do not fit are refused when the marker is made."""
        self.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Marker:
        """The marker that ten bytes stand for."""
        number = int.from_bytes
        return cls(
            run=number(data[0:2], "big"),
            tenant=number(data[2:4], "big"),
            seq=number(data[4:7], "big"),
            attempt=data[7],
            output_tokens=number(data[8:10], "big"),
        )


def encode(marker: Marker) -> str:
    """The marker as 13 words."""
    return f"{OPENER} {_words(_with_crc(marker.to_bytes()))}"


def decode(text: str) -> Marker | None:
    """The last valid marker in `text`, however cased, spaced, punctuated or surrounded; None without one."""
    text = text.lower()
    at = text.rfind(OPENER)
    while at >= 0:
        match = _AFTER_OPENER.match(text, at)
        data = _checked(match.groups()) if match else None
        if data is not None:
            return Marker.from_bytes(data)
        at = text.rfind(OPENER, 0, at)
    return None


def message(marker: Marker, input_tokens: int, offset: int | None = None) -> str:
    """The user message of a call: the marker's line, then filler up to `input_tokens` words in all.

    It is never shorter than the marker. `offset` chooses the topic (see `words.filler`); the seq by default.
    """
    padding = input_tokens - MARKER_TOKENS
    if padding <= 0:
        return encode(marker)
    return f"{encode(marker)}\n{filler(padding, marker.seq if offset is None else offset)}"


def message_chars(marker: Marker, input_tokens: int) -> int:
    """`len(message(marker, input_tokens))`, without making the text (for a simulator)."""
    data = _with_crc(marker.to_bytes())
    chars = len(OPENER) + len(data) + sum(map(_LENGTH.__getitem__, data))
    padding = input_tokens - MARKER_TOKENS
    return chars if padding <= 0 else chars + 1 + filler_chars(padding, marker.seq)


def ack(marker: Marker) -> str:
    """The six words that an answer begins with: `ack`, the seq and a CRC over both."""
    return f"{ACK} {_words(_ack_bytes(marker.seq.to_bytes(3, 'big')))}"


def decode_ack(text: str) -> int | None:
    """The seq that an answer says it belongs to; None when it does not say (it may be cut too short)."""
    for match in _ACK.finditer(text.lower()):
        data = _numbers(match.groups())
        if data is not None and data == _ack_bytes(data[:3]):
            return int.from_bytes(data[:3], "big")
    return None


def _words(data: bytes) -> str:
    return " ".join([MARKER_WORDS[byte] for byte in data])


def _numbers(words: tuple[str, ...]) -> bytes | None:
    """The bytes that the words stand for; None when one of them is foreign."""
    try:
        return bytes(map(_NUMBER.__getitem__, words))
    except KeyError:
        return None


def _with_crc(body: bytes) -> bytes:
    return body + crc_hqx(body, 0xFFFF).to_bytes(2, "big")


def _ack_bytes(seq: bytes) -> bytes:
    return seq + crc_hqx(ACK.encode() + seq, 0xFFFF).to_bytes(2, "big")


def _checked(words: tuple[str, ...]) -> bytes | None:
    """The body that the words stand for, or None when a word is foreign or the CRC does not fit."""
    data = _numbers(words)
    return data[:-2] if data is not None and _with_crc(data[:-2]) == data else None
