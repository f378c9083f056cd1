"""Every change to the bytes of a real segment is detected, or has changed no record that is still shown."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.damage import Damage
from metadata_log.reading.reader import read_log
from metadata_log.reading.verify_directory import verify_directory
from metadata_log.records.batch import RecordBatch, scan
from support.metadata_log.tampering import CHANGES, Change
from support.real_data import archive

PREFIX = "nodes/c1/__cluster_metadata-0/"
FILES = {
    path.removeprefix(PREFIX): content
    for path, content in archive("static3").items()
    if path.startswith(PREFIX) and path.endswith((".log", "/quorum-state", "/leader-epoch-checkpoint"))
}
LAST = "00000000000000004847.log"
SEGMENTS = ["00000000000000000000.log", "00000000000000002908.log", LAST]


def partition(changed: str, content: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.mkdir("d")
    for name, original in FILES.items():
        disk.open(f"d/{name}", create=True).append(content if name == changed else original)
    return disk


def noticed(disk: MemoryDisk) -> bool:
    """Whether a reader of the partition complains; epochs, which no CRC covers, are in other files, too."""
    return any(isinstance(found, Damage) for found in read_log(disk, "d")) or bool(verify_directory(disk, "d"))


def check(name: str, content: bytes) -> None:
    original = FILES[name]
    if content == original:
        return
    disk = partition(name, content)
    if noticed(disk):
        shown = [found.data for found in read_log(disk, "d") if isinstance(found, RecordBatch)]
        # A batch that is shown is one that Kafka wrote, but for its epoch, which is compared above.
        true = {without_epoch(batch) for each in FILES if each.endswith(".log") for batch in whole(FILES[each])}
        assert all(without_epoch(batch) in true for batch in shown)
        return
    # Harmless: the last segment ends earlier, between two batches, as after a crash before they were written.
    assert name == LAST
    assert original.startswith(content)
    assert b"".join(whole(content)) == content


def whole(content: bytes) -> list[bytes]:
    return [batch.data for batch in scan(content)]


def without_epoch(batch: bytes) -> bytes:
    """Nor the base offset: no CRC covers epoch and offset; an offset is checked against its neighbours."""
    return batch[8:12] + batch[16:]


@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_changes(name: str, change: Change, seed: int) -> None:
    check(name, change(FILES[name], Random(seed)))


@given(at=st.integers(0, 10_000), mask=st.integers(1, 255))
@pytest.mark.parametrize("name", SEGMENTS)
def test_headers(name: str, at: int, mask: int) -> None:
    """Every byte of the headers of batches, also those that no CRC covers."""
    batches = list(scan(FILES[name]))
    batch = batches[at % len(batches)]
    content = bytearray(FILES[name])
    content[batch.position + at // len(batches) % 61] ^= mask
    check(name, bytes(content))


@pytest.mark.soak
@given(name=st.sampled_from(SEGMENTS), change=st.sampled_from(CHANGES), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10_000)
def test_many_changes(name: str, change: Change, seed: int) -> None:
    check(name, change(FILES[name], Random(seed)))


def test_batches_out_of_place() -> None:
    """Whole batches that are missing, doubled, or swapped: each of them is sound, and only their offsets tell."""
    for name in SEGMENTS:
        batches = whole(FILES[name])
        for at in range(0, len(batches) - 1, 7):
            before, pair, after = batches[:at], batches[at : at + 2], batches[at + 2 :]
            for changed in ([pair[0]], [pair[1]], [*pair, pair[1]], pair[::-1]):
                if after or changed != [pair[0]]:
                    assert noticed(partition(name, b"".join([*before, *changed, *after]))), (name, at)
