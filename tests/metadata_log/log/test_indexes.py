"""The entries of index files and of producer snapshots, byte by byte."""

from __future__ import annotations

from struct import pack

import pytest

from metadata_log.log.indexes import OffsetIndex, TimeIndex, parse_offset_index, parse_time_index
from metadata_log.log.producer_snapshot import read_producer_snapshot

BASE = 1000


def offset_index() -> OffsetIndex:
    """Batches that end with the offsets 1004, 1009 and 1014, at the positions 100, 200 and 300."""
    index = OffsetIndex(BASE)
    for number in (1, 2, 3):
        index.append(BASE + 5 * number - 1, 100 * number)
    return index


def time_index() -> TimeIndex:
    """The times 10, 20 and 30 at the offsets 1004, 1009 and 1014."""
    index = TimeIndex(BASE)
    for number in (1, 2, 3):
        index.maybe_append(10 * number, BASE + 5 * number - 1)
    return index


@pytest.mark.parametrize(
    ("offset", "position"), [(1000, 0), (1003, 0), (1004, 100), (1008, 100), (1009, 200), (1014, 300), (9999, 300)]
)
def test_the_search_for_an_offset_begins_at_the_last_entry_up_to_it(offset: int, position: int) -> None:
    assert offset_index().position_before(offset) == position


@pytest.mark.parametrize(
    ("end", "end_offset", "position"),
    [(99, 9999, 0), (100, 9999, 100), (299, 9999, 200), (300, 9999, 300), (300, 1014, 200), (300, 1004, 0), (0, 0, 0)],
)
def test_the_last_position_is_before_the_end_and_below_the_end_offset(end: int, end_offset: int, position: int) -> None:
    assert offset_index().last_position(end, end_offset) == position


@pytest.mark.parametrize(("end_offset", "kept"), [(1000, 0), (1004, 0), (1005, 1), (1014, 2), (1015, 3)])
def test_a_truncation_removes_the_entries_from_its_offset_on(end_offset: int, kept: int) -> None:
    offsets, times = offset_index(), time_index()
    offsets.truncate(end_offset)
    times.truncate(end_offset)
    assert (list(offsets.distances), list(offsets.positions)) == ([4, 9, 14][:kept], [100, 200, 300][:kept])
    assert (list(times.timestamps), list(times.distances)) == ([10, 20, 30][:kept], [4, 9, 14][:kept])


@pytest.mark.parametrize(("timestamp", "offset"), [(5, BASE), (10, BASE), (11, 1004), (30, 1009), (31, 1014)])
def test_the_search_for_a_time_begins_at_the_last_entry_before_it(timestamp: int, offset: int) -> None:
    assert time_index().offset_before(timestamp) == offset


def test_a_time_index_takes_only_rising_timestamps() -> None:
    index = TimeIndex(BASE)
    assert (index.last_timestamp, index.last_offset) == (-1, -1)
    for timestamp, offset in ((10, 1004), (10, 1009), (9, 1014)):
        index.maybe_append(timestamp, offset)
    assert (list(index.timestamps), list(index.distances)) == ([10], [4])
    assert (index.last_timestamp, index.last_offset) == (10, 1004)


def test_a_copy_of_a_time_index_does_not_grow_with_it() -> None:
    index = time_index()
    copy = index.copy()
    index.maybe_append(40, 1019)
    assert (copy.base_offset, list(copy.timestamps), list(copy.distances)) == (BASE, [10, 20, 30], [4, 9, 14])


@pytest.mark.parametrize("rest", [b"", b"\0" * 8, b"\0" * 24, b"\1\2\3", b"\0" * 8 + b"\1"])
def test_offset_entries_are_relative_to_the_base_and_zeros_are_not_entries(rest: bytes) -> None:
    """An active index of Kafka is preallocated: zeros fill it."""
    encoded = offset_index().encode()
    assert encoded == pack(">iiiiii", 4, 100, 9, 200, 14, 300)
    assert parse_offset_index(encoded + rest, BASE) == [(1004, 100), (1009, 200), (1014, 300)]
    loaded = OffsetIndex(BASE)
    assert loaded.load(encoded + rest) is True
    assert loaded.encode() == encoded


@pytest.mark.parametrize("rest", [b"", b"\0" * 12, b"\0" * 36, b"\1\2\3", b"\0" * 12 + b"\1"])
def test_time_entries_are_relative_to_the_base_and_zeros_are_not_entries(rest: bytes) -> None:
    encoded = time_index().encode()
    assert encoded == pack(">qiqiqi", 10, 4, 20, 9, 30, 14)
    assert parse_time_index(encoded + rest, BASE) == [(10, 1004), (20, 1009), (30, 1014)]
    loaded = TimeIndex(BASE)
    loaded.load(encoded + rest)
    assert loaded.encode() == encoded


def test_an_entry_with_one_zero_is_an_entry() -> None:
    assert parse_offset_index(pack(">iiii", 0, 61, 3, 0), 7) == [(7, 61), (10, 0)]
    assert parse_time_index(pack(">qiqi", 0, 5, 9, 0), 7) == [(0, 12), (9, 7)]


def test_an_index_of_zeros_has_no_entry() -> None:
    assert parse_offset_index(b"\0" * 80, BASE) == []
    assert parse_time_index(b"\0" * 120, BASE) == []


# Producer snapshots


def producer_snapshot(*producers: int, version: int = 1) -> bytes:
    entries = b"".join(pack(">qhiqiqiq", producer, 1, 2, 3, 4, 5, 6, 7) for producer in producers)
    return pack(">hII", version, 0, len(producers)) + entries


@pytest.mark.parametrize(("producers", "highest"), [((), -1), ((7,), 7), ((7, 4000, 12), 4000), ((0,), 0)])
def test_the_highest_producer_id_of_a_producer_snapshot(producers: tuple[int, ...], highest: int) -> None:
    """Bytes after the entries do not count."""
    content = producer_snapshot(*producers)
    assert read_producer_snapshot(content, "x") == (highest, None)
    assert read_producer_snapshot(content + b"\7" * 60, "x") == (highest, None)


@pytest.mark.parametrize(
    ("content", "defect"),
    [
        (b"", "has only 0 bytes (x)"),
        (producer_snapshot()[:-1], "has only 9 bytes (x)"),
        (producer_snapshot(version=2), "of version 2 cannot be read (x)"),
        (producer_snapshot(version=0), "of version 0 cannot be read (x)"),
        (producer_snapshot(7, 8)[:-1], "of version 1 cannot be read (x)"),
    ],
    ids=["empty", "short", "newer", "older", "cut"],
)
def test_a_producer_snapshot_with_a_defect_has_no_highest_id(content: bytes, defect: str) -> None:
    highest, found = read_producer_snapshot(content, "x")
    assert highest == -1
    assert found is not None
    assert found.endswith(defect)
