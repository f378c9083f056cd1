"""Checks a file down to the last field: the report of `kraft dump --verify` beyond the damage that reading finds."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from metadata_log.disk import Disk
from metadata_log.errors import EncodeError, MetadataLogError
from metadata_log.reading.damage import Damage
from metadata_log.reading.entries import Entry, read_entries
from metadata_log.reading.file_kinds import FileKind
from metadata_log.reading.index_entries import verify_entries
from metadata_log.reading.reader import read_file
from metadata_log.reading.small_files import base_offset_of, read_small_file
from metadata_log.records.batch import RecordBatch
from metadata_log.records.batch_builder import rebuild_batch
from metadata_log.records.frame import encode_control, encode_record
from metadata_log.records.record import records
from metadata_log.types import PARTITION_DIRECTORY, Uuid


class Verdict(Struct, frozen=True, kw_only=True):
    """The content of a file, and all its damage."""

    batches: int = 0
    records: int = 0
    first_offset: int | None = None
    end_offset: int | None = None
    damages: tuple[Damage, ...] = ()


def verify_file(disk: Disk, path: str, kind: FileKind) -> Verdict:
    """Decode everything in a file, encode it again, and compare."""
    if kind in {FileKind.SEGMENT, FileKind.SNAPSHOT}:
        return _verify_batches(disk, path)
    if kind in {FileKind.OFFSET_INDEX, FileKind.TIME_INDEX}:
        return Verdict(damages=tuple(_verify_index(disk, path, kind)))
    try:
        facts = read_small_file(disk, path, kind)
    except MetadataLogError as bad:
        return Verdict(damages=(small_file_damage(path, kind, bad),))
    topic_id = facts.get("topic_id", str(Uuid.METADATA_TOPIC))
    if path.split("/")[-2:-1] == [PARTITION_DIRECTORY] and topic_id != str(Uuid.METADATA_TOPIC):
        what = f"topic id {topic_id} is not that of the metadata log"
        return Verdict(damages=(Damage(where=path, what=what, expected=f"topic id {Uuid.METADATA_TOPIC}"),))
    return Verdict()


def small_file_damage(path: str, kind: FileKind, bad: MetadataLogError) -> Damage:
    """An error of `read_small_file` as damage."""
    field = f" ({bad.field})" if bad.field and bad.field not in bad.what else ""
    return Damage(where=path, what=f"{bad.what}{field}", expected=f"the text of a {kind} file", position=bad.position)


def _verify_batches(disk: Disk, path: str) -> Verdict:
    damages: list[Damage] = []
    batches = count = 0
    first = end = None
    for item in read_file(disk, path):
        if isinstance(item, Damage):
            damages.append(item)
            continue
        batches += 1
        count += item.record_count
        first = item.base_offset if first is None else first
        end = item.next_offset
        damages += _verify_batch(item, path)
    return Verdict(batches=batches, records=count, first_offset=first, end_offset=end, damages=tuple(damages))


def _verify_batch(batch: RecordBatch, path: str) -> Iterator[Damage]:
    sound = True
    for entry in read_entries(batch, path):
        if isinstance(entry, Damage):
            sound = False
            yield entry
        elif (what := _encodes_otherwise(entry)) is not None:
            yield Damage(
                where=path,
                what=what,
                expected="a record as Kafka writes it",
                position=batch.position,
                offset=entry.offset,
            )
    if sound and not batch.is_compressed and rebuild_batch(batch, records(batch)) != batch.data:
        yield Damage(
            where=path,
            what="the batch's records are not written in the usual way",
            expected="records as Kafka writes them",
            position=batch.position,
            offset=batch.base_offset,
        )


def _encodes_otherwise(entry: Entry) -> str | None:
    """Why a record would differ if it were written again; None for an unknown type."""
    if entry.record is None or entry.version not in type(entry.record).__schema__.versions:
        return None
    try:
        again = encode_control(entry.record)[2] if entry.is_control else encode_record(entry.record, entry.version)
    except EncodeError as bad:
        return f"{entry.name} version {entry.version} cannot be written again: {bad.what}"
    return None if again == entry.value else f"{entry.name} version {entry.version} would be written differently"


def _verify_index(disk: Disk, path: str, kind: FileKind) -> Iterator[Damage]:
    """Compare an index with its segment."""
    suffix = ".index" if kind is FileKind.OFFSET_INDEX else ".timeindex"
    stem, _, deleted = path.rpartition(suffix)
    log_path = f"{stem}.log{deleted}"
    if not disk.exists(log_path):
        yield Damage(where=path, what="the segment of this index is not there", expected=log_path)
        return
    batches = (batch for batch in read_file(disk, log_path) if isinstance(batch, RecordBatch))
    yield from verify_entries(path, disk.read(path), kind, base_offset_of(path), batches)
