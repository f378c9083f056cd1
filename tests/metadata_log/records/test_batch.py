"""Record batches: against Apache Kafka's own, against damage, and through building and reading again."""

from __future__ import annotations

import contextlib
import re
from collections import Counter

import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.compression import Compression
from metadata_log.errors import CorruptBatch, IncompleteBatch, UnsupportedVersion
from metadata_log.records.batch import HEADER_BYTES, RecordBatch, read_batch, scan, sound_batches
from metadata_log.records.batch_builder import build_batch, build_control_batch, rebuild_batch
from metadata_log.records.record import Record, records
from support.real_data import json_lines, real_files


def facts(batch: RecordBatch) -> dict[str, object]:
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "size_in_bytes": batch.size_bytes,
        "partition_leader_epoch": batch.epoch,
        "magic": batch.magic,
        "crc": batch.crc,
        "compression": batch.codec,
        "timestamp_type": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "count": batch.record_count,
    }


def as_hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def record_facts(record: Record) -> dict[str, object]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key_hex": as_hex(record.key),
        "value_hex": as_hex(record.value),
        "headers": [{"key": header.key, "value_hex": as_hex(header.value)} for header in record.headers],
    }


def assert_same(batch: RecordBatch, expected: dict[str, object]) -> None:
    assert facts(batch) == {name: expected[name] for name in facts(batch)}
    wanted = expected["records"]
    assert isinstance(wanted, list)
    found = [record_facts(record) for record in records(batch)]
    assert found == [{name: record[name] for name in found[0]} for record in wanted]


def test_golden_batches() -> None:
    """Every attribute and record of batches made by Kafka is read and written again; without compression the same."""
    seen = set()
    kinds: Counter[tuple[str, bool, bool, bool]] = Counter()
    for line in json_lines("batches", "batches.jsonl"):
        data = bytes.fromhex(line["hex"])
        batches = list(scan(data))
        assert len(batches) == len(line["batches"])
        for batch, expected in zip(batches, line["batches"], strict=True):
            seen.add(batch.codec)
            assert_same(batch, expected)
            again = rebuild_batch(batch, records(batch))
            if not batch.is_compressed:
                assert again == batch.data
            assert list(records(read_batch(again))) == list(records(batch))
            kinds[batch.codec, batch.is_log_append_time, batch.is_transactional, batch.is_control] += 1
    assert seen == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert len(kinds) == 12, "kinds of batches"


def test_real_files() -> None:
    """The logs and snapshots of four real clusters are read without a complaint, and written again byte for byte."""
    count = 0
    for path, data, expected in real_files():
        batches = list(scan(data, where=path))
        assert len(batches) == len(expected)
        for batch, wanted in zip(batches, expected, strict=True):
            count += batch.record_count
            assert batch.position == wanted["position"]
            assert_same(batch, wanted)
            assert rebuild_batch(batch, records(batch)) == batch.data
    assert count == 29_803


def test_sound_batches_are_those_of_a_scan_up_to_the_first_bad_one() -> None:
    for path, data, _ in real_files():
        first = read_batch(data)
        assert sound_batches(data, at=7, offset=first.base_offset) == list(scan(data, where=path, at=7))
    parts = [build_batch(offset, 5, 1_700_000_000_000, [b"one", b"two"]) for offset in (10, 12, 14)]
    whole = list(scan(b"".join(parts)))
    assert sound_batches(b"".join(parts), offset=11) == sound_batches(b"".join(parts), epoch=6) == []
    for bit in range(len(parts[1]) * 8):
        flipped = bytearray(parts[1])
        flipped[bit // 8] ^= 0x80 >> (bit % 8)
        found = sound_batches(parts[0] + bytes(flipped) + parts[2], offset=10)
        # No CRC covers the epoch, bytes 12 to 15: a later one is in order.
        assert found[:1] == whole[:1]
        assert len(found) == 1 or 12 <= bit // 8 < 16, f"bit {bit}"
    assert sound_batches(b"".join(parts)[:-1], offset=10) == whole[:2]


def test_invalid_batches() -> None:
    """What Kafka refuses is refused by name; where Kafka sees a batch cut short, so do we, after as many whole ones."""
    for line in json_lines("batches", "invalid_batches.jsonl"):
        raw = bytes.fromhex(line["hex"])
        whole = at = 0
        problem: CorruptBatch | UnsupportedVersion | None = None
        try:
            for _ in scan(raw):
                whole += 1
                at += 12 + int.from_bytes(raw[at + 8 : at + 12], "big")
        except (CorruptBatch, UnsupportedVersion) as bad:
            problem = bad
        if line["ok"]:
            count = line["batches"] if isinstance(line["batches"], int) else len(line["batches"])
            assert whole == count, line["damage"]
            assert problem is None or isinstance(problem, IncompleteBatch), (line["damage"], problem)
        else:
            assert isinstance(problem, CorruptBatch), line["damage"]
            assert not isinstance(problem, IncompleteBatch), line["damage"]
            assert problem.position == at
            assert (problem.field, *numbers_in(problem.what)) == kafkas_finding(line["error"])


def numbers_in(text: str) -> list[int]:
    return [int(number, 0) for number in re.findall(r"0x[0-9a-f]+|-?\d+", text.replace("CRC-32C", ""))]


def kafkas_finding(error: str) -> tuple[object, ...]:
    """The field that Kafka complains of, and the numbers that it gives, in our order."""
    if checksums := re.fullmatch(r"Record is corrupt \(stored crc = (\d+), computed crc = (\d+)\)", error):
        return "crc", int(checksums[2]), int(checksums[1])
    length = re.fullmatch(r"Record size (-?\d+) is less than the minimum record overhead \(14\)", error)
    assert length, error
    return "batch length", int(length[1])


def test_every_bit_flip_of_a_batch_is_found() -> None:
    """No bit that the CRC covers can turn unnoticed. Before it, a flip shows in the length, the magic or a field."""
    data = build_batch(1234, 5, 1_700_000_000_000, [b"first", b"", b"third value"])
    good = read_batch(data)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 0x80 >> (bit % 8)
        try:
            batch = read_batch(bytes(flipped))
        except (CorruptBatch, UnsupportedVersion):
            continue
        assert bit < 17 * 8, f"bit {bit} turned unnoticed"
        assert (batch.base_offset, batch.epoch) != (good.base_offset, good.epoch), f"bit {bit}"


def test_old_formats_are_named() -> None:
    data = bytearray(build_batch(0, 1, 0, [b"x"]))
    for magic in (0, 1):
        data[16] = magic
        with pytest.raises(UnsupportedVersion, match=f"old format {magic}"):
            read_batch(bytes(data), where="some.log")
    data[16] = 3
    with pytest.raises(CorruptBatch, match="unknown batch format 3"):
        read_batch(bytes(data))


def test_positions_of_a_piece() -> None:
    """Errors and batches of a piece of a file name the position in the file."""
    data = build_batch(0, 1, 0, [b"x"]) + build_batch(1, 1, 0, [b"y"])
    first, second = scan(data, at=1000)
    assert (first.position, second.position) == (1000, 1000 + first.size_bytes)
    with pytest.raises(IncompleteBatch) as caught:
        list(scan(data[:-1], at=1000, where="a.log"))
    assert (caught.value.position, caught.value.where) == (second.position, "a.log")


@given(
    values=st.lists(st.binary(max_size=200), min_size=1, max_size=150),
    base_offset=st.integers(0, 2**62),
    epoch=st.integers(0, 2**31 - 1),
    timestamp=st.integers(-1, 2**62),
)
def test_building_and_reading(values: list[bytes], base_offset: int, epoch: int, timestamp: int) -> None:
    data = build_batch(base_offset, epoch, timestamp, values)
    [batch] = scan(data)
    assert (batch.base_offset, batch.epoch, batch.next_offset) == (base_offset, epoch, base_offset + len(values))
    assert (batch.base_timestamp, batch.max_timestamp) == (timestamp, timestamp)
    assert not batch.is_control
    assert batch.compression is Compression.NONE
    read = list(records(batch))
    assert [record.value for record in read] == values
    assert [record.offset for record in read] == list(range(base_offset, base_offset + len(values)))
    assert all((record.key, record.headers, record.timestamp_delta) == (None, (), 0) for record in read)
    assert rebuild_batch(batch, read) == data


def test_large_batch() -> None:
    """Offset deltas grow to two and three bytes inside one batch, and sizes change in it."""
    values = [b"x" * (index % 3) for index in range(20_000)]
    batch = read_batch(build_batch(7, 1, 0, values))
    read = list(records(batch))
    assert [record.value for record in read] == values
    assert rebuild_batch(batch, read) == batch.data


def test_control_batch() -> None:
    batch = read_batch(build_control_batch(9, 2, 5, [(2, b"leader"), (5, b"version")]))
    assert batch.is_control
    assert [(record.key, record.value) for record in records(batch)] == [
        (b"\x00\x00\x00\x02", b"leader"),
        (b"\x00\x00\x00\x05", b"version"),
    ]


def with_body(batch: RecordBatch, body: bytes) -> bytes:
    """A batch with another body and a CRC and length that fit."""
    checked = batch.data[21:HEADER_BYTES] + body
    front = batch.data[:8] + (len(checked) + 9).to_bytes(4, "big") + batch.data[12:17]
    return front + crc32c(checked).to_bytes(4, "big") + checked


@settings(max_examples=200)
@given(data=st.data())
def test_hostile_records(data: st.DataObject) -> None:
    """A body with a good CRC but senseless records is a `CorruptBatch`, never another exception, and takes no time."""
    batch = read_batch(build_batch(0, 1, 0, [b"some value", b"another", b"x" * 70]))
    body = bytearray(batch.data[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    hostile = read_batch(with_body(batch, bytes(body[:cut])))
    with contextlib.suppress(CorruptBatch):
        assert len(list(records(hostile))) == 3


@given(st.binary(max_size=300))
def test_garbage(data: bytes) -> None:
    """Any bytes at all give batches or a named error."""
    with contextlib.suppress(CorruptBatch, UnsupportedVersion):
        list(scan(data))


def test_records_that_do_not_fill_the_batch() -> None:
    batch = read_batch(build_batch(0, 1, 0, [b"value"]))
    with pytest.raises(CorruptBatch, match="3 bytes follow the last record"):
        list(records(read_batch(with_body(batch, batch.data[HEADER_BYTES:] + b"abc"))))
    with pytest.raises(CorruptBatch, match="runs over the end"):
        list(records(read_batch(with_body(batch, batch.data[HEADER_BYTES:-2]))))
