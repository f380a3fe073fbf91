"""YAML as profiles read it: no surprises in scalars, and a place for everything."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.errors import ProfileError
from agentload.yaml_positions import compose, dotted, read_text


def read(text: str) -> object:
    document = compose(text, "f.yaml")
    document.raise_problems()
    return document.data


def complaints(text: str) -> tuple[str, ...]:
    """What is wrong with a text, if anything."""
    try:
        compose(text, "f").raise_problems()
    except ProfileError as error:
        return error.lines
    return ()


def problems(text: str) -> list[str]:
    with pytest.raises(ProfileError) as raised:
        read(text)
    return list(raised.value.lines)


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("1e6", 1_000_000),
        ("1.5e3", 1500.0),
        ("10_000", 10_000),
        ("017", 17),
        ("0x1F", 31),
        ("0o17", 15),
        ("-2", -2),
        (".5", 0.5),
        ("1:30", "1:30"),
        ("yes", "yes"),
        ("on", "on"),
        ("True", True),
        ("false", False),
        ("~", None),
        ("", None),
        ("2024-01-02", "2024-01-02"),
        ("1.2.3", "1.2.3"),
        ("'7'", "7"),
        ('"1e6"', "1e6"),
        ("=", "="),
    ],
)
def test_a_scalar_is_what_it_looks_like(scalar: str, value: object) -> None:
    found = read(f"a: {scalar}")
    assert found == {"a": value}
    assert type(found["a"]) is type(value)  # type: ignore[index]


@pytest.mark.parametrize("scalar", [".inf", "-.INF", ".nan", "1e999", "9" * 5000, "1e16"])
def test_numbers_without_a_size_are_refused(scalar: str) -> None:
    assert [line[:17] for line in problems(f"a: {scalar}")] == ["f.yaml:1:4: a: mu"]


def test_whole_exponents_are_ints_and_points_are_floats() -> None:
    assert isinstance(read("1e3"), int)
    assert isinstance(read("1.0"), float)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml:3:1: a: duplicate key (first on line 1)"),
        (
            "a: !!python/object:os.x {}",
            "f.yaml:1:4: a: the tag tag:yaml.org,2002:python/object:os.x is not supported",
        ),
        ("? [1]\n: 2", "f.yaml:1:3: a key must be text"),
        ('a: "\\0"', "f.yaml:1:4: a: holds characters that are no text"),
        ("<<: 3", "f.yaml:1:5: << must be followed by a mapping"),
    ],
)
def test_problems_name_their_place(text: str, line: str) -> None:
    assert problems(text) == [line]


TAB = "(a tab: indent with spaces)"
SAME_INDENT = "are not allowed in this context (is this line indented as the one above?)"
BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("a: [1", "f.yaml:2:1: YAML syntax: "),
        ("name: x\n tenants: [", f"f.yaml:2:9: YAML syntax: mapping values {SAME_INDENT}"),
        ("\ta: 1", f"f.yaml:1:1: YAML syntax: found character that cannot start any token {TAB}"),
        (
            "a:\n  b: 1\n\tc: 1",
            f"f.yaml:3:1: YAML syntax: found a tab character that violates indentation {TAB}",
        ),
        ("a: *b", "f.yaml:1:4: YAML syntax: found undefined alias"),
        ("a: 1\n---\nb: 2", "f.yaml:2:1: YAML syntax: but found another document"),
        ("a: \x07", "f.yaml: not YAML: control characters"),
        ("[" * 5000, "f.yaml:1:"),
        ("[" * 40 + "]" * 40, "f.yaml:1: nested deeper than 32 levels"),
        ("a: &a [*a]", "f.yaml:1: nested deeper than 32 levels"),
        (BOMB, "f.yaml:1: nested deeper than 32 levels, or more than 200000 values"),
    ],
)
def test_what_is_not_yaml_is_one_line(text: str, beginning: str) -> None:
    lines = problems(text)
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert lines[0].startswith(beginning)


def test_merge_keys_keep_what_is_written_out() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 4}\nx: {<<: [*base, *more], a: 9}"
    assert read(text)["x"] == {"a": 9, "b": 2, "c": 4}  # type: ignore[index]


def test_places_of_values_and_keys() -> None:
    document = compose("a:\n  - {b: 1,\n     c: 2}\n", "f.yaml")
    assert document.places["a", 0, "c"][:2] == (3, 9)
    assert document.keys["a", 0, "c"][:2] == (3, 6)
    document.complain(("a", 0, "d", "e"), "is missing")
    with pytest.raises(ProfileError, match=r"^f.yaml:2:5: a\[0\].d.e: is missing$"):
        document.raise_problems()


def test_problems_come_in_file_order_each_once() -> None:
    document = compose("a: 1\nb: 2\n", "f")
    for path in (("b",), ("a",), ("b",)):
        document.complain(path, "bad")
    with pytest.raises(ProfileError) as raised:
        document.raise_problems()
    assert raised.value.lines == ("f:1:4: a: bad", "f:2:4: b: bad")


def test_dotted_paths() -> None:
    assert dotted(("tenants", 1, "weight")) == "tenants[1].weight"
    assert dotted(()) == ""


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_one_line_each(text: str) -> None:
    assert all("\n" not in line and line.startswith("f") for line in complaints(text))


class TestReadText:
    def test_a_missing_file(self) -> None:
        with pytest.raises(ProfileError, match=r"^/no/such: cannot be read: no such file or directory$"):
            read_text("/no/such")

    def test_a_folder(self, tmp_path: object) -> None:
        with pytest.raises(ProfileError, match=r": cannot be read: is a directory$"):
            read_text(str(tmp_path))

    def test_a_file_that_the_system_refuses_to_read(self) -> None:
        with pytest.raises(ProfileError, match=r"^/proc/self/mem: cannot be read: input/output error$"):
            read_text("/proc/self/mem")

    def test_something_endless(self) -> None:
        with pytest.raises(ProfileError, match=r"^/dev/zero: cannot be read: is a device, not a file$"):
            read_text("/dev/zero")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"a: 1\0", "is a binary file"),
            (b"\x7fELF\0", "is a binary file"),
            (b"a: 1\nb: \xff\n", ":2: is not UTF-8 text"),
            (b"a: 1\n" * 300_000, "is larger than 1000000 bytes"),
        ],
    )
    def test_wrong_content(self, tmp_path: object, content: bytes, message: str) -> None:
        path = f"{tmp_path}/f.yaml"
        with open(path, "wb") as stream:
            stream.write(content)
        with pytest.raises(ProfileError, match=message) as raised:
            read_text(path)
        assert len(raised.value.lines) == 1

    def test_a_byte_order_mark_is_no_text(self, tmp_path: object) -> None:
        path = f"{tmp_path}/f.yaml"
        with open(path, "wb") as stream:
            stream.write(b"\xef\xbb\xbfname: x")
        assert read_text(path) == "name: x"

    def test_a_name_that_is_none(self) -> None:
        with pytest.raises(ProfileError, match=r"^'a\\x00b': is no file name$"):
            read_text("a\0b")
