"""The records of a batch as changes, with a fast path for PartitionChangeRecords (Kafka: `MetadataRecordSerde`).

Nearly all records of a busy cluster are PartitionChangeRecords, and except for their partition the same few repeat. So
the bytes of the change are decoded once and shared as a `Template`. The bytes of the partition are kept as they are:
20 bytes, number and topic id, are the key of the partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from metadata_log.errors import DecodeError
from metadata_log.records.batch import HEADER_BYTES, RecordBatch
from metadata_log.records.frame import read_record
from metadata_log.records.metadata import NoOpRecord, PartitionChangeRecord
from metadata_log.serde import Message
from metadata_log.serde.primitives import varint
from metadata_log.types import Uuid

_MEMO_SIZE: Final = 65_536
_FRAMING: Final = b"\x01\x05\x02"
"""Frame version 1, PartitionChangeRecord, version 2: the framing of every Kafka since 4.0."""
_FRAMING_BYTES: Final = 3
_KEY_BYTES: Final = 20
_NO_KEY: Final = b""
_HEADS_SIZE: Final = 16_384


class Template:
    """The change of a PartitionChangeRecord without its partition. Templates compare by identity: they are keys."""

    __slots__ = ("record",)

    def __init__(self, record: PartitionChangeRecord) -> None:
        self.record = record


Change = tuple[int, Message | Template, bytes]
"""The offset of a record, its change, and for a `Template` the key of the changed partition."""


class Changes:
    """The changes of a batch in order, without NoOpRecords. `others` are the indexes of changes without a template."""

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
        if type(change[1]) is not Template:
            self.others.append(len(self.all))
        self.all.append(change)

    def runs(self) -> Iterator[tuple[int, int]]:
        """The bounds of each run of templates, and in between each other change by itself."""
        begin = 0
        for index in self.others:
            if begin < index:
                yield begin, index
            yield index, index + 1
            begin = index + 1
        if begin < len(self.all):
            yield begin, len(self.all)


def partition_key(topic_id: Uuid, number: int) -> bytes:
    """The key of a partition, as in its records."""
    return number.to_bytes(4, "big", signed=True) + topic_id


class Templates:
    """The templates so far, by their bytes; cleared at a limit."""

    def __init__(self) -> None:
        self._known: dict[bytes | tuple[bytes, bytes], Template] = {}
        self._heads: list[bytes] = []

    def of_record(self, record: PartitionChangeRecord, value: bytes) -> tuple[Template, bytes]:
        """Template and key of a record that was decoded from `value`."""
        key = partition_key(record.topic_id, record.partition_id)
        framing = value[:_FRAMING_BYTES]
        if framing[:2] != _FRAMING[:2] or framing[2] >= 0x80:
            return Template(record), key
        what = value[_FRAMING_BYTES + _KEY_BYTES :]
        identity = what if framing == _FRAMING else (framing, what)
        template = self._known.get(identity)
        if template is None:
            template = Template(record)
            self._remember(identity, template)
        return template, key

    def read(self, batch: RecordBatch) -> Changes | None:
        """The changes of a whole batch.

        None if the batch has anything unusual: compression, keys, headers, an unknown type, damage. Then the caller
        must read the records one by one.
        """
        if batch.is_compressed or batch.is_log_append_time:
            return None
        try:
            return self._read(batch)
        except (DecodeError, IndexError):
            return None

    def _read(self, batch: RecordBatch) -> Changes | None:
        data, count, base = batch.data, batch.record_count, batch.base_offset
        heads = self._heads_for(count)
        known = self._known
        found = Changes()
        append = found.all.append
        position = HEADER_BYTES
        for index in range(count):
            size = data[position]
            if size < 0x80:
                start = position + 1
            else:
                start = position + 2
                size = size & 0x7F | data[position + 1] << 7
            end = start + (size >> 1)
            head = heads[index]
            at = start + len(head)
            length = data[at]
            if length < 0x80:
                value_at = at + 1
            else:
                value_at = at + 2
                length = length & 0x7F | data[at + 1] << 7
            # The value fills the record except for one byte, the count of headers, which is 0.
            if data[start:at] != head or size & 1 or length != (end - value_at - 1) << 1 or data[end - 1]:
                return None
            if data[value_at : value_at + 3] == _FRAMING:
                what = data[value_at + 23 : end - 1]
                template = known.get(what) or self._template(what)
                append((base + index, template, data[value_at + 3 : value_at + 23]))
            else:
                value = data[value_at : end - 1]
                _, _, _, record = read_record(value)
                if record is None:
                    return None
                found.add(base + index, record, value, self)
            position = end
        return found if position == len(data) else None

    def _template(self, what: bytes) -> Template:
        _, _, _, record = read_record(_FRAMING + bytes(_KEY_BYTES) + what)
        if not isinstance(record, PartitionChangeRecord):
            raise DecodeError("this is no PartitionChangeRecord")
        template = Template(record)
        self._remember(what, template)
        return template

    def _remember(self, what: bytes | tuple[bytes, bytes], template: Template) -> None:
        if len(self._known) >= _MEMO_SIZE:
            self._known.clear()
        self._known[what] = template

    def _heads_for(self, count: int) -> list[bytes]:
        """Attributes, time and offset of each record behind the first, and a null key, in their usual form."""
        heads = self._heads
        if count > len(heads):
            heads = [b"\0\0" + varint(index) + b"\x01" for index in range(count)]
            if count <= _HEADS_SIZE:
                self._heads = heads
        return heads
