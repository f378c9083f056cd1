"""Writes any view to a Parquet file, a group of rows at a time, so that its size does not matter."""

from __future__ import annotations

import os
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from metadata_log.disk import FILE_MODE

_GROUP_ROWS: Final = 1 << 17
"""A row group has at least so many rows, and a batch more at most."""


def write_parquet(
    reader: pa.RecordBatchReader, target: str, *, compression: str = "zstd", private: bool = False
) -> int:
    """Write what `read_records`, `read_typed` or `read_view` gives to the file `target`; the number of its rows.

    The file has its name once it is whole. With `private` it has mode 0600. Errors are those of the reader, and
    `OSError`.
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
