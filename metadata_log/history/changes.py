"""The records of a batch as changes, with a fast path for the records of partitions (Kafka: `MetadataRecordSerde`).

Nearly all records of a busy cluster are PartitionChangeRecords, and most others are PartitionRecords. Except for their
partition the same few repeat. So the bytes after the partition are decoded once and shared, as a `Template` or a
`Creation`. The bytes of the partition are kept as they are: 20 bytes, number and topic id, are the partition's key.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from metadata_log.errors import DecodeError
from metadata_log.records.batch import COMPRESSION_MASK, HEADER_BYTES, LOG_APPEND_TIME, RecordBatch
from metadata_log.records.frame import read_record
from metadata_log.records.metadata import NoOpRecord, PartitionChangeRecord, PartitionRecord
from metadata_log.records.offset_deltas import FAR_COUNT, FAR_DELTAS, NEAR_COUNT, NEAR_DELTAS, NotPlain, short_number
from metadata_log.serde import Message
from metadata_log.types import Uuid

_MEMO_SIZE: Final = 65_536
_FRAMING: Final = b"\x01\x05\x02"
"""Frame version 1, PartitionChangeRecord, version 2: the framing of every Kafka since 4.0."""
_CREATIONS: Final = frozenset({b"\x01\x03\x00", b"\x01\x03\x01", b"\x01\x03\x02"})
"""The framing of a PartitionRecord of each version: every one begins with the partition."""
_FRAMING_BYTES: Final = 3
_KEY_BYTES: Final = 20
_BEHIND_KEY: Final = _FRAMING_BYTES + _KEY_BYTES
_NO_KEY: Final = b""
_QUIET: Final = bytes.fromhex("14 00 00 00 01 08 01 14 00 00 00")
"""The one NoOpRecord of a batch of its own, which an active controller writes every 500 ms."""
_UNUSUAL: Final = COMPRESSION_MASK | LOG_APPEND_TIME
_NO_PARTITION: Final = bytes(_KEY_BYTES)


class Template:
    """The change of a PartitionChangeRecord without its partition. Templates compare by identity: they are keys."""

    __slots__ = ("record",)

    def __init__(self, record: PartitionChangeRecord) -> None:
        self.record = record


class Creation:
    """A PartitionRecord without its partition. Creations compare by identity: they are keys too."""

    __slots__ = ("record",)

    def __init__(self, record: PartitionRecord) -> None:
        self.record = record


Keyed = Template | Creation
"""A change with the key of its partition."""

Change = tuple[int, Message | Keyed, bytes]
"""The offset of a record, its change, and for a `Keyed` the key of the partition."""


class Changes:
    """The changes of a batch in order, without NoOpRecords. `others` are the indexes of changes without a key."""

    __slots__ = ("all", "has_noop", "others")

    def __init__(self) -> None:
        self.all: list[Change] = []
        self.others: list[int] = []
        self.has_noop = False

    def add(self, offset: int, record: Message, value: bytes, templates: Templates) -> None:
        """Add a record that was decoded from `value`."""
        if type(record) is NoOpRecord:
            self.has_noop = True
        elif isinstance(record, PartitionChangeRecord):
            self.all.append((offset, *templates.of_record(record, value)))
        else:
            self.others.append(len(self.all))
            self.all.append((offset, record, _NO_KEY))

    def put(self, change: Change) -> None:
        """Add a change of another batch."""
        if not isinstance(change[1], Keyed):
            self.others.append(len(self.all))
        self.all.append(change)

    def runs(self) -> Iterator[tuple[int, int]]:
        """The bounds of each run of changes with keys, and in between each other change by itself."""
        begin = 0
        for index in self.others:
            if begin < index:
                yield begin, index
            yield index, index + 1
            begin = index + 1
        if begin < len(self.all):
            yield begin, len(self.all)

    def to_save(self) -> Changes:
        """The same changes without creations: a saved pass knows templates and whole records."""
        changes = Changes()
        changes.has_noop = self.has_noop
        for offset, record, key in self.all:
            whole = isinstance(record, Creation)
            changes.put((offset, whole_record(record, key), _NO_KEY) if whole else (offset, record, key))
        return changes


def partition_key(topic_id: Uuid, number: int) -> bytes:
    """The key of a partition, as in its records."""
    return number.to_bytes(4, "big", signed=True) + topic_id


def number_of(key: bytes) -> int:
    """The number of the partition with this key."""
    return int.from_bytes(key[:4], "big", signed=True)


def whole_record(record: Message | Keyed, key: bytes) -> Message:
    """The record of a change: that of a template or a creation with its partition in it."""
    if isinstance(record, Keyed):
        return replace(record.record, partition_id=number_of(key), topic_id=Uuid(key[4:]))
    return record


# -------------------------------------------------------------------------------------------------- records as bytes

_Unpack = Callable[[bytes, int], tuple[Any, ...]]
_Layouts = tuple[_Unpack, _Unpack, _Unpack]
"""How a record up to its partition is read: with one byte each for its size and the length of its value, with two bytes
for the size, with two bytes for both."""
_NEAR: Final[_Layouts] = (
    struct.Struct(">BHBBB3s20s").unpack_from,
    struct.Struct(">HHBBB3s20s").unpack_from,
    struct.Struct(">HHBBH3s20s").unpack_from,
)
"""Size, attributes and time, offset delta, key length, value length, framing, partition."""
_NEAR_VALUE: Final = 6
"""Where the value begins, with one byte for each number."""
_FAR: Final[_Layouts] = (
    struct.Struct(">BHHBB3s20s").unpack_from,
    struct.Struct(">HHHBB3s20s").unpack_from,
    struct.Struct(">HHHBH3s20s").unpack_from,
)
"""The same with an offset delta of two bytes."""
_FAR_VALUE: Final = 7
_NULL: Final = 1
"""The encoded length of a null key."""
_PADDING: Final = bytes(32)
"""Zeros after the records, so that a read before its bounds check stays in the data."""


class Templates:
    """The templates and creations so far, by their bytes; cleared at a limit."""

    def __init__(self) -> None:
        self._known: dict[bytes | tuple[bytes, bytes], Template] = {}
        self._created: dict[bytes, Creation] = {}

    def of_record(self, record: PartitionChangeRecord, value: bytes) -> tuple[Template, bytes]:
        """Template and key of a record that was decoded from `value`."""
        key = partition_key(record.topic_id, record.partition_id)
        framing = value[:_FRAMING_BYTES]
        if framing[:2] != _FRAMING[:2] or framing[2] >= 0x80:
            return Template(record), key
        what = value[_BEHIND_KEY:]
        identity = what if framing == _FRAMING else (framing, what)
        template = self._known.get(identity)
        if template is None:
            template = Template(record)
            _remember(self._known, identity, template)
        return template, key

    def read(self, batch: RecordBatch) -> Changes | None:
        """The changes of a whole batch.

        None if the batch has anything unusual: compression, keys, headers, an unknown type, damage. Then the caller
        must read the records one by one.
        """
        if batch.attributes & _UNUSUAL:
            return None
        if batch.data[HEADER_BYTES:] == _QUIET and batch.record_count == 1:
            return _NOTHING
        try:
            return self._read(batch)
        except (DecodeError, IndexError, struct.error, NotPlain):
            return None

    def _read(self, batch: RecordBatch) -> Changes | None:
        data, count, base = batch.data + _PADDING, batch.record_count, batch.base_offset
        changes = Changes()
        at = self._run(changes, data, HEADER_BYTES, base, 0, NEAR_DELTAS[:count], _NEAR, _NEAR_VALUE)
        if count > NEAR_COUNT:
            deltas = FAR_DELTAS[: count - NEAR_COUNT]
            at = self._run(changes, data, at, base, NEAR_COUNT, deltas, _FAR, _FAR_VALUE)
        for index in range(FAR_COUNT, count):
            at = self._one(changes, data, at, base, index)
        return changes if at == len(batch.data) else None

    def _run(
        self,
        found: Changes,
        data: bytes,
        at: int,
        base: int,
        first: int,
        deltas: Sequence[int],
        layouts: _Layouts,
        front: int,
    ) -> int:
        """Read a record for each of the encoded offset deltas; returns the position after the last one.

        Every record of a history passes here, so one call reads all numbers in front of the partition.
        """
        short, middle, long = layouts
        append, known, created = found.all.append, self._known, self._created
        for index, expected in enumerate(deltas, first):
            if data[at] < 0x80:
                size, zero, delta, key, length, framing, partition = short(data, at)
                value_at, end = at + front, at + (size >> 1)
            else:
                size, zero, delta, key, length, framing, partition = middle(data, at)
                value_at = at + front + 1
                if length >= 0x80:
                    size, zero, delta, key, length, framing, partition = long(data, at)
                    length, value_at = length >> 8 & 0x7F | (length & 0xFF) << 7, value_at + 1
                # A number of three bytes becomes one that fits nothing.
                size = size >> 8 & 0x7F | (size & 0xFF) << 7
                end = min(at + 1 + (size >> 1), len(data) - 1)
            if delta != expected or zero or key != _NULL or size & 1 or length != (end - value_at) << 1 or data[end]:
                at = self._one(found, data, at, base, index)
                continue
            if framing == _FRAMING:
                what = data[value_at + _BEHIND_KEY : end]
                append((base + index, known.get(what) or self._template(what), partition))
            elif framing in _CREATIONS:
                what = framing + data[value_at + _BEHIND_KEY : end]
                append((base + index, created.get(what) or self._creation(what), partition))
            else:
                self._add(found, data[value_at:end], base + index)
            at = end + 1
        return at

    def _one(self, found: Changes, data: bytes, at: int, base: int, index: int) -> int:
        """Read any record without key, headers and own time; returns the position after the record."""
        size, at = short_number(data, at)
        end = at + (size >> 1) - 1
        delta, key_at = short_number(data, at + 2)
        length, value_at = short_number(data, key_at + 1)
        usual = not (data[at] or data[at + 1] or data[end]) and data[key_at] == _NULL and delta == index << 1
        if not usual or size & 1 or length != (end - value_at) << 1:
            raise NotPlain
        self._add(found, data[value_at:end], base + index)
        return end + 1

    def _add(self, found: Changes, value: bytes, offset: int) -> None:
        _, _, _, record = read_record(value)
        if record is None:
            raise NotPlain
        found.add(offset, record, value, self)

    def _template(self, what: bytes) -> Template:
        _, _, _, record = read_record(_FRAMING + _NO_PARTITION + what)
        if not isinstance(record, PartitionChangeRecord):
            raise DecodeError("this is no PartitionChangeRecord")
        template = Template(record)
        _remember(self._known, what, template)
        return template

    def _creation(self, what: bytes) -> Creation:
        _, _, _, record = read_record(what[:_FRAMING_BYTES] + _NO_PARTITION + what[_FRAMING_BYTES:])
        if not isinstance(record, PartitionRecord):
            raise DecodeError("this is no PartitionRecord")
        creation = Creation(record)
        _remember(self._created, what, creation)
        return creation


_NOTHING: Final = Changes()
"""The changes of a quiet batch; nothing is added to them."""
_NOTHING.has_noop = True


def _remember(known: dict[Any, Any], identity: Any, made: Keyed) -> None:
    if len(known) >= _MEMO_SIZE:
        known.clear()
    known[identity] = made
