"""Metadata logs as Arrow record batches: raw, typed by record type, and as histories; without a JVM.

This package needs the extra `arrow`: `pip install 'trio-kraft[arrow]'`. The rest of `metadata_log` does not.
"""

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
