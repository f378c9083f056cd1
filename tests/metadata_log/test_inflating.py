"""Compressed bytes are unpacked in pieces of bounded size, with work that grows as the bytes do, whatever they say."""

from __future__ import annotations

import contextlib
import tracemalloc
import zlib
from collections.abc import Iterator

import pytest
from backports import zstd as zstd_of_later_pythons

from metadata_log import compression
from metadata_log.compression import BadCompression, Compression, TooMuch, deflate, deflating, inflate, inflating
from support.bombs import EMPTY_GZIP, EMPTY_ZSTD, SKIPPED_ZSTD, SNAPPY_OF_4_GIB, zstd

LIMIT = 1 << 26
MIB = 1 << 20


class CountedZlib:
    """zlib, with the bytes counted that go into it and that it copies out as unused."""

    error = zlib.error

    def __init__(self) -> None:
        self.moved = 0

    def decompressobj(self, wbits: int) -> CountedStream:
        return CountedStream(self, wbits)


class CountedStream:
    def __init__(self, counted: CountedZlib, wbits: int) -> None:
        self._counted, self._stream = counted, zlib.decompressobj(wbits)

    def decompress(self, data: bytes, most: int) -> bytes:
        found = self._stream.decompress(data, most)
        self._counted.moved += len(data) + len(self._stream.unused_data) + len(self._stream.unconsumed_tail)
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@pytest.mark.parametrize("members", [1000, 4000])
def test_empty_gzip_members_take_work_in_proportion_to_their_bytes(
    members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 52,000 members of 20 bytes copied all that followed: 26 GB for a megabyte."""
    counted = CountedZlib()
    monkeypatch.setattr(compression, "zlib", counted)
    pieces = list(inflating(Compression.GZIP, EMPTY_GZIP * members, LIMIT))
    assert b"".join(pieces) == b""
    assert members <= len(pieces) < 2 * members
    assert counted.moved < 300 * len(EMPTY_GZIP) * members


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD, Compression.LZ4])
def test_a_bomb_comes_in_pieces_and_ends_at_the_limit(codec: Compression) -> None:
    packed = deflate(codec, bytes(16 * MIB))
    sizes = sizes_up_to_the_limit(codec, packed, 4 * MIB)
    assert max(sizes) <= 128 << 10
    assert 3 * MIB < sum(sizes) <= 4 * MIB


def sizes_up_to_the_limit(codec: Compression, packed: bytes, limit: int) -> list[int]:
    sizes: list[int] = []
    with contextlib.suppress(TooMuch):
        sizes.extend(len(piece) for piece in inflating(codec, packed, limit))
        pytest.fail("the limit was passed")
    return sizes


def test_a_bomb_takes_the_memory_of_a_piece() -> None:
    """64 MiB in six kilobytes were unpacked into one buffer before anything looked at them."""
    packed = zstd(bytes(32 * MIB))
    tracemalloc.start()
    try:
        assert sum(len(piece) for piece in inflating(Compression.ZSTD, packed, LIMIT)) == 32 * MIB
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_a_snappy_block_cannot_claim_more_than_snappy_can_pack() -> None:
    with pytest.raises(BadCompression, match="claims to unpack to 4294967295"):
        inflate(Compression.SNAPPY, SNAPPY_OF_4_GIB, LIMIT)
    claim = b"\x80\x80\x80\x1e"  # 60 MiB in groups of seven bits
    with pytest.raises(BadCompression, match="a block of 44 bytes claims to unpack to 62914560"):
        inflate(Compression.SNAPPY, claim + bytes(40), LIMIT)


def test_zstd_frames_without_content_are_passed() -> None:
    frames = (SKIPPED_ZSTD + EMPTY_ZSTD) * 1000 + zstd(b"content") + SKIPPED_ZSTD
    assert inflate(Compression.ZSTD, frames, LIMIT) == b"content"
    with pytest.raises(BadCompression, match="cut short"):
        inflate(Compression.ZSTD, frames[:-1], LIMIT)
    with pytest.raises(BadCompression, match="no zstd frame"):
        inflate(Compression.ZSTD, frames + b"more", LIMIT)


@pytest.mark.parametrize("codec", Compression)
def test_packing_in_pieces_is_packing(codec: Compression) -> None:
    data = bytes(range(256)) * 8000
    pieces: Iterator[bytes] = deflating(codec, bytearray(data))
    assert inflate(codec, b"".join(pieces), LIMIT) == data


@pytest.mark.parametrize(
    "packed",
    [
        *(zstd(bytes(size)) for size in (0, 1, 100, 1 << 20)),
        zstd(b"a") + EMPTY_ZSTD * 3 + SKIPPED_ZSTD + zstd(b"b"),
        zstd(b"cut short" * 9)[:-3],
        zstd(b"rotten" * 99)[:9] + b"\xff" * 9,
        b"no frame",
        b"",
    ],
)
def test_the_standard_library_unpacks_zstd_as_the_package_does(packed: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.14 and later have the module of which `backports.zstd` is a copy."""

    def outcome() -> list[bytes] | type[BadCompression]:
        try:
            return [bytes(one) for one in inflating(Compression.ZSTD, packed, LIMIT)]
        except BadCompression:
            return BadCompression

    with_package = outcome()
    monkeypatch.setattr(compression, "_standard_zstd", lambda: zstd_of_later_pythons)
    assert outcome() == with_package
    if isinstance(with_package, list):
        plain = b"".join(with_package)
        assert inflate(Compression.ZSTD, deflate(Compression.ZSTD, plain), LIMIT) == plain
