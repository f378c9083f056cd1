"""The fields of records as Arrow columns, one record at a time (Kafka: the generated `*Record.java`).

`bodies_numpy` is the vectorised implementation and falls back to this one for unusual records. Both give equal results.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from metadata_log.arrow.columns import indexes_of
from metadata_log.arrow.schema import UNKNOWN_TAGS, arrow_type, columns_of
from metadata_log.errors import DecodeError, MetadataLogError
from metadata_log.records.frame import decode_control, read_record
from metadata_log.records.redact import MAY_HOLD_SECRETS, redact
from metadata_log.serde.fields import OPEN_END, ArrayOf, Field, FieldType, Kind, Message, Versions, layout_of, schema_of
from metadata_log.serde.json_form import to_json
from metadata_log.serde.json_text import json_text
from metadata_log.serde.primitives import FORMATS
from metadata_log.types import Uuid

Convert = Callable[[object], object]


def decode(frame: pa.RecordBatch) -> tuple[list[Message | None], list[str | None]]:
    """The records of some frames, and the damage of each; an unknown type or version gives no record."""
    records: list[Message | None] = []
    damages: list[str | None] = []
    columns = [frame[name].to_pylist() for name in ("is_control", "key", "value", "damage")]
    for is_control, key, value, known_damage in zip(*columns, strict=True):
        record, damage = None, known_damage
        if damage is None:
            record, damage = _decode_one(value, key or b"" if is_control else None)
        records.append(record)
        damages.append(damage)
    return records, damages


def _decode_one(value: bytes, control_key: bytes | None = None) -> tuple[Message | None, str | None]:
    try:
        return (read_record(value)[3] if control_key is None else decode_control(control_key, value)[1]), None
    except DecodeError as bad:
        return None, f"the record cannot be decoded: {bad.what}" + (f" at {bad.field}" if bad.field else "")


_Thing = TypeVar("_Thing", bound=Hashable)


class _Distinct(dict[_Thing, int]):
    """Numbers distinct values in order of first appearance."""

    def __missing__(self, key: _Thing) -> int:
        self[key] = len(self)
        return self[key]

    def numbers(self, things: Iterable[_Thing]) -> pa.Array:
        """The numbers of values, for `take` on an array of the distinct ones."""
        return indexes_of(array("i", map(self.__getitem__, things)))


def body_columns(frame: pa.RecordBatch, cls: type[Message], wanted: Sequence[str]) -> dict[str, pa.Array]:
    """The columns `wanted` of a typed view, and its `damage`, for frames of that type and for frames with damage.

    An unreadable record has nulls, and its bytes in `undecoded`.
    """
    front = _front(cls)
    values = frame["value"].to_pylist()
    if schema_of(cls).api_key is None:
        records, damages = decode(frame)
        rows = None
    else:
        different: _Distinct[_Rest] = _Distinct()
        rows = different.numbers(_rests(values, frame["damage"], front))
        records, damages = _decode_rests(different, front)
    parts: dict[str, pa.Array] = {}
    columns = columns_of(cls)
    for name in wanted:
        if name in columns and columns[name] not in front.fields:
            parts[name] = _field_array(columns[name], records)
    if "unknown_tagged" in wanted:
        parts["unknown_tagged"] = pa.array([record and _tags(record) for record in records], UNKNOWN_TAGS)
    damage, known = pa.array(damages, pa.string()), pa.array([record is not None for record in records])
    if rows is not None:
        parts = {name: part.take(rows) for name, part in parts.items()}
        damage, known = pc.coalesce(frame["damage"], damage.take(rows)), known.take(rows)
    parts["damage"] = damage
    if any(columns[name] in front.fields for name in wanted if name in columns):
        parts |= _front_arrays(front, values, known)
    if "undecoded" in wanted:
        parts["undecoded"] = pc.if_else(known, pa.scalar(None, pa.binary()), frame["value"])
    return parts


def _field_array(field: Field, records: Sequence[Message | None]) -> pa.Array:
    convert = converter(field.type)
    cells: list[object] = [None if record is None else getattr(record, field.name) for record in records]
    if convert is not None:
        cells = [None if cell is None else convert(cell) for cell in cells]
    return pa.array(cells, arrow_type(field.type))


# Records of a log differ mainly in their first fields, such as topic and partition. The rest, such as replicas and
# leader, is often equal. So the first fields are read for all records at once, and each distinct rest is read once.


class _Front(Struct, frozen=True):
    """The fields of fixed width at the beginning of a record, the same in all its versions."""

    fields: tuple[Field, ...]
    names: tuple[str, ...]
    layout: struct.Struct

    @property
    def end(self) -> int:
        """The position of the rest."""
        return _FRAMING_BYTES + self.layout.size


_Rest = bytes | tuple[bytes | None]
_FRAMING_BYTES: Final = 3
_ALWAYS: Final = Versions(0, OPEN_END)


@cache
def _front(cls: type[Message]) -> _Front:
    fields: dict[str, Field] = {}
    if schema_of(cls).api_key is not None:
        for name, field in columns_of(cls).items():
            fixed = isinstance(field.type, Kind) and field.type in FORMATS
            if not fixed or field.tag is not None or field.versions != _ALWAYS:
                break
            fields[name] = field
    layout = "".join(FORMATS[field.type] for field in fields.values() if isinstance(field.type, Kind))
    return _Front(tuple(fields.values()), tuple(fields), struct.Struct(">" + layout))


def _rests(values: Sequence[bytes | None], damages: pa.Array, front: _Front) -> list[_Rest]:
    """Each value without its first fields; a value that is too short or unusual stays whole, in a tuple."""
    end = front.end
    if damages.null_count == len(damages):
        return [
            value[:_FRAMING_BYTES] + value[end:] if len(value) > end and value[2] < 0x80 else (value,)
            for value in values
            if value is not None
        ]
    return [
        (None,)
        if value is None or damage is not None
        else value[:_FRAMING_BYTES] + value[end:]
        if len(value) > end and value[2] < 0x80
        else (value,)
        for value, damage in zip(values, damages.to_pylist(), strict=True)
    ]


def _decode_rests(different: Iterable[_Rest], front: _Front) -> tuple[list[Message | None], list[str | None]]:
    """The records with these rests, with zeros in the first fields, and the damage of the unreadable ones."""
    zeros = bytes(front.layout.size)
    records: list[Message | None] = []
    damages: list[str | None] = []
    for rest in different:
        value = rest[0] if isinstance(rest, tuple) else rest[:_FRAMING_BYTES] + zeros + rest[_FRAMING_BYTES:]
        record, damage = (None, None) if value is None else _decode_one(value)
        records.append(record)
        damages.append(damage)
    return records, damages


def _front_arrays(front: _Front, values: Sequence[bytes | None], known: pa.Array) -> dict[str, pa.Array]:
    read, missing = front.layout.unpack_from, bytes(front.end)
    whole = [value if value is not None and len(value) >= front.end else missing for value in values]
    cells = zip(*[read(value, _FRAMING_BYTES) for value in whole], strict=True)
    arrays = {}
    for name, field, column in zip(front.names, front.fields, cells, strict=True):
        if field.type is Kind.UUID:
            different: _Distinct[bytes] = _Distinct()
            numbers = different.numbers(column)
            made = pa.array([str(Uuid(each)) for each in different], pa.string()).take(numbers)
        else:
            made = pa.array(column, arrow_type(field.type))
        arrays[name] = made if pc.all(known).as_py() else pc.if_else(known, made, pa.scalar(None, made.type))
    return arrays


def scalar(field: Field) -> pa.Scalar:
    """The default of a field, for versions without the field."""
    default = field.default
    convert = converter(field.type)
    return pa.scalar(default if default is None or convert is None else convert(default), arrow_type(field.type))


def _tags(record: Message) -> list[tuple[int, bytes]] | None:
    return list(record.unknown_tagged) or None


@cache
def converter(kind: FieldType) -> Convert | None:
    """The conversion of a record's value to one that Arrow accepts; None where no conversion is needed."""
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
        cells = {}
        for name, convert in parts:
            cell = getattr(value, name)
            cells[name] = cell if convert is None or cell is None else convert(cell)
        return cells

    return convert_fields


def payloads(frame: pa.RecordBatch, *, show_secrets: bool) -> dict[str, pa.Array]:
    """The column `payload`, Kafka's own JSON of each record, and `damage`; null for an unreadable record."""
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
