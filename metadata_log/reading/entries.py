"""Decodes the records of a batch. A record that cannot be decoded is reported as damage."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from metadata_log.errors import CorruptBatch, DecodeError, UnsupportedVersion
from metadata_log.reading.annotate import value_position
from metadata_log.reading.damage import Damage, DamagedFile, OnDamage, stops
from metadata_log.records.batch import RecordBatch
from metadata_log.records.frame import decode_control, read_record
from metadata_log.records.record import records
from metadata_log.serde.fields import Message


class Entry(Struct, frozen=True, gc=False):
    """One record of the metadata log, decoded as far as this software knows its type.

    Args:
        offset: The offset in the log.
        timestamp: The time in ms since 1970.
        epoch: The partition leader epoch.
        is_control: Whether the record is a control record.
        type: The number of the metadata or control record type.
        version: The version of the record.
        name: The name of the record type, or its number.
        record: The record; None for an unknown type.
        key: The key; None for a metadata record.
        value: The encoded value.
    """

    offset: int
    timestamp: int
    epoch: int
    is_control: bool
    type: int
    version: int
    name: str
    record: Message | None
    key: bytes | None
    value: bytes


def read_entries(
    batch: RecordBatch, where: str, *, on_damage: OnDamage = OnDamage.SKIP, pass_newer: bool = False
) -> Iterator[Entry | Damage]:
    """Decode the records of a batch, control records included (Kafka: `MetadataRecordSerde`, `ControlRecordUtils`).

    Args:
        batch: The batch.
        where: The path of its file, for damage.
        on_damage: The reaction to a record that cannot be decoded.
        pass_newer: Whether a record of a later release is an entry in strict mode too.

    Returns:
        Records and damage.

    Raises:
        DamagedFile: A record is damaged or unknown, and the mode is strict.
    """
    contents = records(batch, where=where)
    epoch, is_control = batch.epoch, batch.is_control
    refuses = on_damage is OnDamage.STRICT and not pass_newer
    index = -1
    try:
        for index, record in enumerate(contents):
            key, value = record.key, record.value or b""
            try:
                kind, version, name, message = _read_control(key, value) if is_control else read_record(value)
                if message is None and refuses:
                    unknown = UnsupportedVersion(f"{name} in version {version} is not known", position=0)
                    damage = _record_damage(batch, index, record.offset, unknown, where)
                    raise DamagedFile(damage, None if is_control else (kind, version))
            except DecodeError as bad:
                damage = _record_damage(batch, index, record.offset, bad, where)
                last = stops(damage, on_damage)
                yield damage
                if last:
                    return
                continue
            yield Entry(record.offset, record.timestamp, epoch, is_control, kind, version, name, message, key, value)
    except (CorruptBatch, UnsupportedVersion) as bad:
        damage = Damage(
            where=where,
            what=bad.what,
            expected=f"{batch.record_count} records that fill the batch",
            position=bad.position,
            offset=batch.base_offset,
        )
        stops(damage, on_damage)
        yield damage


def _read_control(key: bytes | None, value: bytes) -> tuple[int, int, str, Message | None]:
    kind, message = decode_control(key or b"", value)
    version = int.from_bytes(value[:2], "big", signed=True)
    return kind, version, type(message).__name__ if message else f"control record type {kind}", message


def _record_damage(batch: RecordBatch, index: int, offset: int, bad: DecodeError, where: str) -> Damage:
    """The damage of a record: the position in the file, and the cause."""
    inside = value_position(batch, index)
    position = batch.position + (0 if inside is None else inside + (bad.position or 0))
    field = f" at {bad.field}" if bad.field else ""
    return Damage(
        where=where,
        what=f"the record cannot be decoded: {bad.what}{field}",
        expected="a control record" if batch.is_control else "a metadata record with frame version 1",
        position=position,
        offset=offset,
    )
