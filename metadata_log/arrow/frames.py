"""What a record is before its body is read: place, type and version, key and value (Kafka: `MetadataRecordSerde`).

Here is the readable way, a record at a time; `frames_numpy` has the vectorised one, and comes here with every batch
that it does not read. Both give the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final

import pyarrow as pa

from metadata_log.annotate import value_position
from metadata_log.batch import HEADER_BYTES, Record, RecordBatch, records
from metadata_log.errors import CorruptBatch, DecodeError, UnsupportedVersion
from metadata_log.reader import Damage
from metadata_log.records.frame import peek_type

FRAME_SCHEMA: Final = pa.schema(
    [
        pa.field("position", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("epoch", pa.int32()),
        pa.field("timestamp", pa.int64()),
        pa.field("type_id", pa.int16()),
        pa.field("version", pa.int16()),
        pa.field("is_control", pa.bool_()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("damage", pa.string()),
    ]
)
"""The columns of frames; timestamps are milliseconds as they stand in the log."""
_NAMES: Final = tuple(FRAME_SCHEMA.names)

_NULL_KEY: Final = 1
_FRAME: Final = 1
"""The frame version of metadata records."""


def frames(batches: Sequence[RecordBatch], where: str) -> pa.RecordBatch:
    """The frames of some batches, as `FRAME_SCHEMA` has them; what cannot be read is a row with `damage`."""
    rows = Rows()
    for batch in batches:
        rows.add(batch, where)
    return rows.take()


def damage_frame(damage: Damage) -> pa.RecordBatch:
    """The row for damage between batches."""
    rows = Rows()
    rows.add_damage(damage)
    return rows.take()


class Rows:
    """The columns of frames under construction."""

    def __init__(self) -> None:
        self._columns: dict[str, list[object]] = {name: [] for name in _NAMES}

    def __len__(self) -> int:
        return len(self._columns["position"])

    def take(self) -> pa.RecordBatch:
        """What was added; it is no more here afterwards."""
        arrays = [pa.array(self._columns[field.name], field.type) for field in FRAME_SCHEMA]
        self._columns = {name: [] for name in _NAMES}
        return pa.RecordBatch.from_arrays(arrays, schema=FRAME_SCHEMA)

    def add_damage(self, damage: Damage) -> None:
        """A row that says what is wrong and where; nothing else of it is known."""
        row = {"position": damage.position, "offset": damage.offset, "damage": damage.what}
        for name, column in self._columns.items():
            column.append(row.get(name))

    def add(self, batch: RecordBatch, where: str) -> None:
        """The rows of a batch: at once if it is as a controller writes them, else record by record."""
        if batch.attributes or not self._add_plain(batch):
            self._add_slowly(batch, where)

    def _add_plain(self, batch: RecordBatch) -> bool:
        """The rows of an uncompressed batch of data whose records have no time, key or header of their own."""
        data, at, start = batch.data, HEADER_BYTES, batch.position
        positions, types, versions, values = [], [], [], []
        try:
            for expected in range(batch.record_count):
                positions.append(start + at)
                size = data[at]
                if size < 0x80:
                    at += 1
                else:
                    high = data[at + 1]
                    if high > 0x7F:
                        return False
                    size += (high - 1) << 7
                    at += 2
                end = at + (size >> 1)
                delta = data[at + 2]
                if delta > 0x7F:
                    high = data[at + 3]
                    if high > 0x7F:
                        return False
                    delta += (high - 1) << 7
                    at += 1
                # Attributes, and a difference of 0 in time; then the offset, no key, and the value's length.
                if data[at + 1 - (delta > 0x7F)] or delta != expected << 1 or data[at + 3] != _NULL_KEY or size & 1:
                    return False
                at += 4
                length = data[at]
                if length < 0x80:
                    at += 1
                else:
                    high = data[at + 1]
                    if high > 0x7F:
                        return False
                    length += (high - 1) << 7
                    at += 2
                value = data[at : at + (length >> 1)]
                at += (length >> 1) + 1
                if length & 1 or at != end or data[at - 1] or value[0] != _FRAME:
                    return False
                kind, version = value[1], value[2]
                if kind > 0x7F or version > 0x7F:
                    kind, version = peek_type(value)
                types.append(kind)
                versions.append(version)
                values.append(value)
        except (IndexError, DecodeError):
            return False
        if at != len(data):
            return False
        count = len(values)
        columns = self._columns
        columns["position"] += positions
        columns["offset"] += range(batch.base_offset, batch.base_offset + count)
        columns["epoch"] += repeat(batch.epoch, count)
        columns["timestamp"] += repeat(batch.base_timestamp, count)
        columns["type_id"] += types
        columns["version"] += versions
        columns["is_control"] += repeat(False, count)
        columns["key"] += repeat(None, count)
        columns["value"] += values
        columns["damage"] += repeat(None, count)
        return True

    def _add_slowly(self, batch: RecordBatch, where: str) -> None:
        starts = _record_starts(batch)
        try:
            for index, record in enumerate(records(batch, where=where)):
                self._add_record(batch, index, record, next(starts))
        except (CorruptBatch, UnsupportedVersion) as bad:
            self.add_damage(
                Damage(where=where, what=bad.what, expected="", position=bad.position, offset=batch.base_offset)
            )

    def _add_record(self, batch: RecordBatch, index: int, record: Record, position: int) -> None:
        value = record.value or b""
        kind = version = damage = None
        try:
            if batch.is_control:
                kind, version = _control_type(record.key or b"", value)
            else:
                kind, version = peek_type(value)
        except DecodeError as bad:
            field = f" at {bad.field}" if bad.field else ""
            damage = f"the record cannot be decoded: {bad.what}{field}"
            inside = value_position(batch, index)
            position = batch.position + (0 if inside is None else inside + (bad.position or 0))
        row = (
            position,
            record.offset,
            batch.epoch,
            record.timestamp,
            kind,
            version,
            batch.is_control,
            record.key,
            value,
            damage,
        )
        for column, cell in zip(self._columns.values(), row, strict=True):
            column.append(cell)


def _control_type(key: bytes, value: bytes) -> tuple[int, int]:
    if len(key) < 4:
        raise DecodeError(f"the key of a control record has 4 bytes, not {len(key)}")
    key_version, kind = (int.from_bytes(key[at : at + 2], "big", signed=True) for at in (0, 2))
    if key_version < 0:
        raise UnsupportedVersion(f"control record key version {key_version}")
    return kind, int.from_bytes(value[:2], "big", signed=True)


def _record_starts(batch: RecordBatch) -> Iterator[int]:
    """Where each record begins in the file; those of a compressed batch all begin where it does."""
    if batch.is_compressed:
        yield from repeat(batch.position)
    data, at = batch.data, HEADER_BYTES
    while True:
        yield batch.position + at
        size = shift = 0
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += size >> 1
