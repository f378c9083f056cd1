"""Records in the topics of the coordinators: a pair of key and value each (Kafka: `CoordinatorRecordSerde`).

The key is the record's type (int16) and body, the value its version (int16) and body; no value is a tombstone. Kafka's
schemas have fields whose default of null means *empty*: `classic_member_metadata`, `assignment_epochs` and
`last_assignment_configs`. An empty one is left out, and None is written. A member of the consumer protocol therefore
has `classic_member_metadata=None`: without it, a JVM takes the member for a classic one without a session time-out.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import ModuleType
from typing import Final

from msgspec import Struct

from metadata_log.errors import DecodeError, EncodeError
from metadata_log.records import consumer_offsets, share_group_state, transaction_state
from metadata_log.serde.codec import decode, encode
from metadata_log.serde.fields import Message, Role, schema_of


class RecordKind(Struct, frozen=True):
    """A type of record: the classes of key and value, and the version that Kafka writes."""

    name: str
    key: type[Message]
    value: type[Message]
    written: int
    type: int


class CoordinatorRecord(Struct, frozen=True, gc=False):
    """A decoded record; without `value` a tombstone. `version` is that of the value's encoding."""

    kind: RecordKind
    key: Message
    value: Message | None
    version: int | None


_NOT_THE_NEWEST: Final = {"GroupMetadata": 3}
"""Kafka 4.3 does not write the newest version of these yet."""
RETENTION_VERSION: Final = 1
"""The version of `OffsetCommitValue` for a commit with a retention time, which no other version carries."""
TRANSACTION_VERSION_0: Final = 0
"""The version of `TransactionLogValue` while `transaction.version` is 0."""
_INT16: Final = struct.Struct(">h")


def _kinds(module: ModuleType) -> dict[int, RecordKind]:
    """The table of a topic, from the declarations of its keys and values."""
    classes = [cls for cls in vars(module).values() if isinstance(cls, type) and hasattr(cls, "__schema__")]
    values = {schema_of(cls).api_key: cls for cls in classes if schema_of(cls).role is Role.COORDINATOR_VALUE}
    kinds: dict[int, RecordKind] = {}
    for cls in classes:
        schema = schema_of(cls)
        if schema.role is Role.COORDINATOR_KEY and schema.api_key is not None:
            name, value = schema.name.removesuffix("Key"), values[schema.api_key]
            written = _NOT_THE_NEWEST.get(name, schema_of(value).versions.highest)
            kinds[schema.api_key] = RecordKind(name, cls, value, written, schema.api_key)
    return kinds


CONSUMER_OFFSETS: Final[Mapping[int, RecordKind]] = _kinds(consumer_offsets)
"""The records of the group coordinator by type."""
TRANSACTION_STATE: Final[Mapping[int, RecordKind]] = _kinds(transaction_state)
"""The records of the transaction coordinator by type."""
SHARE_GROUP_STATE: Final[Mapping[int, RecordKind]] = _kinds(share_group_state)
"""The records of the share coordinator by type."""
TOPICS: Final[Mapping[str, Mapping[int, RecordKind]]] = {
    "__consumer_offsets": CONSUMER_OFFSETS,
    "__transaction_state": TRANSACTION_STATE,
    "__share_group_state": SHARE_GROUP_STATE,
}
"""The topics of coordinators by name."""
_HEADS: Final = {kind.key: _INT16.pack(kind.type) for kinds in TOPICS.values() for kind in kinds.values()}
_WRITTEN: Final = {kind.value: kind.written for kinds in TOPICS.values() for kind in kinds.values()}


def encode_key(key: Message) -> bytes:
    """The key of a record; raises `EncodeError`."""
    head = _HEADS.get(type(key))
    if head is None:
        raise EncodeError(f"{type(key).__name__} is not the key of a coordinator's record")
    return encode(key, 0, head)


def encode_value(value: Message, version: int | None = None) -> bytes:
    """The value of a record in `version`, or in the version that Kafka writes; raises `EncodeError`."""
    written = _WRITTEN.get(type(value))
    if written is None:
        raise EncodeError(f"{type(value).__name__} is not the value of a coordinator's record")
    if version is None:
        version = written
    return encode(value, version, _INT16.pack(version))


def decode_pair(
    kinds: Mapping[int, RecordKind], key: bytes, value: bytes | None, *, where: str | None = None
) -> CoordinatorRecord | None:
    """The record of a key and a value, by the table of its topic; None for a type that the table does not have.

    Raises `UnsupportedVersion` for an unknown version of the value, and `DecodeError` for damaged bytes.
    """
    kind = kinds.get(_int16(key, "key", where))
    if kind is None:
        return None
    read_key: Message = decode(kind.key, 0, key, _INT16.size, where)
    if value is None:
        return CoordinatorRecord(kind, read_key, None, None)
    version = _int16(value, "value", where)
    return CoordinatorRecord(kind, read_key, decode(kind.value, version, value, _INT16.size, where), version)


def _int16(data: bytes, what: str, where: str | None) -> int:
    if len(data) < _INT16.size:
        raise DecodeError(f"the {what} of a coordinator's record has {len(data)} bytes", where=where, position=0)
    number: int = _INT16.unpack_from(data)[0]
    return number
