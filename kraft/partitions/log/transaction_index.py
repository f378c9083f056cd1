"""The aborted transactions of a segment, as its `.txnindex` file has them (Kafka: `TransactionIndex`, `AbortedTxn`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from metadata_log.errors import DecodeError
from metadata_log.records.aborted_txn import AbortedTxn
from metadata_log.serde.codec import decode, encode

SUFFIX: Final = ".txnindex"
_VERSION: Final = 0
_VERSION_BYTES: Final = 2
ENTRY_BYTES: Final = _VERSION_BYTES + 4 * 8


def encode_transactions(transactions: Iterable[AbortedTxn]) -> bytes:
    """The content of a `.txnindex` file."""
    version = _VERSION.to_bytes(_VERSION_BYTES, "big")
    return b"".join(version + encode(each, _VERSION) for each in transactions)


def decode_transactions(content: bytes, *, base_offset: int, where: str) -> list[AbortedTxn]:
    """The entries of a `.txnindex` file; bytes after the last whole entry are left out, as in Kafka.

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
    entries = []
    for at in range(0, len(content) - len(content) % ENTRY_BYTES, ENTRY_BYTES):
        body = at + _VERSION_BYTES
        version = int.from_bytes(content[at:body], "big", signed=True)
        if version != _VERSION:
            raise DecodeError(f"unknown version {version} of an entry", where=where, position=at, hint=hint)
        entry = decode(AbortedTxn, version, content[body : at + ENTRY_BYTES])
        if entry.last_offset < base_offset:
            what = f"a transaction ends at offset {entry.last_offset}, before the segment"
            raise DecodeError(what, where=where, position=at, hint=hint)
        entries.append(entry)
    return entries


def aborted_within(segments: Iterable[Iterable[AbortedTxn]], offset: int, end_offset: int) -> list[AbortedTxn]:
    """The aborted transactions with records in a range of offsets (`LocalLog.collectAbortedTransactions`).

    Args:
        segments: The entries of each segment, from the one that holds `offset` on.
        offset: The first offset of the range.
        end_offset: The offset after the range.
    """
    aborted_txns: list[AbortedTxn] = []
    for entries in segments:
        for each in entries:
            if each.last_offset >= offset and each.first_offset < end_offset:
                aborted_txns.append(each)
            if each.last_stable_offset >= end_offset:
                return aborted_txns
    return aborted_txns
