"""CRC-32C by a table of 256 remainders, with the names of `google_crc32c`."""

from __future__ import annotations

from typing import Final

_POLYNOMIAL: Final = 0x82F63B78
"""Castagnoli's polynomial with its bits reversed."""
_ONES: Final = 0xFFFFFFFF


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE: Final = tuple(map(_remainder, range(256)))


def extend(crc: int, data: bytes) -> int:
    """The checksum of bytes that follow bytes with the checksum `crc`."""
    table, crc = _TABLE, crc ^ _ONES
    for byte in bytes(data):
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ _ONES


def value(data: bytes) -> int:
    """The checksum of bytes."""
    return extend(0, data)
