"""One small file or text, read as a document."""

from __future__ import annotations

import os
from typing import Any

import yaml

from agentload.errors import ProfileError
from agentload.yaml_positions.builder import MAX_BYTES, MAX_DEPTH, Builder
from agentload.yaml_positions.document import Document
from agentload.yaml_positions.wording import MAX_MESSAGE, cut
from fake_provider.named_file import read_whole

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a small UTF-8 file, or of a pipe that ends soon. Raises ProfileError, one line, else."""
    try:
        raw = read_whole(path, MAX_BYTES)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        raise ProfileError(f"{str(path)!r}: is no file name") from None
    if b"\0" in raw:
        raise ProfileError(f"{path}: is a binary file, not YAML")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ProfileError(f"{path}:{line}: is not UTF-8 text") from None


def compose(text: str, file: str) -> Document:
    """Read one YAML document. Problems with single values are noted in the document.

    Raises ProfileError for what is not YAML at all.
    """
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        problem = cut(str(error.problem or error.context), MAX_MESSAGE)
        raise ProfileError(
            f"{file}:{_mark(error)}: YAML syntax: {problem}{_syntax_hint(error, text)}"
        ) from None
    except yaml.YAMLError as error:
        reason = getattr(error, "reason", None) or str(error).splitlines()[0]
        raise ProfileError(f"{file}: not YAML: {cut(str(reason), MAX_MESSAGE)}") from None
    except UnicodeError:
        raise ProfileError(f"{file}: not YAML: holds (or spells out in a tag) what is no character") from None
    except RecursionError:
        raise ProfileError(f"{file}: nested deeper than {MAX_DEPTH} levels") from None
    document = Document(file)
    if node is not None:
        document.data = Builder(document).build(node, ())
    return document


def _mark(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"{mark.line + 1}:{mark.column + 1}" if mark else "1"


def _syntax_hint(error: yaml.MarkedYAMLError, text: str) -> str:
    """What is usually wrong there: libyaml names what it could not go on with."""
    mark = error.problem_mark or error.context_mark
    if mark is not None and text.split("\n")[mark.line : mark.line + 1]:
        line = text.split("\n")[mark.line]
        if "\t" in line[: len(line) - len(line.lstrip())]:
            return " (a tab: indent with spaces)"
    if "mapping values are not allowed" in str(error.problem):
        return " (is this line indented as the one above?)"
    return ""
