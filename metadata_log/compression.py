"""Compression of a batch's records (Kafka: `CompressionType`, `Lz4BlockInputStream`, `SnappyInputStream`).

Kafka frames snappy and lz4 in its own ways, so this module parses the frames, and a library handles the blocks. A limit
bounds the uncompressed size, because a few bytes can claim gigabytes. Checksums inside a frame of snappy and lz4 are
ignored: the CRC of the batch covers all of the frame.

A few kilobytes may also unpack for a long time, so `inflating` gives the bytes in pieces, each of which is little work.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor


class Compression(IntEnum):
    """The compression codec of a batch (Kafka: `CompressionType`). The metadata log uses only `NONE`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BadCompression(ValueError):
    """The compressed bytes are damaged, or exceed the limit when uncompressed."""


class TooMuch(BadCompression):
    """The compressed bytes exceed the limit when uncompressed."""

    def __init__(self) -> None:
        super().__init__("it unpacks to more than a batch can hold")


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
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = 0x184D2A5
"""The upper 28 bits of the magic number of a frame without content."""
_ZSTD_BLOCK: Final = 128 << 10
"""The most bytes of one block, uncompressed."""
_ZSTD_RUN_BLOCK: Final = 1
_ZSTD_PACKED_BLOCK: Final = 2
"""The kinds of blocks: 0 is as it was, 1 repeats a byte, 2 is compressed; 3 means damage."""
_SNAPPY_EXPANSION: Final = 24
"""So many bytes, at most, come out of one of snappy: a copy of 64 bytes takes three."""
_SNAPPY_LARGE: Final = (4 << 20) // _SNAPPY_EXPANSION
_PIECE_BYTES: Final = 64 << 10
_MUCH: Final = 1 << 20
_GZIP_INPUT: Final = 4 << 10
"""The bytes that zlib gets at once. It copies what follows the end of a member: with all of them, each of thousands of
empty members would copy all the others."""

Pieces = Iterator["bytes | memoryview"]


def inflate(compression: Compression, packed: bytes, limit: int) -> bytes:
    """Uncompress; raises `BadCompression` for damage and for more than `limit` bytes."""
    return b"".join(inflating(compression, packed, limit))


def inflating(compression: Compression, packed: bytes, limit: int) -> Pieces:
    """Uncompress in pieces, each of which takes some milliseconds at most.

    Args:
        compression: The codec.
        packed: The compressed bytes.
        limit: The most bytes that all pieces may have.

    Returns:
        The pieces: 128 KiB at most for gzip and zstd, a block as it was packed for lz4 (4 MiB) and snappy (24 times its
        packed size). An empty piece stands for a frame, a member or a block without content.

    Raises:
        BadCompression: The bytes are damaged, or unpack to more than the limit.
    """
    total = 0
    for piece in _INFLATE[compression](packed, limit):
        total += len(piece)
        if total > limit:
            raise TooMuch
        yield piece


def deflate(compression: Compression, data: bytes) -> bytes:
    """Compress in Kafka's framing. The bytes may differ from Kafka's, which uses another compressor."""
    return b"".join(_DEFLATE[compression](data))


def deflating(compression: Compression, data: bytes | bytearray) -> Iterator[bytes]:
    """As `deflate`, in pieces, each of which takes some milliseconds at most."""
    return _DEFLATE[compression](data)


def _inflate_none(packed: bytes, limit: int) -> Pieces:
    yield packed


def _deflate_none(data: bytes | bytearray) -> Iterator[bytes]:
    for begin in range(0, len(data), _MUCH):
        yield bytes(data[begin : begin + _MUCH])


def _inflate_gzip(packed: bytes, limit: int) -> Pieces:
    whole = memoryview(packed)
    stream = zlib.decompressobj(wbits=31)
    is_open = False
    for begin in range(0, len(whole), _GZIP_INPUT):
        given: bytes | memoryview = whole[begin : begin + _GZIP_INPUT]
        while True:
            try:
                piece = stream.decompress(given, _PIECE_BYTES)
            except zlib.error as bad:
                raise BadCompression(str(bad)) from bad
            yield piece
            is_open = not stream.eof
            if stream.eof:
                given, stream = stream.unused_data, zlib.decompressobj(wbits=31)
            else:
                given = stream.unconsumed_tail
            if not given and (not is_open or len(piece) < _PIECE_BYTES):
                break
    if is_open:
        raise BadCompression(_CUT)


def _deflate_gzip(data: bytes | bytearray) -> Iterator[bytes]:
    stream = zlib.compressobj(wbits=31)
    for begin in range(0, len(data), _PIECE_BYTES):
        yield stream.compress(data[begin : begin + _PIECE_BYTES])
    yield stream.flush()


def has_large_blocks(compression: Compression, packed: bytes) -> bool:
    """Whether `inflating` may give pieces of more than 4 MiB; raises `BadCompression`."""
    return compression is Compression.SNAPPY and any(len(each) > _SNAPPY_LARGE for each in _snappy_blocks(packed))


def _inflate_snappy(packed: bytes, limit: int) -> Pieces:
    for block in _snappy_blocks(packed):
        yield _snappy_block(block, limit)


def _snappy_blocks(packed: bytes) -> Iterable[bytes]:
    """The blocks after a header. Bytes without the header are one bare block, as in Kafka's library."""
    return _xerial_blocks(packed) if packed.startswith(_XERIAL_MAGIC) else (packed,)


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


def _snappy_block(block: bytes, limit: int) -> memoryview:
    import cramjam

    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > _SNAPPY_EXPANSION * len(block):
            raise BadCompression(f"a block of {len(block)} bytes claims to unpack to {claimed}")
        if claimed > limit:
            raise TooMuch
        return memoryview(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as bad:
        raise BadCompression(str(bad)) from bad


def _deflate_snappy(data: bytes | bytearray) -> Iterator[bytes]:
    import cramjam

    yield _XERIAL_HEADER
    for begin in range(0, len(data), _SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[begin : begin + _SNAPPY_BLOCK]))
        yield len(block).to_bytes(4, "big") + block


def _inflate_lz4(packed: bytes, limit: int) -> Pieces:
    import cramjam

    position, block_bytes, block_checksums = _lz4_start(packed)
    room = memoryview(bytearray(block_bytes))
    while True:
        begin = position + 4
        if begin > len(packed):
            raise BadCompression(_CUT)
        size = int.from_bytes(packed[position:begin], "little")
        if size == 0:
            return
        stored, size = size & _LZ4_STORED, size & ~_LZ4_STORED
        if size > block_bytes:
            raise BadCompression(f"a block of {size} bytes is larger than the {block_bytes} that were announced")
        block = packed[begin : begin + size]
        position = begin + size + 4 * block_checksums
        if position > len(packed):
            raise BadCompression(_CUT)
        try:
            yield block if stored else bytes(room[: cramjam.lz4.decompress_block_into(block, room)])
        except cramjam.DecompressionError as bad:
            raise BadCompression(str(bad)) from bad


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


def _deflate_lz4(data: bytes | bytearray) -> Iterator[bytes]:
    import cramjam

    yield _LZ4_HEADER
    for begin in range(0, len(data), _LZ4_BLOCK):
        plain = data[begin : begin + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        stored = len(block) >= len(plain)
        size = len(plain) | _LZ4_STORED if stored else len(block)
        yield size.to_bytes(4, "little") + (plain if stored else block)
    yield bytes(4)


_idle_unpackers: Final[list[ZstdDecompressor]] = []
"""One that has not unpacked much, and so has no large window: making one takes as long as unpacking a small batch."""


@cache
def _standard_zstd() -> Any | None:
    """The module of Python 3.14 and later. For earlier ones there is the package `zstandard`."""
    try:
        return import_module("compression.zstd")
    except ImportError:
        return None


def _inflate_zstd(packed: bytes, limit: int) -> Pieces:
    """Frame by frame. The library gets only so many blocks at once as fill a piece."""
    unpacker = None
    if (standard := _standard_zstd()) is not None:
        new_stream, failure = standard.ZstdDecompressor, standard.ZstdError
    else:
        import zstandard

        unpacker = _idle_unpackers.pop() if _idle_unpackers else zstandard.ZstdDecompressor()
        new_stream, failure = unpacker.decompressobj, zstandard.ZstdError
    whole = memoryview(packed)
    position = total = 0
    while position < len(packed):
        if int.from_bytes(packed[position : position + 4], "little") >> 4 == _ZSTD_SKIPPABLE:
            position += 8 + int.from_bytes(packed[position + 4 : position + 8], "little")
            if position > len(packed):
                raise BadCompression(_CUT)
            yield b""
            continue
        stream = new_stream()
        for end in _zstd_pieces(packed, position):
            try:
                piece = stream.decompress(whole[position:end])
            except failure as bad:
                raise BadCompression(str(bad)) from bad
            yield piece
            total += len(piece)
            position = end
        if not stream.eof:
            raise BadCompression(_CUT)
    if unpacker is not None and total <= _MUCH and not _idle_unpackers:
        _idle_unpackers.append(unpacker)


def _zstd_pieces(packed: bytes, position: int) -> Iterator[int]:
    """The ends of runs of blocks of the frame at a position, each of which unpacks to at most a piece (RFC 8878)."""
    if not _ZSTD_MAGIC.startswith(packed[position : position + 4]):
        raise BadCompression("it has no zstd frame")
    if position + 6 > len(packed):
        raise BadCompression(_CUT)
    described = packed[position + 4]
    is_single, has_checksum = described >> 5 & 1, described >> 2 & 1
    dictionary_id = (0, 1, 2, 4)[described & 3]
    content_size = (is_single, 2, 4, 8)[described >> 6]
    position += 5 + (not is_single) + dictionary_id + content_size
    room, is_last = _ZSTD_BLOCK, False
    while not is_last:
        header = int.from_bytes(packed[position : position + 3], "little")
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        unpacked = size if kind < _ZSTD_PACKED_BLOCK else _ZSTD_BLOCK
        if unpacked > room:
            yield position
            room = _ZSTD_BLOCK
        room -= unpacked
        position += 3 + (1 if kind == _ZSTD_RUN_BLOCK else size)
        if position > len(packed):
            raise BadCompression(_CUT)
    yield min(position + 4 * has_checksum, len(packed))


def _deflate_zstd(data: bytes | bytearray) -> Iterator[bytes]:
    if (standard := _standard_zstd()) is not None:
        stream = standard.ZstdCompressor(level=3)
        stream.set_pledged_input_size(len(data))
    else:
        import zstandard

        stream = zstandard.ZstdCompressor(level=3).compressobj(size=len(data))
    for begin in range(0, len(data), _ZSTD_BLOCK):
        yield stream.compress(data[begin : begin + _ZSTD_BLOCK])
    yield stream.flush()


_INFLATE: Final[dict[Compression, Callable[[bytes, int], Pieces]]] = {
    Compression.NONE: _inflate_none,
    Compression.GZIP: _inflate_gzip,
    Compression.SNAPPY: _inflate_snappy,
    Compression.LZ4: _inflate_lz4,
    Compression.ZSTD: _inflate_zstd,
}
_DEFLATE: Final[dict[Compression, Callable[[bytes | bytearray], Iterator[bytes]]]] = {
    Compression.NONE: _deflate_none,
    Compression.GZIP: _deflate_gzip,
    Compression.SNAPPY: _deflate_snappy,
    Compression.LZ4: _deflate_lz4,
    Compression.ZSTD: _deflate_zstd,
}
