"""Encode and decode any declared message in any of its versions (Kafka: `MessageUtil`, `ObjectSerializationCache`)."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from metadata_log.errors import DecodeError, EncodeError, LimitExceeded, UnsupportedVersion
from metadata_log.serde import compiler, primitives
from metadata_log.serde.compiler import READ_FAILURES, WRITE_FAILURES, ReadFunction, WriteFunction
from metadata_log.serde.fields import Kind, Message, MessageType, Schema, schema_of
from metadata_log.serde.reading import Malformed, OverBudget
from metadata_log.serde.shape import ShapeReader, ShapeWriter

REPEATED: Final = frozenset({"FetchRequest", "FetchResponse"})
"""The messages that repeat with other numbers and records: between a leader and its followers, for every commit."""


UNCOUNTED_BYTES: Final = 16 * 1024
"""The size up to which a peer's body is read without counting: such a body costs at most ten milliseconds."""
EXPLAINED_VALUES: Final = 2000
"""The most values of a peer's message that the slow, explaining reader reads."""
INTERPRETED_USES: Final = 4
"""So often a small message of a kind is read and written by `primitives`, before code for it is compiled: this takes as
long as twenty small messages, and most kinds of a start come a few times."""
INTERPRETED_BYTES: Final = 1024
"""The most bytes of such a message that is read."""
INTERPRETED_PARTS: Final = 256
"""The most parts of such a message that is written."""
Result = TypeVar("Result")

_read: Final[dict[tuple[type[Message], int], int]] = {}
_written: Final[dict[tuple[type[Message], int], int]] = {}
"""How often each kind was read or written without compiled code."""
_readers: Final[dict[type[Message], dict[int, ReadFunction[Any]]]] = {}
_writers: Final[dict[type[Message], dict[int, WriteFunction[Any]]]] = {}
"""Functions by class and version, compiled when a kind has come a few times."""


def compiled_reader(cls: type[MessageType], version: int) -> ReadFunction[MessageType] | None:
    """The compiled function by which `decode` reads; None if the kind has not come often enough."""
    return _readers.get(cls, {}).get(version)


class _TooLong(Exception):
    """A message with more parts than are written without compiled code."""


class _BriefWriter(primitives.Writer):
    """Gives up a message with many parts."""

    def length(self, size: int, *, compact: bool, wide: bool) -> None:
        if len(self.parts) > INTERPRETED_PARTS:
            raise _TooLong
        super().length(size, compact=compact, wide=wide)

    def fixed(self, kind: Kind, value: object) -> None:
        if len(self.parts) > INTERPRETED_PARTS:
            raise _TooLong
        super().fixed(kind, value)


def _is_rare(uses: dict[tuple[type[Message], int], int], schema: Schema, cls: type[Message], version: int) -> bool:
    """Whether this use of a kind comes too early to compile code for it; counts the use."""
    if schema.name in REPEATED:
        return False
    found = uses.get((cls, version), 0)
    uses[cls, version] = found + 1
    return found < INTERPRETED_USES


def _reader(cls: type[MessageType], version: int, size: int, where: str | None) -> ReadFunction[MessageType]:
    """The reader of a message of this size, of a kind for which nothing is compiled."""
    schema = _schema_with(cls, version, where)
    if size > INTERPRETED_BYTES or not _is_rare(_read, schema, cls, version):
        return _compile_reader(schema, cls, version)

    def interpreted(data: bytes, position: int) -> MessageType:
        reader = primitives.Reader(data, position)
        try:
            message = primitives.read_struct(reader, cls, version, flexible=version in schema.flexible)
        except DecodeError:
            raise Malformed from None
        if reader.remaining:
            raise Malformed
        return message

    return interpreted


def _compile_reader(schema: Schema, cls: type[MessageType], version: int) -> ReadFunction[MessageType]:
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


def _writer(cls: type[Message], version: int) -> WriteFunction[Any]:
    """The writer of a message of a kind for which nothing is compiled."""
    schema = schema_of(cls)
    if version not in schema.versions:
        raise EncodeError(f"{schema.name} has no version {version}; versions {schema.versions} are known")
    if not _is_rare(_written, schema, cls, version):
        return _compile_writer(schema, cls, version)

    def interpreted(message: Message, head: bytes) -> bytes:
        writer = _BriefWriter()
        try:
            primitives.write_struct(writer, message, version, flexible=version in schema.flexible)
        except _TooLong:
            return _compile_writer(schema, cls, version)(message, head)
        except EncodeError:
            raise Malformed from None
        return b"".join((head, *writer.parts))

    return interpreted


def _compile_writer(schema: Schema, cls: type[Message], version: int) -> WriteFunction[Any]:
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
    """Decode the whole of `data` from `position` on as one message.

    Raises `UnsupportedVersion` for a version that `cls` does not have, and `DecodeError` with position and field for
    any other error, trailing bytes included. `where` names the file or peer in the error.
    """
    if type(data) is not bytes:
        data = bytes(data)
    read: ReadFunction[MessageType]
    try:
        read = _readers[cls][version]
    except KeyError:
        read = _reader(cls, version, len(data) - position, where)
    try:
        return read(data, position)
    except READ_FAILURES:
        message, end = _read_slowly(cls, version, data, position, where)
    if end != len(data):
        raise _trailing(cls, version, len(data) - end, end, where)
    return message


def decode_from(
    cls: type[MessageType],
    version: int,
    data: bytes | bytearray | memoryview,
    position: int = 0,
    where: str | None = None,
) -> tuple[MessageType, int]:
    """Decode one message that begins at `position`; returns it and the position after it. Raises as `decode` does."""
    if type(data) is not bytes:
        data = bytes(data)
    read = compiler.reader_from(cls, version, version in _schema_with(cls, version, where).flexible)
    try:
        return read(data, position)
    except READ_FAILURES:
        return _read_slowly(cls, version, data, position, where)


def decode_in_steps(
    cls: type[MessageType], version: int, data: bytes, position: int, budget: int, where: str | None = None
) -> Generator[None, None, tuple[MessageType, int]]:
    """Decode a peer's message in steps of a few milliseconds, which end with the message and the position after it.

    `budget` is the most values of the message (see `bounded`). Raises `LimitExceeded` before memory is spent on more
    values, `UnsupportedVersion` and `DecodeError` as `decode` does. For damage after the first thousands of values the
    error does not name its position.
    """
    read = compiler.bounded_reader(cls, version, version in _schema_with(cls, version, where).flexible)
    try:
        return (yield from read(data, position, budget))
    except OverBudget:
        what = f"{cls.__name__} version {version} has more than {budget} values"
        raise LimitExceeded(what, where=where, position=position) from None
    except READ_FAILURES:
        raise _explanation(cls, version, data, position, where) from None


def decode_within(
    cls: type[MessageType],
    version: int,
    data: bytes,
    position: int,
    budget: int,
    where: str | None = None,
    whole: bool = True,
) -> MessageType:
    """Decode a peer's message at once; raises as `decode_in_steps`.

    A body of at most `UNCOUNTED_BYTES` is decoded as by `decode`, without counting. Bytes after the message are an
    error, or ignored without `whole`.
    """
    if len(data) - position <= UNCOUNTED_BYTES:
        try:
            read: ReadFunction[MessageType] = _readers[cls][version]
        except KeyError:
            read = _reader(cls, version, len(data) - position, where)
        try:
            return read(data, position)
        except READ_FAILURES:
            pass  # The bounded reader accepts invalid UTF-8, and explains any other error.
    message, end = finished(decode_in_steps(cls, version, data, position, budget, where))
    if whole and end != len(data):
        raise _trailing(cls, version, len(data) - end, end, where)
    return message


def decode_from_within(
    cls: type[MessageType], version: int, data: bytes, position: int, budget: int, where: str | None = None
) -> tuple[MessageType, int]:
    """As `decode_within`, for one message that begins at `position`; returns it and the position after it."""
    if len(data) - position <= UNCOUNTED_BYTES:
        read = compiler.reader_from(cls, version, version in _schema_with(cls, version, where).flexible)
        try:
            return read(data, position)
        except READ_FAILURES:
            pass
    return finished(decode_in_steps(cls, version, data, position, budget, where))


def finished(steps: Generator[object, None, Result]) -> Result:
    """Run all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: Result = done.value
            return result


def _explanation(cls: type[Message], version: int, data: bytes, position: int, where: str | None) -> DecodeError:
    """The error in a peer's bytes, if the error is among the first values."""
    reader = primitives.Reader(data, position, budget=EXPLAINED_VALUES)
    error: DecodeError
    try:
        primitives.read_struct(reader, cls, version, flexible=version in schema_of(cls).flexible)
    except LimitExceeded as stopped:
        error = DecodeError("the message does not follow its schema, behind this position", position=stopped.position)
    except DecodeError as wrong:
        error = wrong
    else:
        raise AssertionError(f"{cls.__name__} version {version}: compiled code refuses {data[position:]!r}")
    what = f"{cls.__name__} version {version}: {error.what}"
    return DecodeError(what, where=where, position=error.position, field=error.field)


def _trailing(cls: type[Message], version: int, size: int, end: int, where: str | None) -> DecodeError:
    return DecodeError(f"trailing bytes behind {cls.__name__} version {version}: {size}", where=where, position=end)


def _read_slowly(
    cls: type[MessageType], version: int, data: bytes, position: int, where: str | None
) -> tuple[MessageType, int]:
    """Decode again, slowly, to explain an error. Only invalid UTF-8 is accepted, as in Kafka."""
    reader = primitives.Reader(data, position)
    try:
        message = primitives.read_struct(reader, cls, version, flexible=version in schema_of(cls).flexible)
    except DecodeError as found:
        what = f"{cls.__name__} version {version}: {found.what}"
        raise DecodeError(what, where=where, position=found.position, field=found.field) from None
    return message, reader.position


def encode(message: Message, version: int, head: bytes = b"") -> bytes:
    """Encode `message` in `version`, after `head` if given.

    A message of `REPEATED` with the shape of earlier ones takes a sixth of the time. Raises `EncodeError` if the class
    has no such version, a field that is not ignorable is set but not in that version, a value is out of range, or null
    is not allowed.
    """
    try:
        return _writers[type(message)][version](message, head)
    except KeyError:
        write = _writer(type(message), version)
    except WRITE_FAILURES as cause:
        _explain_write(message, version, cause)
    try:
        return write(message, head)
    except WRITE_FAILURES as cause:
        _explain_write(message, version, cause)


def encode_in_pieces(message: Message, version: int) -> list[bytes]:
    """Encode `message` as consecutive pieces. The bytes that the message holds are pieces, and are not copied.

    Raises `EncodeError` as `encode`.
    """
    cls = type(message)
    schema = schema_of(cls)
    if version not in schema.versions:
        raise EncodeError(f"{schema.name} has no version {version}; versions {schema.versions} are known")
    try:
        return compiler.piece_writer(cls, version, version in schema.flexible)(message)
    except WRITE_FAILURES as cause:
        _explain_write(message, version, cause)


def encode_in_steps(message: Message, version: int, first: int, following: int) -> Generator[None, None, list[bytes]]:
    """Encode `message` in steps, which end with the consecutive pieces of the result.

    The first step writes `first` elements of arrays, each other step `following` elements. Raises `EncodeError` as
    `encode`. The message must not change before the last step.
    """
    cls = type(message)
    schema = schema_of(cls)
    if version not in schema.versions:
        raise EncodeError(f"{schema.name} has no version {version}; versions {schema.versions} are known")
    try:
        return (yield from compiler.stepped_writer(cls, version, version in schema.flexible)(message, first, following))
    except WRITE_FAILURES as cause:
        _explain_write(message, version, cause)


def _explain_write(message: Message, version: int, cause: Exception) -> NoReturn:
    """Encode again, slowly, to explain an error."""
    cls = type(message)
    try:
        primitives.write_struct(primitives.Writer(), message, version, flexible=version in schema_of(cls).flexible)
    except EncodeError as found:
        raise EncodeError(f"{cls.__name__} version {version}: {found.what}", field=found.field) from None
    raise AssertionError(f"{cls.__name__} version {version}: compiled code refuses {message!r}") from cause
