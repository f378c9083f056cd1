"""Records of `__consumer_offsets`, `__transaction_state` and `__share_group_state` as Kafka's dump tool shows them
(Kafka: `DumpLogSegments.OffsetsMessageParser`, `TransactionLogMessageParser`, `ShareGroupStateMessageParser`), and
the decoder of each internal topic.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct

from kraft.cli.files import remote_lines
from metadata_log.errors import DecodeError
from metadata_log.records.consumer_offsets import GroupMetadataValue
from metadata_log.records.coordinator import TOPICS, CoordinatorRecord, RecordKind, decode_pair
from metadata_log.records.record import Record
from metadata_log.serde import Message, decode_from, schema_of, to_json
from metadata_log.types import REMOTE_TOPIC
from transport.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

Kinds = Mapping[int, RecordKind]
_CONSUMER: Final = "consumer"
"""The protocol type of groups whose members' bytes are known."""
_EMBEDDED: Final[dict[str, type[Message]]] = {
    "subscription": ConsumerProtocolSubscription,
    "assignment": ConsumerProtocolAssignment,
}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-f]{4}|.)")
_VERSION_BYTES: Final = 2


class Decoder(Struct, frozen=True):
    """The forms in which the records of a topic are shown: as key and value of a line, and as an object for JSON."""

    pair: Callable[[Record], tuple[str | None, str | None]]
    facts: Callable[[Record], dict[str, object]]
    """Raises `DecodeError`."""


def decoder_of(topic: str) -> Decoder | None:
    """The decoder of an internal topic; None for any other one."""
    if topic == REMOTE_TOPIC:
        return Decoder(remote_lines.shown_pair, remote_lines.record_object)
    kinds = TOPICS.get(topic)
    return None if kinds is None else Decoder(partial(shown_pair, kinds), partial(record_object, kinds))


def decoder_of_directory(directory: str) -> Decoder | None:
    """The decoder for a partition directory of an internal topic; None for any other name."""
    topic, _, partition = directory.rpartition("-")
    return decoder_of(topic) if partition.isdigit() else None


def shown_pair(kinds: Kinds, record: Record) -> tuple[str | None, str | None]:
    """Key and value of a record as text; a record that cannot be decoded has the reason as its key."""
    if record.key is None:
        return f"Error at offset {record.offset}, skipping. The record has no key.", None
    try:
        pair = decode_pair(kinds, record.key, record.value)
    except DecodeError as bad:
        return f"Error at offset {record.offset}, skipping. {bad}", None
    if pair is None:
        number = int.from_bytes(record.key[:_VERSION_BYTES], "big", signed=True)
        return f"Unknown record type {number} at offset {record.offset}, skipping.", None
    key = _jackson({"type": str(pair.kind.type), "data": to_json(pair.key, 0)})
    if pair.version is None:
        return key, "<DELETE>"
    return key, _jackson({"version": str(pair.version), "data": value_json(pair)})


def record_object(kinds: Kinds, record: Record) -> dict[str, object]:
    """Key and value of a record for JSON; raises `DecodeError`. A record of an unknown type has hex digits."""
    pair = decode_pair(kinds, record.key or b"", record.value)
    if pair is None:
        value = None if record.value is None else record.value.hex()
        return {"type": None, "key_hex": (record.key or b"").hex(), "value_hex": value}
    facts = {"type": pair.kind.type, "name": pair.kind.name, "key": to_json(pair.key, 0)}
    return facts | {"value_version": pair.version, "value": value_json(pair)}


def value_json(found: CoordinatorRecord) -> Any:
    """The value in Kafka's JSON form, with the bytes of classic consumers decoded; None for a tombstone."""
    if found.value is None or found.version is None:
        return None
    shown: dict[str, Any] = to_json(found.value, found.version)
    if isinstance(found.value, GroupMetadataValue) and found.value.protocol_type == _CONSUMER:
        for member in shown["members"]:
            for name, cls in _EMBEDDED.items():
                member[name] = _embedded(cls, base64.b64decode(member[name]), member[name])
    return shown


def _embedded(cls: type[Message], data: bytes, otherwise: str) -> Any:
    """Decode the bytes that a member wrote in the consumer protocol; for other bytes return `otherwise`."""
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        return otherwise
    version = min(version, schema_of(cls).versions.highest)
    try:
        message, _ = decode_from(cls, version, data, _VERSION_BYTES)
    except DecodeError:
        return otherwise
    return to_json(message, version)


def _jackson(value: object) -> str:
    """JSON text as Jackson writes it: no spaces, no escapes but for control characters, with upper-case digits."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPE.sub(lambda found: "\\u" + found[1][1:].upper() if len(found[1]) > 1 else found[0], text)
