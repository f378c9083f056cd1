"""Encode and decode any declared message in any of its versions (Kafka: `MessageUtil`, `ObjectSerializationCache`)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NoReturn

from metadata_log.errors import DecodeError, EncodeError, UnsupportedVersion
from metadata_log.serde import compiler, primitives
from metadata_log.serde.compiler import READ_FAILURES, WRITE_FAILURES, ReadFunction, WriteFunction
from metadata_log.serde.fields import Message, MessageType, Schema, schema_of
from metadata_log.serde.shape import ShapeReader, ShapeWriter

REPEATED: Final = frozenset({"FetchRequest", "FetchResponse"})
"""What passes over and over with other numbers and records: between a leader and its followers, for every commit."""


_readers: Final[dict[type[Message], dict[int, ReadFunction[Any]]]] = {}
_writers: Final[dict[type[Message], dict[int, WriteFunction[Any]]]] = {}
"""Functions by class and version, compiled when first asked for."""


def _compile_reader(cls: type[MessageType], version: int, where: str | None) -> ReadFunction[MessageType]:
    schema = _schema_with(cls, version, where)
    read = compiler.reader(cls, version, version in schema.flexible)
    versions = _readers.setdefault(cls, {})
    if schema.name in REPEATED:
        read = ShapeReader(cls, version, read, partial(versions.__setitem__, version)).read
    versions[version] = read
    return read


def _schema_with(cls: type[Message], version: int, where: str | None) -> Schema:
    schema = schema_of(cls)
    if version not in schema.versions:
        what = f"{schema.name} has no version {version}; versions {schema.versions} are known"
        raise UnsupportedVersion(what, where=where)
    return schema


def _compile_writer(cls: type[Message], version: int) -> WriteFunction[Any]:
    schema = schema_of(cls)
    if version not in schema.versions:
        raise EncodeError(f"{schema.name} has no version {version}; versions {schema.versions} are known")
    write = compiler.writer(cls, version, version in schema.flexible)
    versions = _writers.setdefault(cls, {})
    if schema.name in REPEATED:
        write = ShapeWriter(cls, version, write, partial(versions.__setitem__, version)).write
    versions[version] = write
    return write


def decode(
    cls: type[MessageType],
    version: int,
    data: bytes | bytearray | memoryview,
    position: int = 0,
    where: str | None = None,
) -> MessageType:
    """Read the whole of `data` from `position` on as one message.

    Raises `UnsupportedVersion` for a version that `cls` does not have, and `DecodeError` with position and field for
    everything else that is wrong, trailing bytes included. `where` names the file or peer in that error.
    """
    if type(data) is not bytes:
        data = bytes(data)
    read: ReadFunction[MessageType]
    try:
        read = _readers[cls][version]
    except KeyError:
        read = _compile_reader(cls, version, where)
    try:
        return read(data, position)
    except READ_FAILURES:
        message, end = _read_slowly(cls, version, data, position, where)
    if end != len(data):
        what = f"trailing bytes behind {cls.__name__} version {version}: {len(data) - end}"
        raise DecodeError(what, where=where, position=end)
    return message


def decode_from(
    cls: type[MessageType],
    version: int,
    data: bytes | bytearray | memoryview,
    position: int = 0,
    where: str | None = None,
) -> tuple[MessageType, int]:
    """Read one message that begins at `position`; returns it and the position behind it. Raises as `decode` does."""
    if type(data) is not bytes:
        data = bytes(data)
    read = compiler.reader_from(cls, version, version in _schema_with(cls, version, where).flexible)
    try:
        return read(data, position)
    except READ_FAILURES:
        return _read_slowly(cls, version, data, position, where)


def _read_slowly(
    cls: type[MessageType], version: int, data: bytes, position: int, where: str | None
) -> tuple[MessageType, int]:
    """Read again, slowly, to say what is wrong. Only text that is not UTF-8 is read after all, as Kafka reads it."""
    reader = primitives.Reader(data, position)
    try:
        message = primitives.read_struct(reader, cls, version, flexible=version in schema_of(cls).flexible)
    except DecodeError as found:
        what = f"{cls.__name__} version {version}: {found.what}"
        raise DecodeError(what, where=where, position=found.position, field=found.field) from None
    return message, reader.position


def encode(message: Message, version: int, head: bytes = b"") -> bytes:
    """Write `message` in `version`, behind `head` if there is one.

    A message of `REPEATED` that has the shape of those before it takes a sixth of the time. Raises `EncodeError` if the
    class has no such version, a field that is not ignorable is set but not in that version, a value is out of range, or
    null is not allowed.
    """
    try:
        return _writers[type(message)][version](message, head)
    except KeyError:
        write = _compile_writer(type(message), version)
    except WRITE_FAILURES as cause:
        _explain_write(message, version, cause)
    try:
        return write(message, head)
    except WRITE_FAILURES as cause:
        _explain_write(message, version, cause)


def _explain_write(message: Message, version: int, cause: Exception) -> NoReturn:
    """Write again, slowly, to say what is wrong."""
    cls = type(message)
    try:
        primitives.write_struct(primitives.Writer(), message, version, flexible=version in schema_of(cls).flexible)
    except EncodeError as found:
        raise EncodeError(f"{cls.__name__} version {version}: {found.what}", field=found.field) from None
    raise AssertionError(f"{cls.__name__} version {version}: compiled code refuses {message!r}") from cause
