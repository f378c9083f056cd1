"""Views in Spark: schemas, and Arrow batches with exactly the columns of a query."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType, VariantType, VariantVal

from metadata_log.arrow.schema import CLUSTERS, COMMENT, DAMAGE, PAYLOAD, RECORD_CLASSES, RECORDS, schema_of
from metadata_log.cluster_names import ClusterNames
from metadata_log.history.views import VIEWS
from metadata_log.reading.damage import Damage
from metadata_log.spark.directories import Directory
from metadata_log.spark.errors import OptionError
from metadata_log.spark.named import NAME_FIELDS, name_array
from metadata_log.spark.options import Options, nearest

RETENTION: Final = "retention"
"""The view that reports the damage of histories."""


def view_names() -> tuple[str, ...]:
    """The names of all views: raw, by record type, histories, states, derived, and the clusters themselves."""
    return (RECORDS, DAMAGE, *RECORD_CLASSES, *VIEWS, CLUSTERS)


def is_history(view: str) -> bool:
    """Whether a view is replayed, so that one task reads a whole cluster."""
    return view in VIEWS


def find_view(name: str) -> str:
    """The view of a name in any case; raises `OptionError`."""
    by_lower = {view.lower(): view for view in view_names()}
    if name.lower() not in by_lower:
        raise OptionError(f"there is no view {name!r}{nearest(name, view_names())}")
    return by_lower[name.lower()]


def spark_schema(options: Options) -> StructType:
    """The columns of the view that the options select."""
    view = find_view(options.view)
    if options.payload is not None and view != RECORDS:
        raise OptionError(f"payload is for the view {RECORDS}: {view} has typed columns")
    arrow = schema_of(view)
    fields = [
        StructField(field.name, field.dataType, field.nullable, _described(given))
        for field, given in zip(from_arrow_schema(arrow).fields, arrow, strict=True)
    ]
    if options.payload is not None:
        fields.append(StructField(PAYLOAD, VariantType() if options.payload == "variant" else StringType()))
    if options.cluster_names is not None and view != CLUSTERS:
        fields += from_arrow_schema(pa.schema(list(NAME_FIELDS.values()))).fields
    return StructType(fields)


def _described(field: pa.Field) -> dict[str, str] | None:
    """The description of a column where Spark's catalog expects the description: `DESCRIBE` shows it."""
    comment = (field.metadata or {}).get(COMMENT)
    return None if comment is None else {"comment": comment.decode()}


def _arrow_of(schema: StructType) -> pa.Schema:
    """Spark's schema in Arrow, with times in UTC. Spark 4.1 takes no zone: its times are in UTC always."""
    takes_zone = "timezone" in signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, timezone="UTC") if takes_zone else to_arrow_schema(schema)


class Projection:
    """Converts batches of a view to the schema that Spark expects: its names, order and types."""

    def __init__(self, view: str, schema: StructType, names: ClusterNames | None = None) -> None:
        full = schema_of(view)
        known = [*full.names, *([PAYLOAD] if view == RECORDS else []), *(NAME_FIELDS if names is not None else [])]
        by_lower = {name.lower(): name for name in known}
        self.columns: list[str] = []
        self._target = _arrow_of(schema)
        self._variant = None
        self._names = names
        self._sources: list[int | str] = []
        """By target field: the place among `columns`, or one of `NAME_FIELDS`."""
        for index, field in enumerate(schema.fields):
            name = by_lower.get(field.name.lower())
            if name is None:
                raise OptionError(f"the view {view} has no column {field.name!r}{nearest(field.name, tuple(known))}")
            of_name = names is not None and name in NAME_FIELDS
            if isinstance(field.dataType, VariantType) and name == PAYLOAD:
                self._variant = index
            else:
                arrow = pa.schema([NAME_FIELDS[name]]) if of_name else schema_of(view, [name])
                given = from_arrow_schema(arrow).fields[0].dataType
                if given != field.dataType:
                    raise OptionError(
                        f"the column {name} of the view {view} is {given.simpleString()}, not"
                        f" {field.dataType.simpleString()}: select it as it is and cast it then"
                    )
            self._sources.append(name if of_name else len(self.columns))
            if not of_name:
                self.columns.append(name)
        if any(isinstance(source, str) for source in self._sources) and "cluster" not in self.columns:
            self.columns.append("cluster")

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of `self.columns` in Spark's schema."""
        columns = [self._column(batch, source) for source in self._sources]
        if self._variant is not None:
            columns[self._variant] = variants(columns[self._variant], self._target.field(self._variant).type)
        arrays = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, self._target, strict=True)
        ]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self._target)

    def _column(self, batch: pa.RecordBatch, source: int | str) -> pa.Array:
        if isinstance(source, int):
            return batch.column(source)
        return name_array(source, self._names or ClusterNames(), batch.column(self.columns.index("cluster")))


def variants(texts: pa.Array, kind: pa.StructType) -> pa.StructArray:
    """JSON texts as Spark's VARIANT (15 µs each)."""
    parsed = [None if text is None else VariantVal.parseJson(text) for text in texts.to_pylist()]
    columns = {
        "value": pa.array([b"" if one is None else one.value for one in parsed], pa.binary()),
        "metadata": pa.array([b"" if one is None else one.metadata for one in parsed], pa.binary()),
    }
    return pa.StructArray.from_arrays(
        [columns[field.name] for field in kind],
        fields=list(kind),
        mask=pa.array([one is None for one in parsed]),
    )


def damage_rows(view: str, columns: Sequence[str], marks: Sequence[tuple[Directory, Damage]]) -> pa.RecordBatch | None:
    """Rows that report unreadable data; None for a view without such rows."""
    rows = [_in_retention(*mark) if view == RETENTION else _in_records(*mark) for mark in marks]
    schema = schema_of(view, columns)
    if view != RETENTION and is_history(view):
        return None
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)


def _in_records(directory: Directory, damage: Damage) -> dict[str, object]:
    folder, _, name = directory.path.rpartition("/")
    return {
        "cluster": directory.cluster,
        "directory": folder if directory.is_file else directory.path,
        "segment": name if directory.is_file else None,
        "position": damage.position,
        "offset": damage.offset,
        "damage": str(damage),
    }


def _in_retention(directory: Directory, damage: Damage) -> dict[str, object]:
    return {
        "cluster": directory.cluster,
        "kind": "damage",
        "path": directory.path,
        "from_offset": damage.offset,
        "records": 0,
        "known": False,
        "text": str(damage),
    }
