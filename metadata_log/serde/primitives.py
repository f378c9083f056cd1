"""The readable reader and writer: interprets declarations field by field (Kafka: `ByteBufferAccessor`, `ByteUtils`).

This module is the reference for `compiler`, and explains every failure: its cause, its byte and its field.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NoReturn

from metadata_log.errors import DecodeError, EncodeError, LimitExceeded
from metadata_log.serde.fields import (
    ArrayOf,
    Field,
    FieldType,
    Kind,
    Message,
    MessageType,
    Shape,
    UnknownTags,
    fields_at,
)
from metadata_log.types import Uuid

FORMATS: Final = {
    Kind.BOOL: "?",
    Kind.INT8: "b",
    Kind.INT16: "h",
    Kind.UINT16: "H",
    Kind.INT32: "i",
    Kind.INT64: "q",
    Kind.FLOAT64: "d",
    Kind.UUID: "16s",
}
"""The fixed-width types as format characters of the module `struct`."""
MAX_STRING_BYTES: Final = 0x7FFF
"""Kafka's limit of strings in both directions, even where the length field allows more."""

MAX_ELEMENTS: Final = 1_000_000
"""Kafka's limit of an array, from 4.4 on."""
MAX_TAGGED_FIELDS: Final = 10_000
"""Kafka's limit of the tagged fields of one structure, from 4.4 on."""


class Reader:
    """Reads primitive values from bytes in order; every failure is a `DecodeError` with position and field."""

    def __init__(self, data: bytes, position: int = 0, budget: int | None = None) -> None:
        self.data = data
        self.position = position
        self.path = ""
        self.left = budget
        """How many more values may be read; None for no limit."""

    def count_value(self) -> None:
        """Count a value before it is read; raises `LimitExceeded` above the limit."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise LimitExceeded("more values than expected", position=self.position, field=self.path or None)

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return len(self.data) - self.position

    def fail(self, what: str, position: int | None = None) -> NoReturn:
        """Raise a `DecodeError` for the current field."""
        raise DecodeError(what, position=self.position if position is None else position, field=self.path or None)

    def take(self, size: int, what: str) -> bytes:
        """The next `size` bytes."""
        if size > self.remaining:
            self.fail(f"the bytes end inside {what} of {size} bytes: {self.remaining} are left")
        start = self.position
        self.position += size
        return self.data[start : self.position]

    def fixed(self, kind: Kind) -> Any:
        """A value of a fixed-width type."""
        layout = ">" + FORMATS[kind]
        [value] = struct.unpack(
            layout, self.take(struct.calcsize(layout), f"{'an' if kind.value[0] == 'i' else 'a'} {kind.value}")
        )
        return Uuid(value) if kind is Kind.UUID else value

    def unsigned_varint(self) -> int:
        """An unsigned varint of at most five bytes and 32 bits; bits beyond are dropped, as in `ByteUtils`."""
        return self._varint(max_bytes=5) & 0xFFFFFFFF

    def varint(self) -> int:
        """A zigzag varint, 32 bits."""
        raw = self.unsigned_varint()
        return (raw >> 1) ^ -(raw & 1)

    def varlong(self) -> int:
        """A zigzag varint of at most ten bytes, 64 bits."""
        raw = self._varint(max_bytes=10) & 0xFFFFFFFFFFFFFFFF
        return (raw >> 1) ^ -(raw & 1)

    def _varint(self, max_bytes: int) -> int:
        value, start = 0, self.position
        for index in range(max_bytes):
            if not self.remaining:
                self.fail("the bytes end inside a varint")
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        self.fail(f"a varint of more than {max_bytes} bytes", start)

    def is_null_structure(self, *, tagged: bool) -> bool:
        """Read the mark before a nullable structure."""
        return self.unsigned_varint() == 0 if tagged else bool(self.fixed(Kind.INT8) < 0)

    def length(self, *, compact: bool, wide: bool) -> int:
        """The length of a string (not `wide`), bytes or array; negative means null."""
        if compact:
            raw = self.unsigned_varint()
            return raw - 1 if raw <= 0x80000000 else raw - 1 - (1 << 32)
        return int(self.fixed(Kind.INT32 if wide else Kind.INT16))

    def blob(self, kind: Kind, *, compact: bool) -> bytes | None:
        """Bytes or records with their length; None for null."""
        size = self.length(compact=compact, wide=True)
        return None if size < 0 else self.take(size, f"a {kind.value} field")


def read_struct(reader: Reader, cls: type[MessageType], version: int, *, flexible: bool) -> MessageType:
    """Read one structure at the reader's position."""
    at = fields_at(cls, version)
    values: dict[str, Any] = {}
    for field in at.plain:
        values[field.name] = _read_field(reader, field, version, flexible)
    if flexible:
        _read_tagged(reader, cls, at, version, values)
    return cls(**values)


def _read_field(reader: Reader, field: Field, version: int, flexible: bool) -> object:
    outer, start = reader.path, reader.position
    reader.path = f"{outer}.{field.json_name}".lstrip(".")
    value = _read_typed(reader, field.type, version, flexible=flexible, field=field)
    if value is None and version not in field.nullable:
        reader.fail("null is not allowed here", start)
    reader.path = outer
    return value


def _read_typed(reader: Reader, kind: FieldType, version: int, *, flexible: bool, field: Field | None) -> object:
    """A value of any type, or None for null. `field` is None for the elements of an array."""
    reader.count_value()
    compact = flexible and not (field is not None and field.never_compact)
    match kind:
        case Kind.STRING:
            size = reader.length(compact=compact, wide=False)
            if size > MAX_STRING_BYTES:
                reader.fail(f"a string of {size} bytes; the limit is {MAX_STRING_BYTES}")
            return None if size < 0 else reader.take(size, "a string").decode("utf-8", "replace")
        case Kind.BYTES | Kind.RECORDS:
            return reader.blob(kind, compact=compact)
        case Kind():
            return reader.fixed(kind)
        case ArrayOf():
            return _read_array(reader, kind, version, flexible)
        case _:
            if field is not None and version in field.nullable:  # noqa: SIM102 - the second condition reads
                if reader.is_null_structure(tagged=field.tag is not None):
                    return None
            return read_struct(reader, kind, version, flexible=flexible)


def _read_array(reader: Reader, array: ArrayOf, version: int, flexible: bool) -> object:
    count = reader.length(compact=flexible, wide=True)
    if count < 0:
        return None
    if count > reader.remaining:
        reader.fail(f"an array of {count} elements, and {reader.remaining} bytes are left")
    if count > MAX_ELEMENTS:
        reader.fail(f"an array of {count} elements; the limit is {MAX_ELEMENTS}")
    outer = reader.path
    values: list[object] = []
    while len(values) < count:
        reader.path = f"{outer}[{len(values)}]"
        value = _read_typed(reader, array.element, version, flexible=flexible, field=None)
        if value is None:
            reader.fail("null is not allowed as an element")
        values.append(value)
    reader.path = outer
    return tuple(values) if array.as_tuple else values


def _read_tagged(reader: Reader, cls: type[Message], at: Shape, version: int, values: dict[str, Any]) -> None:
    known = {field.tag: field for field in at.tagged}
    misplaced = {field.tag for field in at.absent if field.tag is not None}
    unknown: list[tuple[int, bytes]] = []
    outer = reader.path
    reader.path = f"{outer} tagged fields".lstrip()
    count = reader.unsigned_varint()
    if count > 0x7FFFFFFF:
        reader.fail(f"{count - (1 << 32)} tagged fields, a negative number")
    if count > reader.remaining:
        reader.fail(f"{count} tagged fields, and {reader.remaining} bytes are left")
    if count > MAX_TAGGED_FIELDS:
        reader.fail(f"{count} tagged fields; the limit is {MAX_TAGGED_FIELDS}")
    for _ in range(count):
        start = reader.position
        reader.count_value()
        tag, size = reader.unsigned_varint(), reader.unsigned_varint()
        field = known.get(tag)
        if field is not None:
            # As in Kafka, the size of a known tagged field is not compared with its content.
            inside, reader.path = reader.path, outer
            values[field.name] = _read_field(reader, field, version, flexible=True)
            reader.path = inside
        elif tag in misplaced:
            reader.fail(f"tag {tag} of {cls.__name__} does not exist in version {version}", start)
        else:
            unknown.append((tag, reader.take(size, f"unknown tag {tag}")))
    reader.path = outer
    if unknown:
        values["unknown_tagged"] = tuple(unknown)


def unsigned_varint(value: int) -> bytes:
    """Encode 0 … 2^32 - 1 in one to five bytes, or more for larger values."""
    if value < 0:
        raise EncodeError(f"{value} is negative, and an unsigned varint is not")
    if 0x7F < value < 0x4000:  # most lengths that are not a single byte
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Encode a 32-bit integer as zigzag."""
    return unsigned_varint(((value << 1) ^ (value >> 31)) & 0xFFFFFFFF)


def varlong(value: int) -> bytes:
    """Encode a 64-bit integer as zigzag."""
    return unsigned_varint(((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF)


class Writer:
    """Collects encoded values; every failure is an `EncodeError` that names the field."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.path = ""

    def fail(self, what: str) -> NoReturn:
        """Raise an `EncodeError` for the current field."""
        raise EncodeError(what, field=self.path or None)

    def length(self, size: int, *, compact: bool, wide: bool) -> None:
        """The length of a string (not `wide`), bytes or array; -1 means null."""
        self.parts.append(unsigned_varint(size + 1) if compact else struct.pack(">i" if wide else ">h", size))

    def fixed(self, kind: Kind, value: object) -> None:
        """A value of a fixed-width type."""
        if kind is Kind.UUID and not (isinstance(value, bytes) and len(value) == 16):
            self.fail(f"{value!r} is not a uuid of 16 bytes")
        try:
            self.parts.append(struct.pack(">" + FORMATS[kind], value))
        except struct.error as bad:
            raise EncodeError(f"{value!r} is not a value of type {kind.value}: {bad}", field=self.path) from bad


def write_struct(writer: Writer, message: Message, version: int, *, flexible: bool) -> None:
    """Write one structure; raises `EncodeError` for a value that this version cannot carry."""
    at = fields_at(type(message), version)
    for field in at.absent:
        if not field.ignorable and not field.is_default(getattr(message, field.name)):
            raise EncodeError(
                f"{field.json_name} is set, and version {version} of {type(message).__name__} cannot carry it",
                field=f"{writer.path}.{field.json_name}".lstrip("."),
            )
    for field in at.plain:
        _write_field(writer, field, getattr(message, field.name), version, flexible)
    if flexible:
        writer.parts.append(_tagged(message, version, writer.path))
    elif message.unknown_tagged:
        writer.fail(f"{type(message).__name__} has unknown tagged fields, and version {version} has no place for them")


def _write_field(writer: Writer, field: Field, value: object, version: int, flexible: bool) -> None:
    outer = writer.path
    writer.path = f"{outer}.{field.json_name}".lstrip(".")
    if value is None and version not in field.nullable:
        writer.fail(f"null is not allowed in version {version}")
    _write_typed(writer, field.type, value, version, flexible=flexible, field=field)
    writer.path = outer


def _write_typed(
    writer: Writer, kind: FieldType, value: object, version: int, *, flexible: bool, field: Field | None
) -> None:
    compact = flexible and not (field is not None and field.never_compact)
    match kind:
        case Kind.STRING:
            _write_blob(writer, _utf8(writer, value), compact=compact, wide=False)
        case Kind.BYTES | Kind.RECORDS:
            if value is not None and not isinstance(value, bytes | bytearray | memoryview):
                writer.fail(f"{value!r} is not bytes")
            _write_blob(writer, None if value is None else bytes(value), compact=compact, wide=True)
        case Kind():
            writer.fixed(kind, value)
        case ArrayOf():
            _write_array(writer, kind, value, version, flexible)
        case _:
            if field is not None and version in field.nullable:
                null = -1 if field.tag is None else 0
                writer.fixed(Kind.INT8, null if value is None else 1)
                if value is None:
                    return
            if not isinstance(value, kind):
                writer.fail(f"{value!r} is not a {kind.__name__}")
            write_struct(writer, value, version, flexible=flexible)


def _utf8(writer: Writer, value: object) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        writer.fail(f"{value!r} is not a string")
    try:
        encoded = value.encode()
    except UnicodeEncodeError as bad:
        raise EncodeError(f"{value!r} cannot be written as UTF-8: {bad.reason}", field=writer.path) from bad
    if len(encoded) > MAX_STRING_BYTES:
        writer.fail(f"a string of {len(encoded)} bytes; the limit is {MAX_STRING_BYTES}")
    return encoded


def _write_blob(writer: Writer, value: bytes | None, *, compact: bool, wide: bool) -> None:
    writer.length(-1 if value is None else len(value), compact=compact, wide=wide)
    if value is not None:
        writer.parts.append(value)


def _write_array(writer: Writer, array: ArrayOf, value: object, version: int, flexible: bool) -> None:
    if value is None:
        writer.length(-1, compact=flexible, wide=True)
        return
    if not isinstance(value, list | tuple):
        writer.fail(f"{value!r} is not a list")
    writer.length(len(value), compact=flexible, wide=True)
    outer = writer.path
    for index, element in enumerate(value):
        writer.path = f"{outer}[{index}]"
        if element is None:
            writer.fail("null is not allowed as an element")
        _write_typed(writer, array.element, element, version, flexible=flexible, field=None)
    writer.path = outer


def tagged_part(message: Message, version: int) -> bytes:
    """The bytes after the plain fields of a structure in a flexible version."""
    return _tagged(message, version, "")


def _tagged(message: Message, version: int, path: str) -> bytes:
    at = fields_at(type(message), version)
    known: list[tuple[int, bytes]] = []
    for field in at.tagged:
        value = getattr(message, field.name)
        if not field.is_default(value):
            body = Writer()
            body.path = path
            _write_field(body, field, value, version, flexible=True)
            assert field.tag is not None, field
            known.append((field.tag, b"".join(body.parts)))
    defined = {field.tag for field in (*at.tagged, *at.absent) if field.tag is not None}
    return merge_tags(known, message.unknown_tagged, defined, path)


def merge_tags(known: list[tuple[int, bytes]], unknown: UnknownTags, defined: set[int], path: str) -> bytes:
    """The tagged part of a structure: known and unknown fields in order of their tags (`RawTaggedFieldWriter`)."""
    previous = -1
    for tag, _ in unknown:
        if tag in defined:
            raise EncodeError(
                f"tag {tag} is among the unknown tagged fields, and the declaration defines it", field=path or None
            )
        if tag <= previous:
            raise EncodeError(f"unknown tag {tag} comes after tag {previous}: tags must rise", field=path or None)
        previous = tag
    merged = sorted([*known, *unknown])
    parts = [unsigned_varint(len(merged))]
    for tag, body in merged:
        parts += (unsigned_varint(tag), unsigned_varint(len(body)), body)
    return b"".join(parts)
