"""The envelope of a metadata record: frame version, type, version, body (Kafka: `MetadataRecordSerde`, KIP-631)."""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct

from metadata_log.errors import DecodeError, EncodeError, UnsupportedVersion
from metadata_log.records import control, metadata
from metadata_log.serde.codec import compiled_reader, decode, encode
from metadata_log.serde.compiler import READ_FAILURES, ReadFunction
from metadata_log.serde.fields import Message, Role, schema_of
from metadata_log.serde.primitives import Reader, unsigned_varint

FRAME_VERSION: Final = 1
_MAX_INT16: Final = 0x7FFF

RECORD_TYPES: Final[dict[int, type[Message]]] = {
    schema_of(cls).api_key or 0: cls
    for cls in vars(metadata).values()
    if isinstance(cls, type) and issubclass(cls, Message) and hasattr(cls, "__schema__")
}
"""The records of the metadata log by type id, in order of the ids."""


class FramedRecord(Struct, frozen=True, gc=False):
    """A record in its encoded frame.

    `record` is None for an unknown type, and for a version with an unreadable body. As in Kafka, a newer version is
    read as far as its fields are known. `value` is the encoded value, which a copy must write unchanged.
    """

    type: int
    version: int
    record: Message | None
    value: bytes

    @property
    def name(self) -> str:
        """The record's name, or its number if the type is unknown."""
        known = RECORD_TYPES.get(self.type)
        return known.__name__ if known else f"record type {self.type}"


@lru_cache(maxsize=256)
def framing(record_type: int, version: int) -> bytes:
    """The bytes before the body of a record."""
    return unsigned_varint(FRAME_VERSION) + unsigned_varint(record_type) + unsigned_varint(version)


def encode_record(record: Message, version: int) -> bytes:
    """The value of a metadata record in the log; raises `EncodeError`."""
    schema = schema_of(type(record))
    if schema.role is not Role.RECORD or schema.api_key is None:
        raise EncodeError(f"{schema.name} is not a record of the metadata log")
    return encode(record, version, framing(schema.api_key, version))


def peek_type(value: bytes, *, where: str | None = None) -> tuple[int, int]:
    """Type and version of a record, without reading its body.

    Raises `UnsupportedVersion` for an undefined frame version, `DecodeError` for a value that is too short.
    """
    if len(value) > 2 and value[0] == FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        return value[1], value[2]
    record_type, version, _ = read_framing(value, where)
    return record_type, version


def read_framing(value: bytes, where: str | None) -> tuple[int, int, int]:
    """Type, version, and the position of the body."""
    reader = Reader(value)
    try:
        frame_version = _field(reader, "frame version")
        if frame_version != FRAME_VERSION:
            raise UnsupportedVersion(
                f"record frame version {frame_version}; only {FRAME_VERSION} is known",
                position=0,
                field="frame version",
            )
        return _field(reader, "type"), _field(reader, "version"), reader.position
    except DecodeError as bad:
        bad.where = where
        raise


def _field(reader: Reader, name: str) -> int:
    start, reader.path = reader.position, name
    number = reader.unsigned_varint()
    if number > _MAX_INT16:
        reader.fail(f"{number} is too large", start)
    return number


def decode_record(value: bytes, *, where: str | None = None, strict: bool = False) -> FramedRecord:
    """Decode a record's value.

    Raises `DecodeError` for a damaged body of a known version, `UnsupportedVersion` for an unknown frame version. A
    newer type or version is no error: see `FramedRecord`. With `strict`, a record that would end a Kafka controller is
    an error: an unknown type, or a newer version that is not completely readable as the newest known one.
    """
    if len(value) > 2 and value[0] == FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        record_type, version, position = value[1], value[2], 3
    else:
        record_type, version, position = read_framing(value, where)
    cls = RECORD_TYPES.get(record_type)
    if cls is None:
        if strict:
            raise UnsupportedVersion(f"unknown record type {record_type}", where=where, position=1, field="type")
        return FramedRecord(record_type, version, None, value)
    highest = cls.__schema__.versions.highest
    if version > highest and not strict:
        return FramedRecord(record_type, version, _best_known(cls, highest, value, position), value)
    version_read = min(version, highest)
    record = decode(cls, version_read, value, position=position, where=where)
    return FramedRecord(record_type, version, record, value)


FRAMING_BYTES: Final = 3
"""Frame version, type and version, for types and versions below 128."""

_ReadParts = tuple[int, int, str, ReadFunction[Message]]
_frames: Final[dict[bytes, _ReadParts]] = {}
"""The parsed framing of known records, by its bytes; filled when code is compiled for them."""


def read_record(value: bytes, *, where: str | None = None) -> tuple[int, int, str, Message | None]:
    """Type, version, name and record, as by `decode_record`, for readers of whole logs (0.7 µs less)."""
    known = _frames.get(value[:FRAMING_BYTES])
    if known is not None:
        record_type, version, name, read = known
        try:
            return record_type, version, name, read(value, FRAMING_BYTES)
        except READ_FAILURES:
            pass
    framed = decode_record(value, where=where)
    if known is None and framed.record is not None and peek_type(value) == (value[1], value[2]):
        compiled = compiled_reader(type(framed.record), framed.version)
        if compiled is not None:
            _frames[value[:FRAMING_BYTES]] = framed.type, framed.version, framed.name, compiled
    return framed.type, framed.version, framed.name, framed.record


def _best_known(cls: type[Message], highest: int, value: bytes, position: int) -> Message | None:
    """A record of a newer version, decoded as the newest known one, if that consumes all bytes."""
    try:
        return decode(cls, highest, value, position=position)
    except DecodeError:
        return None


class ControlRecordType(IntEnum):
    """The type of a control record (Kafka: `ControlRecordType`)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


CONTROL_RECORDS: Final[dict[int, type[Message]]] = {
    ControlRecordType.LEADER_CHANGE: control.LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: control.SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: control.SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: control.KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: control.VotersRecord,
}
"""The control records of the metadata log. ABORT and COMMIT belong to transactions of other topics."""

CONTROL_RECORD_VERSION: Final = 0
"""The version of every control record, which is also the first two bytes of its body."""

_CONTROL_KEY: Final = struct.Struct(">hh")


def encode_control_key(record_type: ControlRecordType) -> bytes:
    """The key of a control record: key version 0, type."""
    return _CONTROL_KEY.pack(0, record_type)


def encode_control(record: Message) -> tuple[int, bytes, bytes]:
    """Type, key and value of a control record; raises `EncodeError` for any other record."""
    for record_type, cls in CONTROL_RECORDS.items():
        if type(record) is cls:
            return (
                record_type,
                encode_control_key(ControlRecordType(record_type)),
                encode(record, CONTROL_RECORD_VERSION),
            )
    raise EncodeError(f"{type(record).__name__} is not a control record")


def decode_control(key: bytes, value: bytes, *, where: str | None = None) -> tuple[int, Message | None]:
    """Type and body of a control record; the body is None for a type outside of the metadata log.

    Raises `DecodeError` for a damaged key or value. The body is read in its own version, or in the newest known one.
    """
    if len(key) < _CONTROL_KEY.size:
        raise DecodeError(f"the key of a control record has 4 bytes, not {len(key)}", where=where)
    key_version, record_type = _CONTROL_KEY.unpack_from(key)
    if key_version < 0:
        raise UnsupportedVersion(f"control record key version {key_version}", where=where)
    cls = CONTROL_RECORDS.get(record_type)
    if cls is None:
        return record_type, None
    if len(value) < 2:
        raise DecodeError(
            f"the body of a control record begins with its version, and has {len(value)} bytes", where=where
        )
    version = int.from_bytes(value[:2], "big", signed=True)
    return record_type, decode(cls, min(version, cls.__schema__.versions.highest), value, where=where)


class VersionedRecord(Struct, frozen=True, gc=False):
    """A record, the version to write it in, and its value in the log if its maker has it at hand (Kafka:
    `ApiMessageAndVersion`).
    """

    record: Message
    version: int = 0
    made: bytes = b""

    @property
    def value(self) -> bytes:
        """The record's value in the log; raises `EncodeError`."""
        return self.made or encode_record(self.record, self.version)
