"""Tables of Delta Lake by `deltalake` (delta-rs)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from metadata_log.spark.lakes.rows import Commit, Cut, Delta, Rows, batches_of


def commit(lake: Delta, name: str, change: Commit) -> None:
    """Make a commit in a table, unless the table has it."""
    table = _table(lake, name)
    known = None if table is None else table.transaction_version(change.application)
    if known is not None and known >= change.number:
        return
    target: str | DeltaTable = lake.path(name) if table is None else table
    told: dict[str, Any] = {
        "partition_by": list(change.rows.partitions),
        "schema_mode": "merge",
        "storage_options": lake.options,
        "commit_properties": CommitProperties(
            app_transactions=[Transaction(change.application, change.number)],
            custom_metadata={change.application: str(change.number)},
        ),
    }
    if table is None or change.cut == Cut():
        write_deltalake(target, _reader(change.rows), mode="append", **told)
    else:
        predicate = _predicate(change)
        write_deltalake(target, _reader(change.rows), mode="overwrite", predicate=predicate, **told)


def replace_table(lake: Delta, name: str, rows: Rows) -> None:
    """Write a table with these rows and columns alone."""
    write_deltalake(
        lake.path(name),
        _reader(rows),
        mode="overwrite",
        partition_by=list(rows.partitions),
        schema_mode="overwrite",
        storage_options=lake.options,
    )


def read(lake: Delta, name: str) -> pa.Table | None:
    """All rows; None without a table."""
    table = _table(lake, name)
    return None if table is None else table.to_pyarrow_table()


def last_commit(lake: Delta, name: str, application: str) -> int | None:
    """The number of the last commit of an application; None without one."""
    table = _table(lake, name)
    return None if table is None else table.transaction_version(application)


def compact(lake: Delta, name: str) -> None:
    """Merge the small files of each partition."""
    table = _table(lake, name)
    if table is not None:
        table.optimize.compact()


def _table(lake: Delta, name: str) -> DeltaTable | None:
    place = lake.path(name)
    if not DeltaTable.is_deltatable(place, lake.options):
        return None
    return DeltaTable(place, storage_options=lake.options)


def _reader(rows: Rows) -> pa.RecordBatchReader:
    batches = (batch for part in rows.parts for batch in batches_of(part, rows.schema))
    return pa.RecordBatchReader.from_batches(rows.schema, batches)


def _predicate(change: Commit) -> str | None:
    """The rows that are replaced, in SQL; the new rows must meet it too, so it names their publication."""
    cut = change.cut
    if cut.everything:
        return None
    new_of = sorted({part.values["cluster"] for part in change.rows.parts})
    replaced = [
        *([f"(cluster IN ({_texts(cut.open_of)}) AND is_open)"] if cut.open_of else []),
        *([f"(cluster IN ({_texts(new_of)}) AND lineage_publication = {change.number})"] if new_of else []),
        *(
            f"(cluster = {_text(cluster)} AND lineage_step > {kept} AND NOT is_open)"
            for cluster, kept in cut.taken_back.items()
        ),
    ]
    return " OR ".join(replaced)


def _texts(values: Sequence[str]) -> str:
    return ", ".join(map(_text, values))


def _text(value: str) -> str:
    """A literal of the SQL of DataFusion."""
    escaped = value.replace("'", "''")
    return f"'{escaped}'"
