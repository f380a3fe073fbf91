"""The marker: who an upstream call was for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_provider.marker import MARKER_TOKENS, Marker, ack, decode, decode_ack, encode, message
from fake_provider.words import FILLER_WORDS, MARKER_WORDS, count_tokens, filler

markers = st.builds(
    Marker,
    run=st.integers(0, 65_535),
    tenant=st.integers(0, 65_535),
    seq=st.integers(0, (1 << 24) - 1),
    attempt=st.integers(0, 255),
    output_tokens=st.integers(0, 65_535),
)
MARKER = Marker(run=513, tenant=3, seq=70_000, attempt=2, output_tokens=24)


@given(markers)
def test_what_is_encoded_is_decoded(marker: Marker) -> None:
    assert decode(encode(marker)) == marker
    assert count_tokens(encode(marker)) == MARKER_TOKENS


@given(
    markers, st.integers(0, MARKER_TOKENS - 1), st.sampled_from([*MARKER_WORDS, *FILLER_WORDS, "x", "zebra"])
)
def test_a_marker_with_one_word_changed_is_no_marker(marker: Marker, place: int, word: str) -> None:
    words = encode(marker).split()
    before, words[place] = words[place], word
    assert decode(" ".join(words)) == (marker if before == word else None)


@given(markers, st.integers(0, MARKER_TOKENS - 1))
def test_a_marker_with_one_word_lost_is_no_marker(marker: Marker, place: int) -> None:
    words = encode(marker).split()
    del words[place]
    assert decode(" ".join(words)) is None


@given(
    markers,
    st.sampled_from([" ", "  ", "\n", ", ", " - ", '","', "\t", ". "]),
    st.sampled_from([str.upper, str.lower, str.title, str.swapcase]),
    st.sampled_from(["", "Summarise this: ", "role: user\n\n> ", filler(40, 9) + "\n", "ref ref ref "]),
    st.sampled_from(["", ".", "\nThanks!", filler(40, 3), " ref above able"]),
)
def test_it_survives_casing_spacing_punctuation_and_surroundings(
    marker: Marker, gap: str, case: object, before: str, after: str
) -> None:
    assert callable(case)
    assert decode(before + case(gap.join(encode(marker).split())) + after) == marker


@given(markers, markers)
def test_the_last_valid_one_wins(first: Marker, second: Marker) -> None:
    assert decode(f"{encode(first)}\n{encode(second)}") == second
    spoiled = encode(second).rsplit(" ", 1)[0] + " zebra"
    assert decode(f"{encode(first)}\n{spoiled}") == first


@pytest.mark.parametrize(
    "text", ["", "ref", "reference " * 20, filler(300, 1), "ref " * 200, "prefix " + encode(MARKER)[3:]]
)
def test_other_text_holds_no_marker(text: str) -> None:
    assert decode(text) is None


def test_an_opener_inside_a_word_opens_nothing() -> None:
    assert decode("x" + encode(MARKER)) is None


@pytest.mark.parametrize(
    "numbers", [(65_536, 0, 0, 0, 0), (0, 0, 1 << 24, 0, 0), (0, 0, 0, 256, 0), (0, -1, 0, 0, 0)]
)
def test_numbers_that_do_not_fit_are_refused(numbers: tuple[int, int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Marker(*numbers)


@given(markers, st.integers(0, 300))
def test_a_message_has_the_planned_size_and_begins_with_the_marker(marker: Marker, tokens: int) -> None:
    text = message(marker, tokens)
    assert count_tokens(text) == max(tokens, MARKER_TOKENS)
    assert text.splitlines()[0] == encode(marker)


@given(markers)
def test_an_answer_says_whose_it_is(marker: Marker) -> None:
    assert decode_ack(ack(marker)) == marker.seq
    assert decode_ack(f"Here you go: {ack(marker).upper()}{filler(10)}") == marker.seq


@given(markers, st.integers(0, 5), st.sampled_from([*MARKER_WORDS, "zebra"]))
def test_an_acknowledgement_with_one_word_changed_says_nothing(marker: Marker, place: int, word: str) -> None:
    words = ack(marker).split()
    before, words[place] = words[place], word
    assert decode_ack(" ".join(words)) == (marker.seq if before == word else None)


def test_text_without_an_acknowledgement_says_nothing() -> None:
    assert decode_ack("") is None
    assert decode_ack(filler(100)) is None
    assert decode_ack(" ".join(ack(MARKER).split()[:5])) is None
