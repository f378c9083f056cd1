"""Batches that are small on the wire and large inside, or that lie about what is inside."""

from __future__ import annotations

import gzip
from collections.abc import Generator
from typing import Final, TypeVar

import cramjam
import pytest
from google_crc32c import value as crc32c

from metadata_log.compression import Compression, deflate
from metadata_log.records import record as record_module
from metadata_log.records.record import varint

NOW_MS: Final = 1_700_000_000_000
EMPTY_GZIP: Final = gzip.compress(b"", mtime=0)
EMPTY_ZSTD: Final = bytes(cramjam.zstd.compress(b""))
SKIPPED_ZSTD: Final = (0x184D2A50).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
SNAPPY_OF_4_GIB: Final = b"\xff\xff\xff\xff\x0f" + bytes(50)
UNENDING: Final = b"\xff" * 5 + b"\x01"
"""A variable-length number of six bytes."""
NULL: Final = b"\x01"


Result = TypeVar("Result")


def steps_of(steps: Generator[None, None, Result]) -> tuple[int, Result]:
    """How often work pauses, and its result."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return pauses, end.value
        pauses += 1


def forbid_objects(patched: pytest.MonkeyPatch) -> None:
    """Let no record and no header become an object."""

    def refuse(*_: object) -> None:
        raise AssertionError("a record has become an object")

    patched.setattr(record_module, "Record", refuse)
    patched.setattr(record_module, "Header", refuse)


def sized(body: bytes) -> bytes:
    """A record with its size before it."""
    return varint(len(body)) + body


def record(
    delta: int = 0, *, time: int = 0, key: bytes | None = b"k", value: bytes | None = b"v", headers: bytes = b"\x00"
) -> bytes:
    """A record; `headers` are its encoded headers with their number."""
    nullable = [NULL if each is None else varint(len(each)) + each for each in (key, value)]
    return sized(b"\x00" + varint(time) + varint(delta) + b"".join(nullable) + headers)


def headers(count: int) -> bytes:
    """So many headers with an empty key and no value."""
    return varint(count) + b"\x00\x01" * count


def in_order(count: int, *, key: bytes | None = b"k") -> bytes:
    """Records at consecutive offsets."""
    return b"".join(record(index, key=key, value=None) for index in range(count))


def zstd(body: bytes) -> bytes:
    """Compressed as far as a small batch can be: megabytes of equal records in hundreds of bytes."""
    return bytes(cramjam.zstd.compress(body, level=1))


def batch(
    body: bytes,
    count: int = 1,
    *,
    codec: int = Compression.NONE,
    base_time: int = NOW_MS,
    last_delta: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch with a right checksum; `body` is compressed already, and nothing else need be right."""
    last = count - 1 if last_delta is None else last_delta
    widths = zip(producer, (8, 2, 4), strict=True)
    producer_id, epoch, sequence = (each.to_bytes(width, "big", signed=True) for each, width in widths)
    checked = b"".join(
        (
            codec.to_bytes(2, "big"),
            last.to_bytes(4, "big", signed=True),
            base_time.to_bytes(8, "big", signed=True) * 2,
            *(producer_id, epoch, sequence),
            count.to_bytes(4, "big", signed=True),
            body,
        )
    )
    front = bytes(8) + (len(checked) + 9).to_bytes(4, "big") + b"\xff" * 4 + b"\x02"
    return front + crc32c(checked).to_bytes(4, "big") + checked


def packed(body: bytes, count: int = 1, *, codec: Compression = Compression.GZIP, base_time: int = NOW_MS) -> bytes:
    """A batch with the records compressed."""
    return batch(deflate(codec, body), count, codec=codec, base_time=base_time)


def lies(now_ms: int) -> dict[str, bytes]:
    """Batches that lie, by what is wrong with each; none takes long."""
    two, end = in_order(2), 2**63 - 1
    overlong = b"\x00" + b"\x00" + b"\x00" + UNENDING
    plain = {
        "fewer records than counted": batch(two, 3, base_time=now_ms),
        "more records than counted": batch(two, 1, base_time=now_ms),
        "a count of 2^31-1": batch(two, 2**31 - 1, base_time=now_ms),
        "a negative count": batch(two, -1, base_time=now_ms),
        "offsets beside the count": batch(two, 2, last_delta=9, base_time=now_ms),
        "a record that is cut": batch(two[:-1], 2, base_time=now_ms),
        "a negative record size": batch(varint(-5) + two, 2, base_time=now_ms),
        "a record size of 2^31-1": batch(varint(2**31 - 1) + two, 1, base_time=now_ms),
        "a key beyond the record": batch(sized(b"\x00\x00\x00" + varint(100) + b"k"), base_time=now_ms),
        "a key size of six bytes": batch(sized(overlong), base_time=now_ms),
        "2^31-1 headers": batch(record(headers=varint(2**31 - 1)), base_time=now_ms),
        "a negative number of headers": batch(record(headers=varint(-2)), base_time=now_ms),
        "a header without a key": batch(record(headers=varint(1) + NULL + NULL), base_time=now_ms),
        "a header key beyond the record": batch(record(headers=varint(1) + varint(50)), base_time=now_ms),
        "a record larger than its content": batch(sized(b"\x00\x00\x00\x01\x01\x00junk"), base_time=now_ms),
        "a time that wraps": batch(record(time=1, key=b"k"), base_time=end),
        "a time delta of ten bytes": batch(sized(b"\x00" + varint(-(2**63)) + b"\x00\x01\x01\x00"), base_time=now_ms),
    }
    inside = {
        f"{what}, gzip": packed(body, count, base_time=now_ms)
        for what, body, count in (
            ("fewer records than counted", two, 3),
            ("more records than counted", two, 1),
            ("equal offsets", record() * 2, 2),
            ("offsets that go back", record(1) + record(0), 2),
            ("a record that is cut", two[:-1], 2),
            ("a negative record size", varint(-5) + two, 2),
            ("a key beyond the record", sized(b"\x00\x00\x00" + varint(100) + b"k"), 1),
            ("2^31-1 headers", record(headers=varint(2**31 - 1)), 1),
            ("a negative number of headers", record(headers=varint(-2)), 1),
            ("a header without a key", record(headers=varint(1) + NULL + NULL), 1),
            ("a record larger than its content", sized(b"\x00\x00\x00\x01\x01\x00junk"), 1),
            ("a key size of six bytes", sized(overlong), 1),
        )
    }
    frames = {
        "gzip of nothing": batch(EMPTY_GZIP * 10, codec=Compression.GZIP, base_time=now_ms),
        "gzip that is cut": batch(deflate(Compression.GZIP, two)[:-9], 2, codec=Compression.GZIP, base_time=now_ms),
        "no gzip": batch(b"no gzip at all", codec=Compression.GZIP, base_time=now_ms),
        "snappy that claims 4 GiB": batch(SNAPPY_OF_4_GIB, codec=Compression.SNAPPY, base_time=now_ms),
        "no lz4": batch(b"no lz4 at all", codec=Compression.LZ4, base_time=now_ms),
        "lz4 that is cut": batch(deflate(Compression.LZ4, two)[:-6], 2, codec=Compression.LZ4, base_time=now_ms),
        "zstd that is cut": batch(zstd(two)[:-3], 2, codec=Compression.ZSTD, base_time=now_ms),
        "no zstd": batch(b"no zstd at all", codec=Compression.ZSTD, base_time=now_ms),
        "zstd of nothing": batch(EMPTY_ZSTD * 10, codec=Compression.ZSTD, base_time=now_ms),
        "zstd behind frames without content": batch(
            SKIPPED_ZSTD + EMPTY_ZSTD * 3 + zstd(two), 2, codec=Compression.ZSTD, base_time=now_ms
        ),
        "lz4 in many blocks": batch(_lz4_of_bytes(two), 2, codec=Compression.LZ4, base_time=now_ms),
        "an undefined codec": batch(two, 2, codec=7, base_time=now_ms),
    }
    return plain | inside | frames


def _lz4_of_bytes(data: bytes) -> bytes:
    """A frame with a block for each byte."""
    stored = ((1 | 1 << 31).to_bytes(4, "little") + bytes((each,)) for each in data)
    return deflate(Compression.LZ4, b"")[:7] + b"".join(stored) + bytes(4)


CODES: Final = dict.fromkeys(lies(NOW_MS), "INVALID_RECORD") | {
    **dict.fromkeys(("a time that wraps", "a time delta of ten bytes", "lz4 in many blocks"), "NONE"),
    "zstd behind frames without content": "NONE",
    **dict.fromkeys(("equal offsets, gzip", "offsets that go back, gzip"), "UNKNOWN_SERVER_ERROR"),
    **dict.fromkeys(("gzip that is cut", "lz4 that is cut", "zstd that is cut"), "UNKNOWN_SERVER_ERROR"),
    **dict.fromkeys(("no gzip", "no lz4", "no zstd", "snappy that claims 4 GiB"), "UNKNOWN_SERVER_ERROR"),
    "an undefined codec": "UNKNOWN_SERVER_ERROR",
}
"""What a broker of Kafka 4.3.1 answers to each of `lies`, where a topic takes every time."""
