"""Both decoders of the Arrow views give the same, and what the reader gives: of made batches and of tampered files."""

from __future__ import annotations

from functools import cache
from random import Random, randrange

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_rows import DECODERS, disk_of, read_whole, shown
from metadata_log.arrow import RECORD_CLASSES, Decoder, Mode, read_records, read_typed
from metadata_log.compression import Compression
from metadata_log.records import RECORD_TYPES, encode_record
from metadata_log.records.batch_builder import build_batch, write_batch
from metadata_log.records.metadata import TopicRecord
from metadata_log.records.record import Record
from metadata_log.serde import schema_of
from metadata_log.serde.fields import Message
from support.metadata_log.tampering import resealed, tampered
from support.real_data import archive
from support.serde_values import values

SEGMENT = "d/00000000000000000000.log"
FREQUENT = ("PartitionChangeRecord", "PartitionRecord", "ConfigRecord", "NoOpRecord")


TYPES = [(cls, version) for cls in RECORD_TYPES.values() for version in range(schema_of(cls).versions.highest + 1)]
COMMON = [pair for pair in TYPES if pair[0].__name__ in FREQUENT]


@cache
def encoded(cls: type[Message], version: int) -> st.SearchStrategy[bytes]:
    return values(cls, version, flexible=True).map(lambda record: encode_record(record, version))


VALUES = st.sampled_from(TYPES + COMMON * 3).flatmap(lambda pair: encoded(*pair))


def damaged(value: bytes, seed: int) -> bytes:
    """A value with a byte changed, cut off or added, or of another version."""
    rng = Random(seed)
    at = rng.randrange(len(value))
    return rng.choice(
        [
            value[:at],
            value + bytes([rng.randrange(256)]),
            value[:at] + bytes([rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])]) + value[at + 1 :],
            value[:2] + bytes([rng.randrange(6)]) + value[3:],
        ]
    )


SOME_VALUES = st.lists(
    VALUES | st.tuples(VALUES, st.integers(0, 1 << 32)).map(lambda pair: damaged(*pair)), min_size=1, max_size=5
).map(lambda found: [value for value in found if value] or [b"\x01\x14\x00\x00"])


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches as controllers write them, most of them; others with keys, times, headers or a codec."""
    content, offset = b"", 0
    for _ in range(draw(st.integers(1, 3))):
        made = draw(SOME_VALUES) * draw(st.sampled_from([1, 1, 20]))
        time = draw(st.sampled_from([-1, 0, 1_700_000_000_123, 1 << 62]))
        kind = draw(st.sampled_from(["plain", "plain", "plain", "times", "keys", "packed", "append time"]))
        if kind == "plain":
            content += build_batch(offset, 1, time, made)
        else:
            key = b"key" if kind == "keys" else None
            late = 3 if kind == "times" else 0
            content += write_batch(
                [Record(offset + n, time + n * late, 0, key, value) for n, value in enumerate(made)],
                epoch=1,
                compression=Compression.GZIP if kind == "packed" else Compression.NONE,
                append_time_ms=5 if kind == "append time" else None,
            )
        offset += len(made)
    return content


def same(content: bytes) -> None:
    """All views by both decoders, and the raw one as the reader has it."""
    disk = disk_of({SEGMENT: content})
    columns = ["position", "offset", "timestamp", "type", "version", "is_control", "key", "value", "payload", "damage"]
    tables: list[pa.Table] = []
    for decoder in DECODERS:
        raw = read_records(
            SEGMENT, columns=columns, mode=Mode.PERMISSIVE, show_secrets=True, decoder=decoder, disk=disk
        ).read_all()
        raw.validate(full=True)
        tables.append(raw)
    assert tables[0].equals(tables[1])
    rows = tables[0].select(["offset", "type", "value", "damage"]).to_pylist()
    assert [shown(item) for item in read_whole(disk, SEGMENT)] == [
        (row["offset"], row["damage"]) if row["damage"] else (row["offset"], row["type"], row["value"]) for row in rows
    ]
    for name in {row["type"] for row in rows} & RECORD_CLASSES.keys():
        one, other = (
            read_typed(SEGMENT, name, mode=Mode.PERMISSIVE, decoder=decoder, disk=disk).read_all()
            for decoder in DECODERS
        )
        one.validate(full=True)
        # A number that is none is not equal to itself.
        assert one.equals(other) or str(one.to_pylist()) == str(other.to_pylist()), name


@settings(max_examples=60, deadline=None)
@given(logs())
def test_made_batches(content: bytes) -> None:
    same(content)


@pytest.mark.parametrize("repaired", [False, True], ids=["as it is", "with a good CRC"])
def test_tampered_files(repaired: bool) -> None:
    seed = randrange(1 << 32)
    print(f"seed {seed}")
    rng = Random(seed)
    files = archive("static3")
    names = [name for name in files if name.endswith(".log")]
    for _ in range(40):
        content = files[rng.choice(names)][: rng.choice([3_000, 20_000])]
        changed = tampered(content, rng)
        same(resealed(changed) if repaired else changed)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193, 20_000])
def test_varints_of_two_bytes_are_decoded(decoder: Decoder, count: int) -> None:
    """And records of more than 63 bytes, with a size of two bytes."""
    made = [encode_record(TopicRecord(name="t" * (n % 90)), 0) for n in range(count)]
    disk = disk_of({SEGMENT: build_batch(0, 3, 1_000, made)})
    rows = read_records(
        SEGMENT, columns=["position", "offset", "value"], show_secrets=True, decoder=decoder, disk=disk
    ).read_all()
    assert rows["offset"].to_pylist() == list(range(count))
    assert rows["value"].to_pylist() == made
    content = disk.read(SEGMENT)
    assert all(content.find(value, at) - at < 12 for at, value in zip(rows["position"].to_pylist(), made, strict=True))
