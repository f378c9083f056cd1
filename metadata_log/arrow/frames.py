"""The frame of a record without its body: position, type and version, key and value (Kafka: `MetadataRecordSerde`).

Batches as controllers write them are *plain*: uncompressed data, and records without key, headers or own time. Plain
batches are read here one record at a time, or by `frames_numpy` all at once. Any other batch takes the slow path. All
paths give equal results.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from metadata_log.errors import CorruptBatch, DecodeError, UnsupportedVersion
from metadata_log.reading.annotate import value_position
from metadata_log.reading.damage import Damage
from metadata_log.records.batch import HEADER_BYTES, RecordBatch
from metadata_log.records.frame import FRAME_VERSION, peek_type
from metadata_log.records.offset_deltas import FAR_COUNT, FAR_DELTAS, NEAR_COUNT, NEAR_DELTAS, NotPlain, short_number
from metadata_log.records.record import Record, records

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
"""The columns of frames; timestamps are the milliseconds of the log."""
_INT64: Final = 1 << 63
_FAR_OFFSET: Final = _INT64 - (1 << 31)
"""A base offset from which on the offset of a record can exceed 64 bits."""
PADDING: Final = bytes(32)
"""Zeros after the data of plain batches, so that a read before its bounds check stays in the data."""

ReadPlain = Callable[[Sequence[RecordBatch], bytes], tuple[pa.RecordBatch | None, Collection[int]]]
"""A function from batches and their joined data to their frames; or to no frames and the batches that are not plain."""


def frames(batches: Sequence[RecordBatch], where: str) -> tuple[pa.RecordBatch, list[int]]:
    """The frames of some batches, in the columns of `FRAME_SCHEMA`, and the number of frames of each batch.

    Damage is a frame with `damage`.
    """
    return join_frames(batches, where, _read_plain)


def join_frames(
    batches: Sequence[RecordBatch], where: str, read_plain: ReadPlain, *, attributes: Collection[int] = (0,)
) -> tuple[pa.RecordBatch, list[int]]:
    """The frames of some batches, in order: plain ones together by `read_plain`, others by the slow path.

    `attributes` are those of batches that `read_plain` can read.
    """
    # The number of records is as false as its writer pleases, and a record has more than one byte.
    plain = [
        index
        for index, batch in enumerate(batches)
        if batch.attributes in attributes
        and 0 < batch.record_count < batch.size_bytes
        and batch.base_offset < _FAR_OFFSET
    ]
    frame = None
    while plain and frame is None:
        chosen = [batches[index] for index in plain]
        frame, others = read_plain(chosen, b"".join([*(batch.data for batch in chosen), PADDING]))
        plain = [index for place, index in enumerate(plain) if place not in others]
    counts = [batch.record_count for batch in batches]
    if frame is not None and len(plain) == len(batches):
        return frame, counts
    rows = _Rows()
    are_plain = [False] * len(batches)
    for index in plain:
        are_plain[index] = True
    for index, batch in enumerate(batches):
        if not are_plain[index]:
            before = len(rows)
            rows.add(batch, where)
            counts[index] = len(rows) - before
    return _in_order(frame, rows.take(), counts, are_plain), counts


def _in_order(
    plain: pa.RecordBatch | None, others: pa.RecordBatch, counts: Sequence[int], are_plain: Sequence[bool]
) -> pa.RecordBatch:
    """The frames of plain batches and those of the others, in the order of the batches."""
    if plain is None:
        return others
    parts: list[pa.RecordBatch] = []
    at = {True: 0, False: 0}
    for is_plain, run in groupby(zip(are_plain, counts, strict=True), key=itemgetter(0)):
        rows = sum(count for _, count in run)
        parts.append((plain if is_plain else others).slice(at[is_plain], rows))
        at[is_plain] += rows
    return pa.concat_batches(parts)


def damage_frame(damage: Damage) -> pa.RecordBatch:
    """The row for damage between batches."""
    rows = _Rows()
    rows.add_damage(damage)
    return rows.take()


# ---------------------------------------------------------------------------------------------------- plain batches

_NEAR: Final = struct.Struct(">BHBBBBBB").unpack_from
"""A record up to its version: size, attributes and time, offset, key length, value length, frame, type, version."""
_FAR: Final = struct.Struct(">BHHBBBBB").unpack_from
"""The same with an offset delta of two bytes."""
_NEAR_VALUE: Final = 6
"""The position of the value."""
_FAR_VALUE: Final = 7
_NULL: Final = 1
"""The encoded length of a null key."""
_LEAST_LENGTH: Final = 6
"""The encoded length of the shortest value: frame version, type and version."""


class _Plain:
    """The columns of plain records: positions, value boundaries in the joined data, types and versions."""

    def __init__(self) -> None:
        self.starts = array("q")
        self.edges = array("i")
        self.types = array("h")
        self.versions = array("h")

    def read(self, batch: RecordBatch, data: bytes, begin: int) -> None:
        """Read the batch that begins at `begin` of the data; raises `NotPlain`."""
        at, count = begin + HEADER_BYTES, batch.record_count
        shift = batch.position - begin
        at = self._run(data, at, shift, NEAR_DELTAS[:count], 0, _NEAR, _NEAR_VALUE)
        if count > NEAR_COUNT:
            at = self._run(data, at, shift, FAR_DELTAS[: count - NEAR_COUNT], NEAR_COUNT, _FAR, _FAR_VALUE)
        for index in range(FAR_COUNT, count):
            at = self._one(data, at, shift, index)
        if at != begin + batch.size_bytes:
            raise NotPlain

    def _run(
        self,
        data: bytes,
        at: int,
        shift: int,
        deltas: Sequence[int],
        first: int,
        unpack: Callable[[bytes, int], tuple[Any, ...]],
        value_at: int,
    ) -> int:
        """Read a record for each of the encoded offset deltas: in one call if its size takes one byte."""
        note_start, note_edge = self.starts.append, self.edges.append
        note_type, note_version = self.types.append, self.versions.append
        twice = 2 * value_at
        for index, expected in enumerate(deltas, first):
            size, zero, delta, key, length, frame, kind, version = unpack(data, at)
            end = at + (size >> 1)
            if (
                delta == expected
                and size - length == twice
                and zero == 0
                and key == _NULL
                and frame == FRAME_VERSION
                and (size | kind | version) < 0x80
                and length >= _LEAST_LENGTH
                and not size & 1
                and not data[end]
            ):
                note_start(at + shift)
                note_edge(at + value_at)
                note_edge(end)
                note_type(kind)
                note_version(version)
                at = end + 1
            else:
                at = self._one(data, at, shift, index)
        return at

    def _one(self, data: bytes, start: int, shift: int, index: int) -> int:
        """Read any plain record; returns the position after the record."""
        size, at = short_number(data, start)
        behind = at + (size >> 1)
        delta, key_at = short_number(data, at + 2)
        length, value = short_number(data, key_at + 1)
        end = value + (length >> 1)
        kind, version = data[value + 1 : value + 3]
        if (
            data[at]
            or data[at + 1]
            or delta != index << 1
            or data[key_at] != _NULL
            or (size | length) & 1
            or length < _LEAST_LENGTH
            or data[value] != FRAME_VERSION
            or (kind | version) > 0x7F
            or end + 1 != behind
            or data[end]
        ):
            raise NotPlain
        self.starts.append(start + shift)
        self.edges.extend((value, end))
        self.types.append(kind)
        self.versions.append(version)
        return behind


def _read_plain(batches: Sequence[RecordBatch], data: bytes) -> tuple[pa.RecordBatch | None, Collection[int]]:
    plain = _Plain()
    others = set()
    begin = 0
    for index, batch in enumerate(batches):
        try:
            plain.read(batch, data, begin)
        except (NotPlain, struct.error, IndexError, ValueError):
            others.add(index)
        begin += batch.size_bytes
    if others:
        return None, others
    offsets, epochs, timestamps = array("q"), array("i"), array("q")
    for batch in batches:
        count = batch.record_count
        offsets.extend(range(batch.base_offset, batch.base_offset + count))
        epochs.extend(array("i", [batch.epoch]) * count)
        timestamps.extend(array("q", [batch.base_timestamp]) * count)
    columns = (plain.starts, offsets, epochs, timestamps, plain.types, plain.versions)
    places = [
        pa.Array.from_buffers(field.type, len(column), [None, pa.py_buffer(column)])
        for field, column in zip(FRAME_SCHEMA, columns, strict=False)
    ]
    return plain_frame(places, slices(data, plain.edges, pa.binary())), ()


def plain_frame(
    places: Sequence[pa.Array], values: pa.Array, controls: tuple[pa.Array, pa.Array] | None = None
) -> pa.RecordBatch:
    """The frames of plain records from their first six columns and their values.

    `controls` says which records are control records, and has the keys of these.
    """
    rows = len(values)
    is_control, key = pa.repeat(pa.scalar(False), rows), pa.nulls(rows, pa.binary())
    if controls is not None:
        is_control, keys = controls
        key = pc.replace_with_mask(key, is_control, keys)
    rest = [is_control, key, values, pa.nulls(rows, pa.string())]
    return pa.RecordBatch.from_arrays([*places, *rest], schema=FRAME_SCHEMA)


def slices(data: bytes, edges: array[int] | memoryview, kind: pa.DataType) -> pa.Array:
    """The bytes or texts between each two of `edges`, which are non-decreasing 32-bit positions in `data`.

    An array that includes the gaps is made first, without a copy; then every other element is taken.
    """
    rows = len(edges) // 2
    if not rows:
        return pa.array([], kind)
    every = pa.Array.from_buffers(kind, 2 * rows - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    others = _EVEN if rows <= len(_EVEN) else array("q", range(0, 2 * rows, 2))
    return every.take(pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(others)]))


_EVEN: Final = array("q", range(0, 1 << 17, 2))
"""The first even numbers."""


# ---------------------------------------------------------------------------------------------------- other batches


class _Rows:
    """The columns of frames under construction."""

    def __init__(self) -> None:
        self._columns: dict[str, list[object]] = {name: [] for name in FRAME_SCHEMA.names}

    def __len__(self) -> int:
        return len(self._columns["position"])

    def take(self) -> pa.RecordBatch:
        """The rows that were added."""
        arrays = [pa.array(self._columns[field.name], field.type) for field in FRAME_SCHEMA]
        return pa.RecordBatch.from_arrays(arrays, schema=FRAME_SCHEMA)

    def add_damage(self, damage: Damage) -> None:
        """Add a row with damage and its place; every other column is null."""
        offset = None if damage.offset is None else _in_64_bits(damage.offset)
        row = {"position": damage.position, "offset": offset, "damage": damage.what}
        for name, column in self._columns.items():
            column.append(row.get(name))

    def add(self, batch: RecordBatch, where: str) -> None:
        """Add the rows of any batch, record by record."""
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


def _in_64_bits(number: int) -> int | None:
    """A number, or None if a damaged header made the number too large."""
    return number if -_INT64 <= number < _INT64 else None


def _control_type(key: bytes, value: bytes) -> tuple[int, int]:
    if len(key) < 4:
        raise DecodeError(f"the key of a control record has 4 bytes, not {len(key)}")
    key_version, kind = (int.from_bytes(key[at : at + 2], "big", signed=True) for at in (0, 2))
    if key_version < 0:
        raise UnsupportedVersion(f"control record key version {key_version}")
    return kind, int.from_bytes(value[:2], "big", signed=True)


def _record_starts(batch: RecordBatch) -> Iterator[int]:
    """The position of each record in the file; records of a compressed batch have the position of the batch."""
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
