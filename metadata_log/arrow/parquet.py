"""Writes any view to a Parquet file, one row group at a time, in bounded memory."""

from __future__ import annotations

import os
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from metadata_log.disk import FILE_MODE

_GROUP_ROWS: Final = 1 << 17
"""The least rows of a row group, which has at most one batch more."""


def write_parquet(
    reader: pa.RecordBatchReader, target: str, *, compression: str = "zstd", private: bool = False
) -> int:
    """Write the rows of a reader to the Parquet file `target`.

    The file gets its name once it is complete.

    Args:
        reader: The result of `read_records`, `read_typed` or `read_view`.
        target: The path of the file.
        compression: Parquet's compression codec.
        private: Whether the file gets mode 0600.

    Returns:
        The number of rows.

    Raises:
        OSError: The file could not be written. Errors of the reader pass through.
    """
    part = f"{target}.part"
    written = 0
    try:
        if private:
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        with pq.ParquetWriter(part, reader.schema, compression=compression) as writer:
            waiting: list[pa.RecordBatch] = []
            for batch in reader:
                waiting.append(batch)
                written += batch.num_rows
                if sum(one.num_rows for one in waiting) >= _GROUP_ROWS:
                    _write_group(writer, waiting)
                    waiting = []
            _write_group(writer, waiting)
        os.replace(part, target)
    except BaseException:
        if os.path.exists(part):
            os.remove(part)
        raise
    return written


def _write_group(writer: pq.ParquetWriter, batches: list[pa.RecordBatch]) -> None:
    if batches:
        rows = sum(batch.num_rows for batch in batches)
        writer.write_table(pa.Table.from_batches(batches), row_group_size=rows)
