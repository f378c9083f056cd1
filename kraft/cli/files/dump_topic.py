"""`kraft dump` for the partitions of topics: the lines of Kafka's own tool, or JSON (Kafka: `DumpLogSegments`)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.cli.files.coordinator_lines import Decoder, decoder_of_directory
from kraft.cli.text import echo, echo_raw
from kraft.partitions.log.dump_lines import (
    batch_line,
    index_lines,
    plain_pair,
    producer_lines,
    record_lines,
    sequence_of,
    transaction_lines,
)
from kraft.partitions.log.producers import marker_of
from kraft.partitions.log.segment_batches import batches_of
from kraft.partitions.log.transaction_index import SUFFIX as ABORTED_SUFFIX
from kraft.partitions.log.transaction_index import decode_transactions
from metadata_log.disk import Disk
from metadata_log.errors import DecodeError
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import TOPIC_REMEDY, parse_epochs
from metadata_log.log.indexes import parse_offset_index, parse_time_index
from metadata_log.log.producer_snapshot import SUFFIX as PRODUCERS_SUFFIX
from metadata_log.log.producer_snapshot import decode_producer_snapshot
from metadata_log.log.segment import SUFFIX, parse_file_name
from metadata_log.reading.damage import Damage, OnDamage, stops
from metadata_log.reading.dump_records import Range
from metadata_log.records.batch import RecordBatch
from metadata_log.records.record import Record, records

_INDEX: Final = ".index"
_TIME_INDEX: Final = ".timeindex"
_SUFFIXES: Final = (SUFFIX, _INDEX, _TIME_INDEX, ABORTED_SUFFIX, PRODUCERS_SUFFIX)


class TopicDump(Struct, frozen=True, kw_only=True):
    """The options of a dump of a topic's partition."""

    show_records: bool
    span: Range
    as_json: bool
    on_damage: OnDamage
    decoder: Decoder | None = None
    """The decoder of an internal topic; None to tell by the name of the directory."""
    advance: Callable[[int], None]
    """Hears of the bytes that were read."""


def dump_topic_path(disk: Disk, path: str, wanted: TopicDump) -> bool:
    """Print the files of a partition directory, or one file; returns whether all are sound. `DamagedFile` in the strict
    mode.
    """
    try:
        base = path.rstrip("/")
        files = [f"{base}/{name}" for name in disk.list(path)]
    except NotADirectoryError:
        files = [path]
    if wanted.decoder is None:
        name = os.path.basename(os.path.dirname(os.path.abspath(files[0])))
        wanted = replace(wanted, decoder=decoder_of_directory(name))
    sound = True
    for file in files:
        name = file.rpartition("/")[2]
        if name == EPOCHS_FILE or any(parse_file_name(name, suffix) is not None for suffix in _SUFFIXES):
            sound &= _dump_file(disk, file, wanted)
    return sound


def _dump_file(disk: Disk, path: str, wanted: TopicDump) -> bool:
    if not wanted.as_json:
        echo(f"Dumping {path}")
    if path.endswith(SUFFIX):
        return _dump_segment(disk, path, wanted)
    try:
        lines = list(_small_file_lines(disk, path, wanted))
    except DecodeError as bad:
        damage = Damage(where=path, what=str(bad), expected="a sound file")
        stops(damage, wanted.on_damage)
        return _report(damage, wanted, bad.hint)
    for line in lines:
        echo(line)
    return True


def _small_file_lines(disk: Disk, path: str, wanted: TopicDump) -> Iterator[str]:
    """The lines of an index, a producer snapshot or the epochs; raises `DecodeError`."""
    content = disk.read(path)
    name = path.rpartition("/")[2]
    base = int(name.partition(".")[0]) if name[0].isdigit() else 0
    lines: Iterator[str]
    if name == EPOCHS_FILE:
        epochs = parse_epochs(content, where=path, remedy=TOPIC_REMEDY).entries if content else ()
        lines = (f"epoch: {entry.epoch} offset: {entry.offset}" for entry in epochs)
    elif name.endswith(_TIME_INDEX):
        lines = index_lines(parse_time_index(content, base), is_time=True)
    elif name.endswith(ABORTED_SUFFIX):
        lines = transaction_lines(decode_transactions(content, base_offset=base, where=path))
    elif name.endswith(PRODUCERS_SUFFIX):
        lines = producer_lines(decode_producer_snapshot(content, path))
    else:
        lines = index_lines(parse_offset_index(content, base), is_time=False)
    for line in lines:
        yield json.dumps({"file": path, "line": line.strip()}) if wanted.as_json else line


def _dump_segment(disk: Disk, path: str, wanted: TopicDump) -> bool:
    sound = True
    if not wanted.as_json:
        echo(f"Log starting offset: {parse_file_name(path.rpartition('/')[2]) or 0}")
    file = disk.open(path, writable=False)
    try:
        for batch in batches_of(file, wanted.on_damage):
            if isinstance(batch, Damage):
                sound &= _report(batch, wanted)
                continue
            wanted.advance(batch.size_bytes)
            if wanted.span.overlaps(batch):
                sound &= _dump_batch(batch, path, wanted)
                if not sound and wanted.on_damage is OnDamage.STOP:
                    return False
    finally:
        file.close()
    return sound


def _dump_batch(batch: RecordBatch, path: str, wanted: TopicDump) -> bool:
    """Print a batch, with its records if they are wanted; returns whether its records are sound."""
    includes = wanted.span.includes
    try:
        if not wanted.as_json:
            echo_raw(batch_line(batch))
            shown = plain_pair if wanted.decoder is None else wanted.decoder.pair
            lines = record_lines(batch, where=path, wanted=includes, shown=shown) if wanted.show_records else iter(())
        else:
            objects = _record_objects(batch, path, wanted) if wanted.show_records else iter([_batch_object(batch)])
            lines = (json.dumps({"file": path, **each}) for each in objects)
        # A batch of some kilobytes may have millions of records: none is kept.
        show = echo if wanted.as_json else echo_raw
        for line in lines:
            show(line)
    except DecodeError as bad:
        damage = Damage(
            where=path, what=bad.what, expected="whole records", position=batch.position, offset=batch.base_offset
        )
        stops(damage, wanted.on_damage)
        return _report(damage, wanted)
    return True


def _batch_object(batch: RecordBatch) -> dict[str, object]:
    return {
        "position": batch.position,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.record_count,
        "size_in_bytes": batch.size_bytes,
        "partition_leader_epoch": batch.epoch,
        "crc": batch.crc,
        "compression": batch.codec,
        "timestamp_type": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
        "max_timestamp": batch.max_timestamp,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
    }


def _record_objects(batch: RecordBatch, path: str, wanted: TopicDump) -> Iterator[dict[str, object]]:
    """The records of a batch. Bytes that are no text are under `key_hex`, `value_hex`."""
    for record in records(batch, where=path):
        if not wanted.span.includes(record):
            continue
        facts: dict[str, object] = {
            "position": batch.position,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "epoch": batch.epoch,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "sequence": sequence_of(batch, record),
        }
        marker = marker_of(batch, where=path) if batch.is_control else None
        if marker is None:
            yield facts | (_contents(record) if wanted.decoder is None else wanted.decoder.facts(record))
        else:
            kind = "ABORT" if marker.is_abort else "COMMIT"
            yield facts | {"marker": kind, "coordinator_epoch": marker.coordinator_epoch}


def _contents(record: Record) -> dict[str, object]:
    headers = [{"key": header.key} | _text("value", header.value) for header in record.headers]
    return _text("key", record.key) | _text("value", record.value) | {"headers": headers}


def _text(name: str, data: bytes | None) -> dict[str, object]:
    """Bytes as text, or under another name as hex digits."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": (data or b"").hex()}


def _report(damage: Damage, wanted: TopicDump, hint: str | None = None) -> bool:
    """Report damage; returns whether the file counts as sound, as does the end of a growing log."""
    if wanted.as_json:
        place = {"position": damage.position, "offset": damage.offset, "unfinished": damage.unfinished}
        echo(json.dumps({"file": damage.where, "damage": damage.what, "expected": damage.expected, **place}))
    echo(f"kraft: {'warning' if damage.unfinished else 'error'}: {damage}", err=True)
    if hint:
        echo(f"hint: {hint}", err=True)
    return damage.unfinished
