"""Kafka's serialization of records and messages (Kafka: `Message`, `MessageUtil`, the generated codecs)."""

from metadata_log.serde.codec import decode, decode_from, encode
from metadata_log.serde.fields import Message, Role, Schema, Versions, schema_of
from metadata_log.serde.json_form import from_json, to_json

__all__ = [
    "Message",
    "Role",
    "Schema",
    "Versions",
    "decode",
    "decode_from",
    "encode",
    "from_json",
    "schema_of",
    "to_json",
]
