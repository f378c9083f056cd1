"""The fields of records as Arrow columns (Kafka: the generated `*Record.java`), a record at a time.

`bodies_numpy` has the vectorised way, and comes here with every record that it does not read. Both give the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache

import pyarrow as pa

from metadata_log.arrow.schema import UNKNOWN_TAGS, arrow_type, columns_of
from metadata_log.errors import DecodeError, MetadataLogError
from metadata_log.records.frame import decode_control, read_record
from metadata_log.redact import MAY_HOLD_SECRETS, redact
from metadata_log.serde.fields import ArrayOf, Field, FieldType, Kind, Message, layout_of, schema_of
from metadata_log.serde.json_form import to_json
from metadata_log.serde.json_text import json_text

Convert = Callable[[object], object]


def decode(frame: pa.RecordBatch) -> tuple[list[Message | None], list[str | None]]:
    """The records of some frames, and what is wrong with each; a type or version that is not known gives no record."""
    records: list[Message | None] = []
    damages: list[str | None] = []
    columns = [frame[name].to_pylist() for name in ("is_control", "key", "value", "damage")]
    for is_control, key, value, known_damage in zip(*columns, strict=True):
        record, damage = None, known_damage
        if damage is None:
            try:
                record = decode_control(key or b"", value)[1] if is_control else read_record(value)[3]
            except DecodeError as bad:
                damage = f"the record cannot be decoded: {bad.what}" + (f" at {bad.field}" if bad.field else "")
        records.append(record)
        damages.append(damage)
    return records, damages


def body_columns(frame: pa.RecordBatch, cls: type[Message], wanted: Sequence[str]) -> dict[str, pa.Array]:
    """The columns `wanted` of a typed view, and its `damage`, for frames of that type and those that tell of damage.

    A record that cannot be read has nulls, and its bytes in `undecoded`.
    """
    records, damages = decode(frame)
    columns = columns_of(cls)
    found = {"damage": pa.array(damages, pa.string())}
    for name in wanted:
        if name in columns:
            field = columns[name]
            convert = converter(field.type)
            cells: list[object] = [None if record is None else getattr(record, field.name) for record in records]
            if convert is not None:
                cells = [None if cell is None else convert(cell) for cell in cells]
            found[name] = pa.array(cells, arrow_type(field.type))
    if "unknown_tagged" in wanted:
        found["unknown_tagged"] = pa.array([record and _tags(record) for record in records], UNKNOWN_TAGS)
    if "undecoded" in wanted:
        values = frame["value"].to_pylist()
        undecoded = [value if record is None else None for record, value in zip(records, values, strict=True)]
        found["undecoded"] = pa.array(undecoded, pa.binary())
    return found


def scalar(field: Field) -> pa.Scalar:
    """The default of a field, which a record has in versions that do not know the field."""
    default = field.default
    convert = converter(field.type)
    return pa.scalar(default if default is None or convert is None else convert(default), arrow_type(field.type))


def _tags(record: Message) -> list[tuple[int, bytes]] | None:
    return list(record.unknown_tagged) or None


@cache
def converter(kind: FieldType) -> Convert | None:
    """What makes a value of a record one that Arrow takes; None where nothing has to be done."""
    match kind:
        case Kind.UUID:
            return str
        case Kind():
            return None
        case ArrayOf(element=element):
            convert = converter(element)
            return None if convert is None else _each(convert)
        case cls:
            return _struct(cls)


def _each(convert: Convert) -> Convert:
    def convert_all(values: object) -> object:
        assert isinstance(values, list | tuple), values
        return [convert(value) for value in values]

    return convert_all


def _struct(cls: type[Message]) -> Convert:
    parts = [(field.name, converter(field.type)) for field in layout_of(cls)]

    def convert_fields(value: object) -> object:
        found = {}
        for name, convert in parts:
            cell = getattr(value, name)
            found[name] = cell if convert is None or cell is None else convert(cell)
        return found

    return convert_fields


def payloads(frame: pa.RecordBatch, *, show_secrets: bool) -> dict[str, pa.Array]:
    """The column `payload`, Kafka's own JSON of each record, and `damage`; null for a record that cannot be read."""
    records, damages = decode(frame)
    versions = frame["version"].to_pylist()
    texts: list[str | None] = []
    for row, (record, version) in enumerate(zip(records, versions, strict=True)):
        try:
            texts.append(None if record is None else _text(record, version, show_secrets=show_secrets))
        except MetadataLogError as bad:
            texts.append(None)
            damages[row] = f"the record has no JSON form: {bad.what}"
    return {"payload": pa.array(texts, pa.string()), "damage": pa.array(damages, pa.string())}


def _text(record: Message, version: int, *, show_secrets: bool) -> str:
    cls = type(record)
    shown = min(version, schema_of(cls).versions.highest)
    if cls in MAY_HOLD_SECRETS and not show_secrets:
        return json.dumps(redact(record, to_json(record, shown)))
    return json_text(record, shown)
