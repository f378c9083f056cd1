"""Special files, sparse files of a terabyte, and the access rights of the files that this software writes."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType

import pytest

from metadata_log.disk import MOST_SMALL_BYTES, OsDisk, make_directory, replace_file
from metadata_log.log.log_dir import format_directory
from metadata_log.reading.damage import Damage
from metadata_log.reading.pieces import PIECE_BYTES, Piece, Zeros, pieces_of
from metadata_log.reading.reader import read_file
from metadata_log.records.batch import RecordBatch
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import NoOpRecord

TIB = 1 << 40
NO_FILE = r"FIFO|device|socket|directory"
BATCH = build_batch(0, 1, 1000, [encode_record(NoOpRecord(), 0)])
NEXT = build_batch(1, 1, 1000, [encode_record(NoOpRecord(), 0)])


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """A reader that waits for the other end of a FIFO, or walks a terabyte, fails here and does not hang."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError("this takes far too long")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["fifo", "device", "socket", "directory"])
def no_file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "00000000000000000000.log"
    if request.param == "fifo":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    elif request.param == "directory":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            monkeypatch.chdir(tmp_path)  # the name of a socket may have a hundred bytes
            listener.bind(path.name)
    return str(path)


@pytest.mark.parametrize("writable", [True, False])
def test_a_path_that_is_no_regular_file_is_refused(no_file: str, writable: bool) -> None:
    with pytest.raises(OSError, match=NO_FILE) as refused:
        OsDisk().open(no_file, create=writable, writable=writable)
    assert refused.value.errno in {errno.EINVAL, errno.EISDIR}
    assert refused.value.filename == no_file
    with pytest.raises(OSError, match=NO_FILE):
        OsDisk().read(no_file)
    if not writable:
        with pytest.raises(OSError, match=NO_FILE):
            list(read_file(OsDisk(), no_file))


def test_a_lock_is_no_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(OSError, match="FIFO"):
        OsDisk().lock(str(tmp_path / ".lock"))


# ---------------------------------------------------------------------------------------------------- sparse giants


def sparse(path: Path, *parts: tuple[int, bytes], size: int = TIB) -> str:
    """A file of a terabyte with some bytes in it."""
    with path.open("wb") as file:
        for position, data in parts:
            file.seek(position)
            file.write(data)
        file.truncate(size)
    return str(path)


@pytest.mark.parametrize("second_at", [TIB // 2, TIB // 2 + 4096 - 13, TIB - len(NEXT)])
def test_sparse_holes_are_skipped(tmp_path: Path, second_at: int) -> None:
    """A batch after a hole of half a terabyte is found, also if its first bytes are in the hole's last block."""
    path = sparse(tmp_path / "00000000000000000000.log", (0, BATCH), (second_at, NEXT))
    first, hole, second, *rest = read_file(OsDisk(), path)
    assert isinstance(first, RecordBatch)
    assert isinstance(hole, Damage)
    assert f"{second_at - len(BATCH)} bytes cannot be read" in hole.what
    assert isinstance(second, RecordBatch)
    assert (second.base_offset, second.position) == (1, second_at)
    assert len(rest) == (0 if second.end_position == TIB else 1)


def test_a_length_of_gigabytes_is_damage(tmp_path: Path) -> None:
    """Where the file is as large as a header says, no such batch is read into memory."""
    lie = BATCH[:8] + (2**31 - 1).to_bytes(4, "big") + BATCH[12:]
    path = sparse(tmp_path / "00000000000000000000.log", (0, lie), (1 << 33, BATCH))
    damage, found, rest = read_file(OsDisk(), path)
    assert isinstance(damage, Damage)
    assert "no batch has 2147483659 bytes" in damage.what
    assert isinstance(found, RecordBatch)
    assert found.position == 1 << 33
    assert isinstance(rest, Damage)


def test_the_search_behind_damage_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file full of headers that announce long batches costs a multiple of its size, not its square."""
    read = 0
    pread = os.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        nonlocal read
        data = pread(fd, size, position)
        read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counted)
    monkeypatch.setattr("metadata_log.reading.reader._RESYNC_BUDGET", 1 << 20)
    header = BATCH[:8] + (1 << 19).to_bytes(4, "big") + BATCH[12:61]
    content = header * (2 * (1 << 20) // len(header))
    (tmp_path / "00000000000000000000.log").write_bytes(content)
    found = list(read_file(OsDisk(), str(tmp_path / "00000000000000000000.log")))
    assert all(isinstance(one, Damage) for one in found)
    assert read < 20 * len(content)


def test_a_small_file_of_a_tebibyte_is_refused(tmp_path: Path) -> None:
    path = sparse(tmp_path / "quorum-state")
    with pytest.raises(OSError, match=f"cannot have {TIB} bytes") as refused:
        OsDisk().read(path)
    assert refused.value.errno == errno.EFBIG
    (tmp_path / "quorum-state").write_bytes(bytes(MOST_SMALL_BYTES))
    assert len(OsDisk().read(path)) == MOST_SMALL_BYTES


def test_pieces_cover_every_byte_once(tmp_path: Path) -> None:
    words = os.urandom(100)
    parts = ((5, words), (1 << 33, words), ((1 << 33) + PIECE_BYTES, bytes(3 * PIECE_BYTES)), (TIB - 50, words[:50]))
    file = OsDisk().open(sparse(tmp_path / "x", *parts), writable=False)
    end = 0
    kinds = []
    for piece in pieces_of(file, 0, TIB):
        assert piece.position == end
        kinds.append(type(piece))
        if isinstance(piece, Piece):
            assert piece.data == file.pread(len(piece.data), piece.position)
            end += len(piece.data)
        else:
            end += piece.size
    assert end == TIB
    assert len(kinds) < 10
    assert kinds.count(Zeros) == 2
    assert b"".join(piece.data for piece in pieces_of(file, 7, 20) if isinstance(piece, Piece)) == words[2:15]


# ----------------------------------------------------------------------------------------------------- access rights


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_created_files_are_private_to_their_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        disk = OsDisk()
        disk.open(str(tmp_path / "f"), create=True).close()
        disk.lock(str(tmp_path / "l")).release()
        disk.mkdir(str(tmp_path / "a/b"))
        make_directory(disk, str(tmp_path / "c/d"))
        format_directory(disk, str(tmp_path / "e"), node_id=1, cluster_id="c", rng=Random(1), now_ms=1)
    finally:
        os.umask(before)
    made = list(tmp_path.rglob("*"))
    assert len(made) > 8
    # The records of the bootstrap are a snapshot, which nobody writes to any more.
    assert {mode(path) for path in made if path.is_file()} == {0o600, 0o400}
    assert {mode(path) for path in made if path.is_dir()} == {0o700}


def test_existing_files_keep_their_mode(tmp_path: Path) -> None:
    """An operator's decision about a file or directory stands, also where another file takes the file's place."""
    disk = OsDisk()
    (tmp_path / "d").mkdir(mode=0o755)
    for name, rights in (("wide", 0o644), ("narrow", 0o400)):
        (tmp_path / name).write_bytes(b"old")
        (tmp_path / name).chmod(rights)
        replace_file(disk, str(tmp_path), name, b"new")
        assert mode(tmp_path / name) == rights
        assert (tmp_path / name).read_bytes() == b"new"
    disk.mkdir(str(tmp_path / "d"))
    file = disk.open(str(tmp_path / "wide"), create=True)
    file.append(b"er")
    file.close()
    assert (mode(tmp_path / "d"), mode(tmp_path / "wide")) == (0o755, 0o644)
