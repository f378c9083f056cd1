"""Ways in which bytes of a file can go wrong, drawn from one `Random`: what fuzzing and properties do to real files."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from google_crc32c import value as crc32c

Change = Callable[[bytes, Random], bytes]
EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, 1 << 63)


def _span(content: bytes, rng: Random) -> tuple[int, int]:
    start = rng.randrange(len(content))
    return start, min(len(content), start + rng.choice([1, 2, 8, 61, 200, len(content)]))


def flip(content: bytes, rng: Random) -> bytes:
    """One bit is another."""
    changed = bytearray(content)
    changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwrite(content: bytes, rng: Random) -> bytes:
    """A number is another, extreme one."""
    start, size = rng.randrange(len(content)), rng.choice([1, 2, 4, 8])
    number = (rng.choice(EXTREMES) & ((1 << 8 * size) - 1)).to_bytes(size, "big")
    return (content[:start] + number + content[start + size :])[: len(content)]


def cut_end(content: bytes, rng: Random) -> bytes:
    """The file ends early."""
    return content[: rng.randrange(len(content))]


def cut_out(content: bytes, rng: Random) -> bytes:
    """Some bytes in between are missing."""
    start, end = _span(content, rng)
    return content[:start] + content[end:]


def repeat(content: bytes, rng: Random) -> bytes:
    """Some bytes are there twice."""
    start, end = _span(content, rng)
    return content[:end] + content[start:end] + content[end:]


def reorder(content: bytes, rng: Random) -> bytes:
    """Two neighbouring pieces have changed places."""
    start, middle = _span(content, rng)
    end = min(len(content), middle + rng.choice([1, 8, 72, 300]))
    return content[:start] + content[middle:end] + content[start:middle] + content[end:]


def blank(content: bytes, rng: Random) -> bytes:
    """Some bytes have become zeros, as after a crash of some file systems."""
    start, end = _span(content, rng)
    return content[:start] + bytes(end - start) + content[end:]


def insert(content: bytes, rng: Random) -> bytes:
    """Random bytes have come in between."""
    start = rng.randrange(len(content) + 1)
    return content[:start] + rng.randbytes(rng.choice([1, 4, 64])) + content[start:]


CHANGES: tuple[Change, ...] = (flip, overwrite, cut_end, cut_out, repeat, reorder, blank, insert)


def tampered(content: bytes, rng: Random, most: int = 3) -> bytes:
    """The content after one to `most` changes."""
    for _ in range(rng.randint(1, most)):
        if content:
            content = rng.choice(CHANGES)(content, rng)
    return content


def resealed(content: bytes) -> bytes:
    """The content with true CRCs in all its batches, so that what is wrong in them gets past the first check."""
    changed, position = bytearray(content), 0
    while position + 61 <= len(changed):
        size = 12 + int.from_bytes(changed[position + 8 : position + 12], "big", signed=True)
        if size < 61 or position + size > len(changed):
            break
        changed[position + 17 : position + 21] = crc32c(bytes(changed[position + 21 : position + size])).to_bytes(
            4, "big"
        )
        position += size
    return bytes(changed)
