"""Checks the files of a partition against one another, for `kraft dump --verify` (Kafka: the checks of
`DumpLogSegments`, of `LogSegment.sanityCheck` and of `ProducerStateManager`).

A broker repairs most of these files by itself when it starts: indexes, producer snapshots and the end of the log. What
it cannot notice is a file that is well-formed and wrong. Each check therefore compares a file with the batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from kraft.partitions.log.checkpoints import LOG_STARTS, read_offsets
from kraft.partitions.log.loading import CLEANED_SUFFIX, SWAP_SUFFIX
from kraft.partitions.log.producers import Marker, ProducerStates, last_sequence_of, marker_of
from kraft.partitions.log.segment_batches import batches_of
from kraft.partitions.log.transaction_index import ENTRY_BYTES as TRANSACTION_BYTES
from kraft.partitions.log.transaction_index import SUFFIX as ABORTED_SUFFIX
from kraft.partitions.log.transaction_index import decode_transactions
from metadata_log.disk import Disk
from metadata_log.errors import CorruptBatch, DecodeError, MetadataLogError, UnsupportedVersion
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import EpochHistory, parse_epochs
from metadata_log.log.log_dir import PARTITION_METADATA, parse_partition_metadata
from metadata_log.log.partition_names import DELETE, STRAY, PartitionName, parse_partition_name
from metadata_log.log.producer_snapshot import SUFFIX as PRODUCERS_SUFFIX
from metadata_log.log.producer_snapshot import decode_producer_snapshot
from metadata_log.log.segment import DELETED_SUFFIX, INDEX_SUFFIXES, file_name, parse_file_name
from metadata_log.reading.damage import Damage
from metadata_log.reading.file_kinds import FileKind
from metadata_log.reading.index_entries import verify_entries
from metadata_log.reading.verify import Verdict
from metadata_log.records.aborted_txn import AbortedTxn
from metadata_log.records.batch import RecordBatch
from metadata_log.records.record import records

_INDEX, _TIME_INDEX = INDEX_SUFFIXES
_REMOVED_AT_A_START: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, ".tmp")
"""The files that a deletion, the cleaner or the writing of a small file has left behind."""
_INDEXES: Final = {_INDEX: FileKind.OFFSET_INDEX, _TIME_INDEX: FileKind.TIME_INDEX}


class _Batch(Struct, frozen=True, gc=False):
    """The facts of a batch that the other files of the partition repeat."""

    position: int
    base_offset: int
    last_offset: int
    epoch: int
    max_timestamp: int
    records: int
    producer_id: int
    last_sequence: int
    is_abort: bool


class _Transactions:
    """The aborted transactions by the batches alone, as long as no record is missing from offset 0 on."""

    def __init__(self) -> None:
        self.aborted = set[AbortedTxn]()
        self.is_whole = True
        self._states = ProducerStates()
        self._end = 0

    def note(self, batch: RecordBatch, marker: Marker | None) -> None:
        """Go on after a batch."""
        has_all = batch.record_count == batch.last_offset_delta + 1
        self.is_whole &= batch.base_offset == self._end and has_all
        self._end = batch.next_offset
        ended = self._states.note(batch, marker) if self.is_whole else None
        if ended is not None:
            if ended.is_aborted:
                stable = self._states.stable_offset_behind(ended)
                self.aborted.add(AbortedTxn(ended.producer_id, ended.first_offset, ended.last_offset, stable))
            self._states.end(ended)
            self._states.pass_high_watermark(self._end)


class FileVerdict(Struct, frozen=True):
    """The content of one file of a partition, and its damage.

    Args:
        path: The path of the file.
        kind: The kind of the file, such as `time index`.
        verdict: The content, and all damage.
    """

    path: str
    kind: str
    verdict: Verdict


def verify_partition(disk: Disk, directory: str) -> Iterator[FileVerdict]:
    """Check each file of a partition directory: the segments first, then the files that describe them.

    Args:
        disk: The disk.
        directory: The partition directory of a topic.

    Yields:
        One verdict for each file.

    Raises:
        OSError: A file cannot be read.
    """
    names = sorted(disk.list(directory))
    name_of_it = parse_partition_name(directory.rpartition("/")[2])
    suffix = "" if name_of_it is None else name_of_it.suffix
    held = dict[int, list[_Batch]]()
    transactions = _Transactions()
    end = 0
    for name in names:
        base = parse_file_name(name)
        if base is not None:
            damages = list[Damage]()
            path = f"{directory}/{name}"
            held[base] = list(_checked_batches(disk, path, end, transactions, damages))
            end = held[base][-1].last_offset + 1 if held[base] else base
            yield FileVerdict(path, "segment", _content(held[base], damages))
    # A broker empties the epochs of a partition that it is about to delete.
    start = 2**63 - 1 if suffix == DELETE else _log_start(disk, directory)
    for name in names:
        path = f"{directory}/{name}"
        if (problem := _beside_batches(disk, path, held, transactions, start)) is not None:
            kind, damage = problem
            yield FileVerdict(path, kind, Verdict(damages=tuple(damage)))
        elif parse_file_name(name) is None and not name.endswith(_REMOVED_AT_A_START):
            what = "this is no file of a partition, and was not checked"
            yield FileVerdict(path, "other", Verdict(damages=(Damage(where=path, what=what, expected="no such file"),)))
    if suffix == DELETE:
        return
    if not held:
        what = "there is no segment: a start begins the log anew"
        yield _missing(f"{directory}/{file_name(0)}", "segment", what, "a segment")
    elif EPOCHS_FILE not in names and any(held.values()):
        what = "the file is missing: after a clean stop no start builds it again"
        yield _missing(f"{directory}/{EPOCHS_FILE}", EPOCHS_FILE, what, "the epochs of the batches")
    if PARTITION_METADATA not in names and suffix != STRAY:
        what = "the file is missing: a start makes the directory -stray"
        yield _missing(
            f"{directory}/{PARTITION_METADATA}", PARTITION_METADATA, what, "the version and the id of the topic"
        )


def _missing(path: str, kind: str, what: str, expected: str) -> FileVerdict:
    return FileVerdict(path, kind, Verdict(damages=(Damage(where=path, what=what, expected=expected),)))


def _log_start(disk: Disk, directory: str) -> int | None:
    """The log start in the checkpoint file of the log directory; None if the partition directory stands alone."""
    parent, _, entry = directory.rpartition("/")
    name = parse_partition_name(entry)
    if name is None or not disk.exists(f"{parent or '.'}/{LOG_STARTS}"):
        return None
    return read_offsets(disk, parent or ".", LOG_STARTS)[0].get(PartitionName(name.topic, name.number), 0)


def _beside_batches(
    disk: Disk, path: str, held: dict[int, list[_Batch]], transactions: _Transactions, start: int | None
) -> tuple[str, Iterator[Damage]] | None:
    """The kind and the damage of a file that describes batches; None for other files."""
    name = path.rpartition("/")[2]
    in_order = (batch for base in sorted(held) for batch in held[base])
    if name == EPOCHS_FILE:
        return name, _epochs(path, disk.read(path), list(in_order), start)
    if name == PARTITION_METADATA:
        return name, _topic(path, disk.read(path))
    if (end := parse_file_name(name, PRODUCERS_SUFFIX)) is not None:
        return "producer snapshot", _producers(path, disk.read(path), end, in_order)
    for suffix in (*_INDEXES, ABORTED_SUFFIX):
        if (base := parse_file_name(name, suffix)) is None:
            continue
        kind = _INDEXES.get(suffix)
        called = "transaction index" if kind is None else str(kind)
        if base not in held:
            missing = Damage(where=path, what="the segment of this index is missing", expected=file_name(base))
            return called, iter((missing,))
        content = disk.read(path)
        if kind is None:
            return called, _aborted(path, content, base, held[base], transactions)
        return called, verify_entries(path, content, kind, base, held[base])
    return None


def _content(batches: list[_Batch], damages: list[Damage]) -> Verdict:
    return Verdict(
        batches=len(batches),
        records=sum(batch.records for batch in batches),
        first_offset=batches[0].base_offset if batches else None,
        end_offset=batches[-1].last_offset + 1 if batches else None,
        damages=tuple(damages),
    )


def _checked_batches(
    disk: Disk, path: str, end: int, transactions: _Transactions, damages: list[Damage]
) -> Iterator[_Batch]:
    """The sound batches of a segment; what is wrong with the segment goes into `damages`."""
    base = parse_file_name(path.rpartition("/")[2]) or 0
    if base < end:
        what = f"the segment before ends at offset {end}"
        damages.append(Damage(where=path, what=what, expected=f"a base offset from {end} on"))
    least, epoch = base, -1
    file = disk.open(path, writable=False)
    try:
        for batch in batches_of(file):
            if isinstance(batch, Damage):
                damages.append(batch)
                continue
            damages += _batch_damage(path, batch, least, epoch)
            least, epoch = max(least, batch.next_offset), max(epoch, batch.epoch)
            try:
                marker = marker_of(batch) if batch.is_control else None
            except CorruptBatch:
                marker = None  # the check of the records has reported this
            transactions.note(batch, marker)
            yield _Batch(
                batch.position,
                batch.base_offset,
                batch.last_offset,
                batch.epoch,
                batch.max_timestamp,
                batch.record_count,
                batch.producer_id,
                last_sequence_of(batch),
                is_abort=marker is not None and marker.is_abort,
            )
    finally:
        file.close()


def _batch_damage(path: str, batch: RecordBatch, least: int, epoch: int) -> Iterator[Damage]:
    """Find damage in a batch whose checksum is right. The checksum covers neither the base offset nor the epoch."""

    def damage(what: str, expected: str) -> Damage:
        return Damage(where=path, what=what, expected=expected, position=batch.position, offset=batch.base_offset)

    if batch.base_offset < least:
        yield damage(f"a batch begins at offset {batch.base_offset} behind offset {least - 1}", "rising offsets")
    if batch.epoch < epoch:
        yield damage(f"a batch of epoch {batch.epoch} follows one of epoch {epoch}", "epochs that do not fall")
    rises, past = True, batch.base_offset - 1
    try:
        for record in records(batch, where=path):
            rises, past = rises and past < record.offset, record.offset
    except (CorruptBatch, UnsupportedVersion) as bad:
        yield damage(bad.what, "whole records")
        return
    if not rises or (batch.record_count and past > batch.last_offset):
        yield damage("the offsets of the records do not rise within the batch", "rising offsets")


def _aborted(
    path: str, content: bytes, base: int, batches: list[_Batch], transactions: _Transactions
) -> Iterator[Damage]:
    """Compare the aborted transactions with the abort markers of the segment, and with the replayed transactions."""
    if left := len(content) % TRANSACTION_BYTES:
        text = f"{left} bytes follow the last whole entry"
        yield Damage(where=path, what=text, expected="whole entries", position=len(content) - left)
    try:
        entries = decode_transactions(content, base_offset=base, where=path)
    except DecodeError as bad:
        yield Damage(where=path, what=bad.what, expected="a transaction index", position=bad.position)
        return
    markers = {(batch.producer_id, batch.last_offset) for batch in batches if batch.is_abort}
    for number, entry in enumerate(entries):
        position = number * TRANSACTION_BYTES
        if (entry.producer_id, entry.last_offset) not in markers:
            what = f"no abort marker of producer {entry.producer_id} is at offset {entry.last_offset}"
            yield Damage(where=path, what=what, expected="the offset of an abort marker", position=position)
        elif transactions.is_whole and entry not in transactions.aborted:
            what = (
                f"the transaction that ends at offset {entry.last_offset} did not begin at offset "
                f"{entry.first_offset}, or did not leave {entry.last_stable_offset} as last stable offset"
            )
            yield Damage(where=path, what=what, expected="the transaction of the batches", position=position)


def _producers(path: str, content: bytes, end: int, batches: Iterable[_Batch]) -> Iterator[Damage]:
    """Compare the entries of a producer snapshot with the batches that the entries name, if the log has those."""
    try:
        entries = decode_producer_snapshot(content, path)
    except DecodeError as bad:
        yield Damage(where=path, what=bad.what, expected="a producer snapshot")
        return
    by_offset = {batch.last_offset: batch for batch in batches}
    for entry in entries:
        if max(entry.last_offset, entry.open_offset) >= end:
            what = f"producer {entry.producer_id} has an offset at or behind that of the snapshot"
            yield Damage(where=path, what=what, expected=f"offsets below {end}")
            continue
        batch = by_offset.get(entry.last_offset)
        if batch is not None and (batch.producer_id, batch.last_sequence) != (entry.producer_id, entry.last_sequence):
            what = (
                f"producer {entry.producer_id} ends with sequence {entry.last_sequence} here, and the batch at offset "
                f"{entry.last_offset} is of producer {batch.producer_id} with sequence {batch.last_sequence}"
            )
            yield Damage(where=path, what=what, expected="the last batch of the producer", offset=entry.last_offset)


def _epochs(path: str, content: bytes, batches: list[_Batch], start: int | None) -> Iterator[Damage]:
    """Compare the epochs with those of the batches.

    Epochs below the log start have no entry, though their batches may still be there; a log start that is not known may
    be that of the first entry. An epoch without a record has an entry, but only at its leader, and at the log end.
    """
    try:
        epochs = parse_epochs(content, where=path) if content else EpochHistory()
    except DecodeError as bad:
        yield Damage(where=path, what=bad.what, expected="an epoch and its first offset on each line")
        return
    end = batches[-1].last_offset + 1 if batches else None
    if end is not None and epochs.entries and epochs.entries[-1].offset > end:
        last = epochs.entries[-1]
        what = f"epoch {last.epoch} begins at offset {last.offset} here, and the log ends at offset {end}"
        yield Damage(where=path, what=what, expected="epochs within the log", offset=last.offset)
    if start is None:
        start = epochs.entries[0].offset if epochs.entries else 0
    for batch in batches:
        known = epochs.epoch_at(batch.base_offset)
        if known is None and batch.base_offset >= start:
            what = f"offset {batch.base_offset} has no epoch here, and epoch {batch.epoch} in its batch"
            yield Damage(where=path, what=what, expected="the epochs of the batches", offset=batch.base_offset)
            return
        if known is not None and known != batch.epoch:
            what = f"offset {batch.base_offset} has epoch {known} here, and epoch {batch.epoch} in its batch"
            yield Damage(where=path, what=what, expected="the epochs of the batches", offset=batch.base_offset)
            return


def _topic(path: str, content: bytes) -> Iterator[Damage]:
    try:
        parse_partition_metadata(content, where=path)
    except MetadataLogError as bad:
        yield Damage(where=path, what=bad.what, expected="the version and the id of the topic")
