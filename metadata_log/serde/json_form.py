"""Kafka's own JSON form of messages and records (Kafka: the generated `*JsonConverter.java`).

Field names are in lower camel case, `uuid` is unpadded URL-safe base64, `bytes` is base64. The form has only the fields
of that version, without tagged fields at their default.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from metadata_log.errors import DecodeError, EncodeError
from metadata_log.serde.fields import ArrayOf, Field, FieldType, Kind, Message, MessageType, fields_at, schema_of
from metadata_log.types import Uuid

Json = object
"""The types of the module `json`: dict, list, str, int, float, bool or None."""

_RANGES: Final = {
    Kind.INT8: (-(1 << 7), (1 << 7) - 1),
    Kind.INT16: (-(1 << 15), (1 << 15) - 1),
    Kind.UINT16: (0, (1 << 16) - 1),
    Kind.INT32: (-(1 << 31), (1 << 31) - 1),
    Kind.INT64: (-(1 << 63), (1 << 63) - 1),
}


def to_json(message: Message, version: int) -> dict[str, Json]:
    """The JSON object of `message` in `version`; raises `EncodeError` where `encode` would for a field or version."""
    schema = schema_of(type(message))
    if version not in schema.versions:
        raise EncodeError(f"{schema.name} has no version {version}; versions {schema.versions} are known")
    return _object_of(message, version)


def _object_of(message: Message, version: int) -> dict[str, Json]:
    at = fields_at(type(message), version)
    for field in at.absent:
        if not field.ignorable and not field.is_default(getattr(message, field.name)):
            raise EncodeError(f"version {version} of {type(message).__name__} cannot carry it", field=field.json_name)
    result: dict[str, Json] = {}
    for field in at.in_order:
        value = getattr(message, field.name)
        if field.tag is not None and field.is_default(value):
            continue
        if value is None and version not in field.nullable:
            raise EncodeError(f"null is not allowed in version {version}", field=field.json_name)
        result[field.json_name] = value_to_json(field.type, value, version)
    return result


def value_to_json(kind: FieldType, value: object, version: int) -> Json:
    """The JSON form of one value of a field."""
    match value:
        case None:
            return None
        case Message():
            return _object_of(value, version)
        case list() | tuple():
            assert isinstance(kind, ArrayOf), kind
            return [value_to_json(kind.element, element, version) for element in value]
        case Uuid():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case _:
            return value


def from_json(cls: type[MessageType], version: int, value: Json, *, where: str | None = None) -> MessageType:
    """The message of a JSON object.

    Raises `DecodeError` for an unknown version, a missing field that is not tagged, a value of the wrong type or range.
    Unknown names are ignored, as in Kafka.
    """
    schema = schema_of(cls)
    try:
        if version not in schema.versions:
            raise DecodeError(f"{schema.name} has no version {version}; versions {schema.versions} are known")
        return _message_from(cls, version, value, schema.name)
    except DecodeError as bad:
        bad.where = where
        raise


def _message_from(cls: type[MessageType], version: int, value: Json, path: str) -> MessageType:
    if not isinstance(value, Mapping):
        raise DecodeError(f"expected a JSON object, got {value!r}", field=path)
    values: dict[str, Any] = {}
    for field in fields_at(cls, version).in_order:
        place = f"{path}.{field.json_name}"
        if field.json_name in value:
            values[field.name] = _field_from(field, version, value[field.json_name], place)
        elif field.tag is None:
            raise DecodeError(f"the field is missing, and mandatory in version {version}", field=place)
    return cls(**values)


def _field_from(field: Field, version: int, value: Json, path: str) -> object:
    if value is None:
        if version not in field.nullable:
            raise DecodeError(f"null is not allowed in version {version}", field=path)
        return None
    return _value_from(field.type, version, value, path)


def _value_from(kind: FieldType, version: int, value: Json, path: str) -> object:
    match kind, value:
        case Kind.BOOL, bool():
            return value
        case ((Kind.INT8 | Kind.INT16 | Kind.UINT16 | Kind.INT32 | Kind.INT64), int()) if not isinstance(value, bool):
            lowest, highest = _RANGES[kind]
            if not lowest <= value <= highest:
                raise DecodeError(f"{value} is out of range for {kind.value}", field=path)
            return value
        case Kind.FLOAT64, (float() | int()) if not isinstance(value, bool):
            return float(value)
        case Kind.STRING, str():
            return value
        case Kind.UUID, str():
            return _uuid_from(value, path)
        case ((Kind.BYTES | Kind.RECORDS), str()):
            return _bytes_from(value, path)
        case ArrayOf(), list():
            values = [
                _value_from(kind.element, version, element, f"{path}[{index}]") for index, element in enumerate(value)
            ]
            return tuple(values) if kind.as_tuple else values
        case type(), _:
            return _message_from(kind, version, value, path)
        case _:
            wanted = kind.value if isinstance(kind, Kind) else "array"
            raise DecodeError(f"expected a value of type {wanted}, got {value!r}", field=path)


def _uuid_from(text: str, path: str) -> Uuid:
    try:
        return Uuid.parse(text)
    except ValueError as bad:
        raise DecodeError(str(bad), field=path) from bad


def _bytes_from(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as bad:
        raise DecodeError(f"not base64: {text!r}", field=path) from bad
