"""Checks whether the files of one directory agree with each other (Kafka: `KafkaRaftLog.recover`)."""

from __future__ import annotations

from collections.abc import Iterator

from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import parse_epochs
from metadata_log.log.log_dir import ARCHIVE_MANIFEST, META_PROPERTIES
from metadata_log.log.quorum_state_file import FILE_NAME as QUORUM_STATE
from metadata_log.log.quorum_state_file import read_quorum_state
from metadata_log.log.segment import file_name, parse_file_name
from metadata_log.log.snapshot import list_snapshots
from metadata_log.reading.damage import Damage
from metadata_log.reading.missing import missing_end, no_beginning
from metadata_log.reading.reader import gap_before, read_file
from metadata_log.records.batch import RecordBatch
from metadata_log.types import PARTITION_DIRECTORY, OffsetAndEpoch


def verify_directory(disk: Disk, path: str) -> tuple[Damage, ...]:
    """The missing and inconsistent files of a log directory or a partition directory; nothing for a file.

    Files that a node rebuilds from others may be missing: indexes, the epoch checkpoint, partition.metadata.
    """
    try:
        names = disk.list(path)
    except (NotADirectoryError, FileNotFoundError):
        return ()
    base = path.rstrip("/")
    if PARTITION_DIRECTORY in names:
        inner = f"{base}/{PARTITION_DIRECTORY}"
        return (*_unformatted(base, names), *_partition(disk, inner, disk.list(inner)))
    is_partition = any(parse_file_name(name) is not None for name in names) or bool(list_snapshots(disk, base))
    return tuple(_partition(disk, base, names)) if is_partition else ()


def _unformatted(directory: str, names: list[str]) -> Iterator[Damage]:
    if META_PROPERTIES not in names:
        what = "meta.properties is missing: no node starts on this directory"
        yield Damage(where=f"{directory}/{META_PROPERTIES}", what=what, expected="cluster id, node id and directory id")


def _partition(disk: Disk, directory: str, names: list[str]) -> Iterator[Damage]:
    bases = [base for name in names if (base := parse_file_name(name)) is not None]
    snapshots = list_snapshots(disk, directory)
    if bases and bases[0] > 0 and not any(snapshot.offset >= bases[0] for snapshot in snapshots):
        yield no_beginning(directory, bases[0])
    end: int | None = None if bases else 0
    epochs: list[OffsetAndEpoch] = []
    for base in bases:
        path = f"{directory}/{file_name(base)}"
        if (gap := gap_before(path, base, end)) is not None:
            yield gap
        end = base
        for item in read_file(disk, path):
            if isinstance(item, RecordBatch):
                end = item.next_offset
                if not epochs or item.epoch > epochs[-1].epoch:
                    epochs.append(OffsetAndEpoch(epoch=item.epoch, offset=item.base_offset))
            else:
                end = None
    if end is not None:
        yield from missing_end(disk, directory, bases, snapshots, end)
    if epochs:
        yield from _epochs(disk, directory, epochs)
        if ARCHIVE_MANIFEST not in names:  # an archive belongs to no voter
            yield from _quorum_state(disk, directory, epochs[-1].epoch)


def _epochs(disk: Disk, directory: str, true: list[OffsetAndEpoch]) -> Iterator[Damage]:
    """Compare the epoch checkpoint, as far as it goes, with the log. No CRC covers the epoch of a batch."""
    path = f"{directory}/{EPOCHS_FILE}"
    try:
        known = parse_epochs(disk.read(path)).entries if disk.exists(path) else ()
    except MetadataLogError:
        return  # the check of the file itself reports this
    if not known:
        return
    # Either may begin later than the other, within an epoch; either may lack the newest epochs.
    first, last = max(true[0].epoch, known[0].epoch), min(true[-1].epoch, known[-1].epoch)
    in_log = [entry for entry in true if first < entry.epoch <= last]
    in_file = [entry for entry in known if first < entry.epoch <= last]
    for entry in sorted(set(in_log) ^ set(in_file)):
        source = "the log" if entry in in_log else EPOCHS_FILE
        what = f"epoch {entry.epoch} begins at offset {entry.offset} only in {source}"
        yield Damage(where=path, what=what, expected="the epochs of the log's batches", offset=entry.offset)
        return


def _quorum_state(disk: Disk, directory: str, last_epoch: int) -> Iterator[Damage]:
    """The epoch of the file may be ahead of the log, because an election writes no record, but never behind."""
    path, expected = f"{directory}/{QUORUM_STATE}", f"an epoch of at least {last_epoch}, as in the log"
    try:
        state = read_quorum_state(disk, directory)
    except MetadataLogError:
        return  # the check of the file itself reports this
    if state is None:
        what = "quorum-state is missing: a vote that was given may be forgotten"
        yield Damage(where=path, what=what, expected=expected)
    elif state.leader_epoch < last_epoch:
        what = f"quorum-state has epoch {state.leader_epoch}, and the log {last_epoch}"
        yield Damage(where=path, what=what, expected=expected)
