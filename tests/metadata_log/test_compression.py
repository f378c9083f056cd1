"""Compressed batches: what is packed unpacks the same, damage and bombs are named, every attribute survives."""

from __future__ import annotations

import contextlib
import gzip
from itertools import product

import cramjam
import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.compression import BadCompression, Compression, deflate, inflate
from metadata_log.errors import CorruptBatch, UnsupportedVersion
from metadata_log.records.batch import HEADER_BYTES, read_batch
from metadata_log.records.batch_builder import rebuild_batch, write_batch
from metadata_log.records.record import MAX_INFLATED_BYTES, Header, Record, records
from support.real_data import json_lines

PACKED = [codec for codec in Compression if codec is not Compression.NONE]
SIZES = (0, 1, 100, 32 << 10, (32 << 10) + 1, 64 << 10, (64 << 10) + 1, 300_000)
LIMIT = 1 << 20


@pytest.mark.parametrize("codec", Compression)
def test_packing_and_unpacking(codec: Compression) -> None:
    """At the borders of blocks, for bytes that pack well and for some that do not pack at all."""
    noise = b"".join(crc32c(index.to_bytes(4, "big")).to_bytes(4, "big") for index in range(80_000))
    for size in SIZES:
        for data in (bytes(size), noise[:size]):
            assert inflate(codec, deflate(codec, data), size) == data, size


@pytest.mark.parametrize("codec", PACKED)
def test_decompression_bombs_are_refused(codec: Compression) -> None:
    """Data that unpacks to one byte more than allowed is refused, also in pieces; data of the allowed size is not."""
    packed = deflate(codec, bytes(LIMIT))
    assert len(packed) < LIMIT // 15
    assert inflate(codec, packed, LIMIT) == bytes(LIMIT)
    with pytest.raises(BadCompression, match="more than a batch can hold"):
        inflate(codec, packed, LIMIT - 1)
    with pytest.raises(BadCompression, match="more than a batch can hold"):
        inflate(codec, deflate(codec, bytes(LIMIT * 40)), LIMIT)


def test_a_block_that_claims_gigabytes() -> None:
    """A bare snappy block says what it unpacks to: it is not believed."""
    with pytest.raises(BadCompression, match="a block of 25 bytes claims to unpack to 4294967295"):
        inflate(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20), LIMIT)


def test_other_forms_that_kafka_reads() -> None:
    """Streams one after the other, bare snappy, and lz4 frames with sizes and checksums."""
    one, two = b"one" * 50, b"two" * 50
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.ZSTD):
        assert inflate(codec, deflate(codec, one) + deflate(codec, two), LIMIT) == one + two
    assert inflate(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(one)), LIMIT) == one
    assert inflate(Compression.GZIP, gzip.compress(one), LIMIT) == one
    stream = cramjam.lz4.Compressor(content_checksum=True, block_linked=False)
    stream.compress(one)
    assert inflate(Compression.LZ4, bytes(stream.finish()), LIMIT) == one
    assert bytes(cramjam.lz4.decompress(deflate(Compression.LZ4, one))) == one
    sized = b"\x04\x22\x4d\x18\x78\x40" + len(one).to_bytes(8, "little") + b"\x00"
    block = len(one).to_bytes(3, "little") + b"\x80" + one
    assert inflate(Compression.LZ4, sized + block + b"sum!" + bytes(4), LIMIT) == one


@pytest.mark.parametrize("codec", PACKED)
def test_truncated_compressed_data_is_refused(codec: Compression) -> None:
    packed = deflate(codec, bytes(range(256)) * 500)
    assert len(packed) > 32
    for size in (*range(1, 32), len(packed) - 1):
        if codec is Compression.SNAPPY and size == 16:
            continue  # a stream of no blocks
        with pytest.raises(BadCompression):
            inflate(codec, packed[:size], LIMIT)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"\x02\x21\x4c\x18\x60\x40\x82" + bytes(4), "no lz4 frame"),
        (b"\x04\x22\x4d\x18\x40\x40\xc0" + bytes(4), "does not use"),
        (b"\x04\x22\x4d\x18\xa0\x40\x82" + bytes(4), "does not use"),
        (b"\x04\x22\x4d\x18\x60\x30\x82" + bytes(4), "does not use"),
        (b"\x04\x22\x4d\x18\x60\x40\x82\x01\x00\x01\x00" + bytes(99_999), "larger than the 65536"),
    ],
)
def test_lz4_frames_that_kafka_refuses(frame: bytes, words: str) -> None:
    with pytest.raises(BadCompression, match=words):
        inflate(Compression.LZ4, frame, LIMIT)


@settings(max_examples=200)
@given(codec=st.sampled_from(PACKED), data=st.binary(max_size=300), real=st.booleans(), flips=st.data())
def test_damage(codec: Compression, data: bytes, real: bool, flips: st.DataObject) -> None:
    """Any bytes, and packed bytes with some changed, give bytes within the limit or the one error."""
    packed = bytearray(deflate(codec, data) if real else data)
    for _ in range(flips.draw(st.integers(0, 3)) if packed else 0):
        packed[flips.draw(st.integers(0, len(packed) - 1))] = flips.draw(st.integers(0, 255))
    with contextlib.suppress(BadCompression):
        assert len(inflate(codec, bytes(packed), 1000)) <= 1000


def with_body(data: bytes, body: bytes) -> bytes:
    """A batch with another body and a CRC and length that fit."""
    checked = data[21:HEADER_BYTES] + body
    front = data[:8] + (len(checked) + 9).to_bytes(4, "big") + data[12:17]
    return front + crc32c(checked).to_bytes(4, "big") + checked


@pytest.mark.parametrize("codec", PACKED)
def test_damage_in_a_batch_is_named(codec: Compression) -> None:
    data = write_batch([Record(5, 1000, 0, None, b"value" * 50)], epoch=1, compression=codec)
    batch = read_batch(with_body(data, data[HEADER_BYTES:-3]), where="some.log")
    with pytest.raises(CorruptBatch, match=f"the batch's {codec.name.lower()} data is damaged") as caught:
        list(records(batch, where="some.log"))
    assert (caught.value.where, caught.value.position) == ("some.log", 0)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_compressed_batch_beyond_the_limit_is_refused(codec: Compression) -> None:
    data = write_batch([Record(0, 0, 0, None, b"x")], epoch=1, compression=codec)
    bomb = with_body(data, deflate(codec, bytes(MAX_INFLATED_BYTES + 1)))
    assert len(bomb) < 300_000
    with pytest.raises(CorruptBatch, match="more than a batch can hold"):
        list(records(read_batch(bomb)))


def test_unknown_codec() -> None:
    data = bytearray(write_batch([Record(0, 0, 0, None, b"x")], epoch=1))
    data[22] = 5
    batch = read_batch(bytes(data), verify=False)
    assert batch.codec == "unknown codec 5"
    with pytest.raises(UnsupportedVersion, match="unknown compression codec 5"):
        list(records(batch))
    with pytest.raises(UnsupportedVersion, match="unknown compression codec 5"):
        rebuild_batch(batch, [])


ATTRIBUTES = list(
    product(Compression, (None, 1_700_000_000_123), (None, 1_600_000_000_000), (False, True), (False, True))
)
TIMES = st.integers(0, 2**45)
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=200),
        st.lists(st.builds(Header, st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2).map(tuple),
        TIMES,
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("attributes", ATTRIBUTES, ids=str)
@settings(max_examples=4)
@given(
    contents=RECORDS,
    base_offset=st.integers(0, 2**62),
    epoch=st.integers(0, 2**31 - 1),
    producer=st.tuples(st.integers(-1, 2**62), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)),
)
def test_every_combination_of_attributes(
    attributes: tuple[Compression, int | None, int | None, bool, bool],
    contents: list[tuple[bytes | None, bytes | None, tuple[Header, ...], int, int]],
    base_offset: int,
    epoch: int,
    producer: tuple[int, int, int],
) -> None:
    """Written, read and written again: attributes, gaps between offsets, times, contents are the same."""
    codec, append_time, horizon, transactional, control = attributes
    wanted = []
    for key, value, headers, timestamp, step in contents:
        wanted.append(Record(base_offset, timestamp, 0, key, value, headers))
        base_offset += step
    data = write_batch(
        wanted,
        epoch=epoch,
        compression=codec,
        append_time_ms=append_time,
        delete_horizon_ms=horizon,
        transactional=transactional,
        control=control,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )
    batch = read_batch(data)
    assert (batch.compression, batch.is_log_append_time, batch.delete_horizon_ms) == (
        codec,
        append_time is not None,
        horizon,
    )
    assert (batch.is_transactional, batch.is_control, batch.epoch) == (transactional, control, epoch)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == producer
    assert (batch.base_offset, batch.last_offset) == (wanted[0].offset, wanted[-1].offset)
    found = list(records(batch))
    for record, want in zip(found, wanted, strict=True):
        assert (record.offset, record.key, record.value, record.headers) == (
            want.offset,
            want.key,
            want.value,
            want.headers,
        )
        assert record.timestamp == (want.timestamp if append_time is None else append_time)
    assert rebuild_batch(batch, found) == data


def test_write_batch_gives_kafkas_bytes() -> None:
    """Uncompressed batches of Kafka's own builder come out of ours, from their records and attributes alone."""
    count = 0
    for line in json_lines("batches", "batches.jsonl"):
        data = bytes.fromhex(line["hex"])
        batch = read_batch(data)
        found = list(records(batch))
        if batch.is_compressed or len(data) != batch.size_bytes:
            continue
        plain = [
            Record(r.offset, batch.base_timestamp + r.timestamp_delta, 0, r.key, r.value, r.headers) for r in found
        ]
        assert found[0].timestamp_delta == 0
        again = write_batch(
            plain,
            epoch=batch.epoch,
            append_time_ms=batch.max_timestamp if batch.is_log_append_time else None,
            delete_horizon_ms=batch.delete_horizon_ms,
            transactional=batch.is_transactional,
            control=batch.is_control,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
        )
        assert again == data
        count += 1
    assert count > 20
