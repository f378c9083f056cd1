"""Compression of a batch's records (Kafka: `CompressionType`, `Lz4BlockInputStream`, `SnappyInputStream`).

Kafka frames snappy and lz4 in its own ways, so this module parses the frames, and a library handles the blocks. A limit
bounds the uncompressed size, because a few bytes can claim gigabytes. Checksums inside a frame are ignored: the CRC of
the batch covers all of the frame.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final


class Compression(IntEnum):
    """The compression codec of a batch (Kafka: `CompressionType`). The metadata log uses only `NONE`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BadCompression(ValueError):
    """The compressed bytes are damaged, or exceed the limit when uncompressed."""


_TOO_MUCH: Final = "it unpacks to more than a batch can hold"
_CUT: Final = "it is cut short"

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2
"""Magic, version and lowest compatible version."""
_SNAPPY_BLOCK: Final = 32 << 10

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_HEADER: Final = _LZ4_MAGIC + b"\x60\x40\x82"
"""Version 1, independent blocks of at most 64 KiB, no checksums but the header's own."""
_LZ4_BLOCK: Final = 64 << 10
_LZ4_BLOCK_SIZES: Final = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_STORED: Final = 1 << 31
_ZSTD_GUESS: Final = 16


def inflate(compression: Compression, packed: bytes, limit: int) -> bytes:
    """Uncompress; raises `BadCompression` for damage and for more than `limit` bytes."""
    return _INFLATE[compression](packed, limit)


def deflate(compression: Compression, data: bytes) -> bytes:
    """Compress in Kafka's framing. The bytes may differ from Kafka's, which uses another compressor."""
    return _DEFLATE[compression](data)


def _inflate_none(packed: bytes, limit: int) -> bytes:
    return packed


def _deflate_none(data: bytes) -> bytes:
    return data


def _inflate_gzip(packed: bytes, limit: int) -> bytes:
    found = bytearray()
    while packed:
        stream = zlib.decompressobj(wbits=31)
        try:
            found += stream.decompress(packed, limit - len(found) + 1)
        except zlib.error as bad:
            raise BadCompression(str(bad)) from bad
        if len(found) > limit:
            raise BadCompression(_TOO_MUCH)
        if not stream.eof:
            raise BadCompression(_CUT)
        packed = stream.unused_data
    return bytes(found)


def _deflate_gzip(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=31)
    return stream.compress(data) + stream.flush()


def _inflate_snappy(packed: bytes, limit: int) -> bytes:
    """Blocks behind a header. Bytes without the header are one bare block, as in Kafka's library."""
    if not packed.startswith(_XERIAL_MAGIC):
        return _snappy_block(packed, limit)
    found = bytearray()
    for block in _xerial_blocks(packed):
        found += _snappy_block(block, limit - len(found))
    return bytes(found)


def _xerial_blocks(packed: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(packed):
        if packed.startswith(_XERIAL_MAGIC, position):
            # Several streams may follow one another, each with a header.
            position += len(_XERIAL_HEADER)
            if position > len(packed):
                raise BadCompression(_CUT)
            continue
        begin = position + 4
        position = begin + int.from_bytes(packed[position:begin], "big")
        if position > len(packed):
            raise BadCompression(_CUT)
        yield packed[begin:position]


def _snappy_block(block: bytes, limit: int) -> bytes:
    import cramjam

    try:
        if cramjam.snappy.decompress_raw_len(block) > limit:
            raise BadCompression(_TOO_MUCH)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as bad:
        raise BadCompression(str(bad)) from bad


def _deflate_snappy(data: bytes) -> bytes:
    import cramjam

    parts = [_XERIAL_HEADER]
    for begin in range(0, len(data), _SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[begin : begin + _SNAPPY_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _inflate_lz4(packed: bytes, limit: int) -> bytes:
    import cramjam

    position, block_bytes, block_checksums = _lz4_start(packed)
    found, room = bytearray(), bytearray(block_bytes)
    while True:
        begin = position + 4
        if begin > len(packed):
            raise BadCompression(_CUT)
        size = int.from_bytes(packed[position:begin], "little")
        if size == 0:
            return bytes(found)
        stored, size = size & _LZ4_STORED, size & ~_LZ4_STORED
        if size > block_bytes:
            raise BadCompression(f"a block of {size} bytes is larger than the {block_bytes} that were announced")
        block = packed[begin : begin + size]
        position = begin + size + 4 * block_checksums
        if position > len(packed):
            raise BadCompression(_CUT)
        try:
            found += block if stored else room[: cramjam.lz4.decompress_block_into(block, room)]
        except cramjam.DecompressionError as bad:
            raise BadCompression(str(bad)) from bad
        if len(found) > limit:
            raise BadCompression(_TOO_MUCH)


def _lz4_start(packed: bytes) -> tuple[int, int, bool]:
    """The position of the first block, the largest uncompressed block, and whether each block has a checksum."""
    if len(packed) < len(_LZ4_HEADER):
        raise BadCompression(_CUT)
    if not packed.startswith(_LZ4_MAGIC):
        raise BadCompression("it has no lz4 frame")
    flags, block_code = packed[4], packed[5] >> 4
    if flags >> 6 != 1 or not flags & 0x20 or flags & 0x03 or block_code not in _LZ4_BLOCK_SIZES:
        raise BadCompression("its lz4 frame is of a kind that Kafka does not use")
    content_size = 8 if flags & 0x08 else 0
    return len(_LZ4_HEADER) + content_size, _LZ4_BLOCK_SIZES[block_code], bool(flags & 0x10)


def _deflate_lz4(data: bytes) -> bytes:
    import cramjam

    parts = [_LZ4_HEADER]
    for begin in range(0, len(data), _LZ4_BLOCK):
        plain = data[begin : begin + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        stored = len(block) >= len(plain)
        size = len(plain) | _LZ4_STORED if stored else len(block)
        parts += (size.to_bytes(4, "little"), plain if stored else block)
    return b"".join((*parts, bytes(4)))


def _inflate_zstd(packed: bytes, limit: int) -> bytes:
    """Frames do not state their uncompressed size reliably: try with a usual size, then with more, up to the limit."""
    import cramjam

    size = min(limit, max(1024, len(packed) * _ZSTD_GUESS))
    while True:
        room = bytearray(size)
        try:
            return bytes(room[: cramjam.zstd.decompress_into(packed, room)])
        except cramjam.DecompressionError as bad:
            if "write whole buffer" not in str(bad):
                raise BadCompression(str(bad)) from bad
        if size == limit:
            raise BadCompression(_TOO_MUCH)
        size = min(limit, size * _ZSTD_GUESS)


def _deflate_zstd(data: bytes) -> bytes:
    import cramjam

    return bytes(cramjam.zstd.compress(data, level=3))


_INFLATE: Final[dict[Compression, Callable[[bytes, int], bytes]]] = {
    Compression.NONE: _inflate_none,
    Compression.GZIP: _inflate_gzip,
    Compression.SNAPPY: _inflate_snappy,
    Compression.LZ4: _inflate_lz4,
    Compression.ZSTD: _inflate_zstd,
}
_DEFLATE: Final[dict[Compression, Callable[[bytes], bytes]]] = {
    Compression.NONE: _deflate_none,
    Compression.GZIP: _deflate_gzip,
    Compression.SNAPPY: _deflate_snappy,
    Compression.LZ4: _deflate_lz4,
    Compression.ZSTD: _deflate_zstd,
}
