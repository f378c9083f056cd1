"""Metadata logs as Arrow record batches: raw, typed by record type, and as histories; without a JVM.

This package needs the extra `arrow`: `pip install 'trio-kraft[arrow]'`. The rest of `metadata_log` does not.
"""

from typing import TYPE_CHECKING

from metadata_log.lazy_names import lazy_names

if TYPE_CHECKING:
    from metadata_log.arrow.parquet import write_parquet
    from metadata_log.arrow.read import (
        NO_FILTERS,
        Decoder,
        Filters,
        Mode,
        read_records,
        read_split,
        read_splits,
        read_typed,
    )
    from metadata_log.arrow.schema import RECORD_CLASSES, RECORDS, schema_of
    from metadata_log.arrow.splits import Split, plan_splits
    from metadata_log.arrow.views import read_view, rows_reader
else:
    _HOMES = {
        "Decoder": "metadata_log.arrow.read",
        "Filters": "metadata_log.arrow.read",
        "Mode": "metadata_log.arrow.read",
        "NO_FILTERS": "metadata_log.arrow.read",
        "RECORDS": "metadata_log.arrow.schema",
        "RECORD_CLASSES": "metadata_log.arrow.schema",
        "Split": "metadata_log.arrow.splits",
        "plan_splits": "metadata_log.arrow.splits",
        "read_records": "metadata_log.arrow.read",
        "read_split": "metadata_log.arrow.read",
        "read_splits": "metadata_log.arrow.read",
        "read_typed": "metadata_log.arrow.read",
        "read_view": "metadata_log.arrow.views",
        "rows_reader": "metadata_log.arrow.views",
        "schema_of": "metadata_log.arrow.schema",
        "write_parquet": "metadata_log.arrow.parquet",
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)


__all__ = [
    "NO_FILTERS",
    "RECORDS",
    "RECORD_CLASSES",
    "Decoder",
    "Filters",
    "Mode",
    "Split",
    "plan_splits",
    "read_records",
    "read_split",
    "read_splits",
    "read_typed",
    "read_view",
    "rows_reader",
    "schema_of",
    "write_parquet",
]
