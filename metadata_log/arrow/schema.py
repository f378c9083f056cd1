"""The Arrow schemas of all views: raw, one per record type (Kafka: `MetadataRecordType`), and the replayed ones.

A typed view has the fields of its record in wire order, each under its name. Columns for the place of the record come
first, and two columns for unreadable content come last. Types follow the wire: `uuid` is text in Kafka's form, `uint16`
has no counterpart in Spark and is an `int32`, an array of structures is a list of structs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import pyarrow as pa

from metadata_log.history.views import VIEWS, Column, ColumnType, View
from metadata_log.records.frame import CONTROL_RECORDS, RECORD_TYPES
from metadata_log.serde.fields import ArrayOf, Field, FieldType, Kind, Message, layout_of

RECORDS: Final = "records"
"""The name of the raw view."""
DAMAGE: Final = "damage"
"""The name of the view of unreadable data: the rows of the raw view that report it."""
PAYLOAD: Final = "payload"
"""The column that is included only by name."""
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

_PLACE: Final = (
    pa.field("cluster", pa.string()),
    pa.field("directory", pa.string()),
    pa.field("segment", pa.string()),
    pa.field("position", pa.int64()),
    pa.field("offset", pa.int64()),
    pa.field("epoch", pa.int32()),
    pa.field("timestamp", TIMESTAMP),
)
_DAMAGE: Final = pa.field("damage", pa.string())
_RAW: Final = (
    *_PLACE,
    pa.field("type", pa.string()),
    pa.field("type_id", pa.int16()),
    pa.field("version", pa.int16()),
    pa.field("is_control", pa.bool_()),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field(PAYLOAD, pa.string()),
    _DAMAGE,
)
_WHERE: Final = frozenset({"cluster", "directory", "segment", "position", "offset", "damage"})
CLUSTERS: Final = "clusters"
"""The view of the clusters themselves, which Spark's source alone has: it is made from paths and names."""
_CLUSTERS: Final = (
    pa.field("cluster", pa.string(), nullable=False, metadata={b"comment": b"key, not null: the cluster id"}),
    pa.field("name", pa.string(), nullable=False, metadata={b"comment": b"not null: the name, or the id without one"}),
    pa.field("environment", pa.string(), metadata={b"comment": b"such as production; null if not listed"}),
    pa.field("labels", pa.map_(pa.string(), pa.string()), nullable=False),
    pa.field("is_listed", pa.bool_(), nullable=False, metadata={b"comment": b"whether the file of names has it"}),
    pa.field("directories", pa.list_(pa.string()), nullable=False, metadata={b"comment": b"empty: no log was found"}),
)
UNKNOWN_TAGS: Final = pa.list_(pa.struct([pa.field("tag", pa.int64()), pa.field("value", pa.binary())]))

_KINDS: Final = {
    Kind.BOOL: pa.bool_(),
    Kind.INT8: pa.int8(),
    Kind.INT16: pa.int16(),
    Kind.UINT16: pa.int32(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.FLOAT64: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.UUID: pa.string(),
    Kind.RECORDS: pa.binary(),
}

COLUMN_TYPES: Final[dict[ColumnType, pa.DataType]] = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.string(),
    "timestamp": TIMESTAMP,
    "int32[]": pa.list_(pa.int32()),
    "int64[]": pa.list_(pa.int64()),
    "string[]": pa.list_(pa.string()),
    "uuid[]": pa.list_(pa.string()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
"""The Arrow types of the columns of replayed views."""

RECORD_CLASSES: Final[dict[str, type[Message]]] = {
    cls.__name__: cls for cls in (*RECORD_TYPES.values(), *CONTROL_RECORDS.values())
}
"""The record types with a view, by name, metadata records first."""


def schema_of(view: str, columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema of a view.

    Args:
        view: `records`, `damage`, a record type such as `PartitionChangeRecord`, or a view of the histories.
        columns: The columns and their order; None for all but `payload`.

    Returns:
        The Arrow schema.

    Raises:
        ValueError: The view or a column is unknown.
    """
    fields = {field.name: field for field in _fields(view)}
    if columns is None:
        return pa.schema([field for name, field in fields.items() if name != PAYLOAD])
    if unknown := [name for name in columns if name not in fields]:
        raise ValueError(f"the view {view} has no column {unknown[0]!r}; it has {', '.join(fields)}")
    return pa.schema([fields[name] for name in columns])


def _fields(view: str) -> tuple[pa.Field, ...]:
    if view == RECORDS:
        return _RAW
    if view == DAMAGE:
        return tuple(field for field in _RAW if field.name in _WHERE)
    if view == CLUSTERS:
        return _CLUSTERS
    if view in VIEWS:
        return tuple(_field_of(VIEWS[view], column) for column in VIEWS[view].columns)
    if view not in RECORD_CLASSES:
        names = ", ".join((RECORDS, *RECORD_CLASSES, *VIEWS))
        raise ValueError(f"there is no view {view!r}; there are {names}")
    return (
        *_PLACE,
        pa.field("version", pa.int16()),
        *(pa.field(name, arrow_type(field.type)) for name, field in columns_of(RECORD_CLASSES[view]).items()),
        pa.field("unknown_tagged", UNKNOWN_TAGS),
        pa.field("undecoded", pa.binary()),
        _DAMAGE,
    )


COMMENT: Final = b"comment"
"""The key of a column's description in the metadata of its field."""


def _field_of(view: View, column: Column) -> pa.Field:
    """The field of a column, with the column's description: part of the key or not, null or not, and its meaning."""
    is_key = bool(view.key) and column.name in ("cluster", *view.key)
    facts = ", ".join([*(["key"] if is_key else []), *([] if column.nullable else ["not null"])])
    comment = f"{facts}: {column.doc}" if facts and column.doc else facts or column.doc
    described = {COMMENT: comment.encode()} if comment else None
    return pa.field(column.name, COLUMN_TYPES[column.type], nullable=column.nullable, metadata=described)


@cache
def columns_of(cls: type[Message]) -> dict[str, Field]:
    """The fields of a record by their column names: a record's `epoch`, for example, is `record_epoch`."""
    taken = {*(field.name for field in _PLACE), "version"}
    return {f"record_{field.name}" if field.name in taken else field.name: field for field in layout_of(cls)}


def arrow_type(kind: FieldType) -> pa.DataType:
    """The Arrow type of a field of this type."""
    match kind:
        case Kind():
            return _KINDS[kind]
        case ArrayOf(element=element):
            return pa.list_(arrow_type(element))
        case cls:
            return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in layout_of(cls)])
