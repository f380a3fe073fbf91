"""The words that texts are made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fake_provider.words import FILLER_WORDS, MARKER_WORDS, TOPIC_WORDS, count_tokens, filler, filler_chars

ALARMING = {
    "ignore",
    "ignored",
    "system",
    "key",
    "keys",
    "token",
    "tokens",
    "prompt",
    "secrets",
    "admin",
    "override",
}


def test_the_markers_alphabet_has_one_plain_word_for_each_byte() -> None:
    assert len(set(MARKER_WORDS)) == len(MARKER_WORDS) == 256
    assert all(word.isalpha() and word.islower() and word.isascii() for word in MARKER_WORDS)


def test_no_word_could_be_taken_for_an_instruction_or_for_the_opener() -> None:
    words = {*MARKER_WORDS, *FILLER_WORDS}
    assert not words & ALARMING
    assert not [word for word in words if "ref" in word or word == "ack"]


def test_filler_and_alphabet_share_no_word() -> None:
    assert not set(MARKER_WORDS) & set(FILLER_WORDS)


@given(n=st.integers(0, 500), offset=st.integers(0, 1 << 24))
def test_filler_has_exactly_as_many_words_as_asked(n: int, offset: int) -> None:
    text = filler(n, offset)
    assert count_tokens(text) == n
    assert all(word in FILLER_WORDS for word in text.split())


@given(a=st.integers(0, 200), b=st.integers(0, 200), offset=st.integers(0, 1 << 24))
def test_a_text_may_be_made_in_pieces(a: int, b: int, offset: int) -> None:
    assert filler(a, offset) + filler(b, offset, skip=a) == filler(a + b, offset)


@given(n=st.integers(0, 300), offset=st.integers(0, 1 << 24), skip=st.integers(0, 300))
def test_filler_is_its_topic_word_by_word(n: int, offset: int, skip: int) -> None:
    ring = FILLER_WORDS + FILLER_WORDS
    start = FILLER_WORDS.index(filler(1, offset).strip())
    topic = ring[start : start + TOPIC_WORDS]
    words = [topic[(skip + place) % TOPIC_WORDS] for place in range(n)]
    assert filler(n, offset, skip) == "".join(f" {word}" for word in words)
    assert filler_chars(n, offset) == len(filler(n, offset))


def test_neighbouring_offsets_share_few_words() -> None:
    for offset in range(50):
        here, next_one = set(filler(64, offset).split()), set(filler(64, offset + 1).split())
        assert len(here & next_one) <= len(here) / 2
