"""Walks the bytes of a file of any size piece by piece, and skips holes and long runs of zeros."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from metadata_log.disk import File

PIECE_BYTES: Final = 1 << 16


class Piece(Struct, frozen=True):
    """Some bytes of a file."""

    position: int
    data: bytes


class Zeros(Struct, frozen=True):
    """A long run of zeros, or a hole."""

    position: int
    size: int


def pieces_of(file: File, start: int, end: int) -> Iterator[Piece | Zeros]:
    """The bytes from `start` to before `end`, in order: pieces of at most `PIECE_BYTES`, and the zeros between them.

    Zeros that fill less than one piece are part of a `Piece`.
    """
    position, zeros_from = start, start
    while position < end:
        data_from = min(file.next_data(position), end)
        piece = b"" if data_from > position else file.pread(min(PIECE_BYTES, end - position), position)
        if data_from > position or (len(piece) == PIECE_BYTES and not piece.strip(b"\x00")):
            position = data_from if data_from > position else position + len(piece)
            continue
        if zeros_from < position:
            yield Zeros(zeros_from, position - zeros_from)
        if not piece:  # the file was truncated during the walk
            return
        yield Piece(position, piece)
        position += len(piece)
        zeros_from = position
    if zeros_from < position:
        yield Zeros(zeros_from, position - zeros_from)
