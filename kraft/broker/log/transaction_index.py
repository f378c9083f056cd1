"""The aborted transactions of a segment, as its `.txnindex` file has them (Kafka: `TransactionIndex`, `AbortedTxn`)."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from metadata_log.errors import DecodeError

SUFFIX: Final = ".txnindex"
_ENTRY: Final = Layout(">hqqqq")
ENTRY_BYTES: Final = _ENTRY.size
_VERSION: Final = 0


class AbortedTransaction(Struct, frozen=True, gc=False):
    """A transaction that ended with an abort marker.

    Args:
        producer_id: The producer.
        first_offset: The first offset of the transaction.
        last_offset: The offset of the marker.
        last_stable_offset: The last stable offset behind this transaction.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_transactions(transactions: Iterable[AbortedTransaction]) -> bytes:
    """The content of a `.txnindex` file."""
    return b"".join(
        _ENTRY.pack(_VERSION, each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
        for each in transactions
    )


def decode_transactions(content: bytes, *, base_offset: int, where: str) -> list[AbortedTransaction]:
    """The entries of a `.txnindex` file; bytes behind the last whole entry are left out, as in Kafka.

    Args:
        content: The content of the file.
        base_offset: The base offset of the segment.
        where: The path of the file, for errors.

    Returns:
        The aborted transactions in the order of their markers.

    Raises:
        DecodeError: An entry has another version, or ends before the segment (`TransactionIndex.sanityCheck`).
    """
    hint = "Remove the file: the broker rebuilds the indexes of the segment from its batches."
    found = []
    for at in range(0, len(content) - len(content) % ENTRY_BYTES, ENTRY_BYTES):
        version, *fields = _ENTRY.unpack_from(content, at)
        if version != _VERSION:
            raise DecodeError(f"unknown version {version} of an entry", where=where, position=at, hint=hint)
        entry = AbortedTransaction(*fields)
        if entry.last_offset < base_offset:
            what = f"a transaction ends at offset {entry.last_offset}, before the segment"
            raise DecodeError(what, where=where, position=at, hint=hint)
        found.append(entry)
    return found


def aborted_within(
    segments: Iterable[Iterable[AbortedTransaction]], offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions with records in a range of offsets (`LocalLog.collectAbortedTransactions`).

    Args:
        segments: The entries of each segment, from the one that holds `offset` on.
        offset: The first offset of the range.
        end_offset: The offset behind the range.
    """
    found: list[AbortedTransaction] = []
    for entries in segments:
        for each in entries:
            if each.last_offset >= offset and each.first_offset < end_offset:
                found.append(each)
            if each.last_stable_offset >= end_offset:
                return found
    return found
