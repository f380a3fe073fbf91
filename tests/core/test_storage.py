"""Files that survive a crash, and disks that are full."""

from __future__ import annotations

import errno
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from agentload.drivers.collector import Files
from agentload.drivers.kept_samples import KeptSamples
from agentload.model import Sample
from agentload.storage import (
    DamagedFileError,
    JsonLines,
    StorageError,
    read_json,
    read_lines,
    storage_error,
    write_file,
)

FULL = Path("/dev/full")
needs_dev_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")


def sample(at_ns: int) -> Sample:
    return Sample(at_ns=at_ns, source="gateway", values={"waiting": 1.0})


def test_what_extend_has_returned_from_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    writer = JsonLines(path)
    writer.append(sample(1))
    writer.extend([sample(2), sample(3)])
    writer.extend([])
    assert read_lines(path, Sample) == ([sample(1), sample(2), sample(3)], 0)  # not closed: as after kill -9
    assert writer.lines == 3
    writer.close()
    writer.close()


def test_a_second_writer_appends(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    for at_ns in (1, 2):
        with JsonLines(path) as writer:
            writer.append(sample(at_ns))
    assert read_lines(path, Sample)[0] == [sample(1), sample(2)]


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_file_cut_anywhere_loses_only_its_last_line(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "samples.jsonl"
    with JsonLines(path) as writer:
        writer.extend([sample(1), sample(2)])
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_lines(path, Sample) == ([sample(1)], 1)


def test_no_file_is_no_lines(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "none.jsonl", Sample) == ([], 0)


def test_bytes_that_are_no_text_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_bytes(b'\xff\xfe\n{"at_ns":1,"source":"x","values":{}}\n')
    with pytest.raises(DamagedFileError, match=r"samples\.jsonl:1: damaged"):
        read_lines(path, Sample)


@needs_dev_full
def test_a_full_disk_is_said_with_the_mend() -> None:
    with (
        JsonLines(FULL) as writer,
        pytest.raises(StorageError, match=r"disk is full after 0 lines.*--out") as caught,
    ):
        writer.append(sample(1))
    assert len(caught.value.lines) == 1
    assert writer.lines == 0


@contextmanager
def room_for(size_bytes: int) -> Generator[None]:
    """Files cannot grow beyond it meanwhile: the last write that fits does so in part, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_was_full_for_a_moment_leaves_no_half_line_behind(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    line = len(msgspec.json.encode(sample(1))) + 1
    with JsonLines(path) as writer:
        writer.append(sample(1))
        with room_for(3 * line + line // 2), pytest.raises(StorageError, match="after 3 lines"):
            writer.extend([sample(2), sample(3), sample(4)])
        writer.append(sample(5))
        assert writer.lines == 4
    assert read_lines(path, Sample) == ([sample(n) for n in (1, 2, 3, 5)], 0)


def test_records_leave_no_half_line_either(tmp_path: Path) -> None:
    files = Files(tmp_path, 0.0)
    with room_for(1_000), pytest.raises(StorageError, match=r"records\.jsonl"):
        files.append(b'{"number": "one"}\n{"number": "two"}\n' * 100)
    files.close()
    assert (tmp_path / "records.jsonl").read_bytes().endswith(b'"}\n')


@needs_dev_full
def test_a_sample_that_the_disk_refuses_is_told_and_never_raised_in_its_thread() -> None:
    with JsonLines(FULL) as lines:
        samples = KeptSamples(lines)
        assert samples.lost() is None
        samples.keep(sample(1))
        samples.keep(sample(2))
        lost = samples.lost()
    assert lost is not None
    assert "the disk is full after 0 lines" in str(lost)


def test_errors_of_the_disk_in_words() -> None:
    path = Path("reports/x")
    assert "disk is full" in str(storage_error(OSError(errno.EDQUOT, "quota"), path, ""))
    assert "may not be written" in str(storage_error(OSError(errno.EROFS, "read-only"), path, ""))
    assert "cannot be written: weather" in str(storage_error(OSError(errno.EIO, "weather"), path, ""))


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_file(path, b"old")
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]
    with pytest.raises(StorageError):
        write_file(tmp_path / "no" / "folder", b"")


def test_a_whole_json_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(msgspec.json.encode(sample(4)))
    assert read_json(path, Sample) == sample(4)
    for damaged in (b"", b"[]", b"\xff"):
        path.write_bytes(damaged)
        with pytest.raises(DamagedFileError):
            read_json(path, Sample)
    with pytest.raises(DamagedFileError, match="cannot be read"):
        read_json(tmp_path / "none.json", Sample)
