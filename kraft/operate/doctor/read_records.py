"""Reads the records of a partition's directory, as checks that judge what the records say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from metadata_log.disk import Disk
from metadata_log.log.segment import parse_file_name, scan_file
from metadata_log.records.record import Record, records


def records_of(disk: Disk, path: str, names: Iterable[str]) -> Iterator[Record]:
    """The records of all segments in order, without control records; raises `MetadataLogError` at the first damaged
    byte.

    Args:
        disk: The disk.
        path: The directory of the partition.
        names: The names of its files.
    """
    for name in sorted(one for one in names if parse_file_name(one) is not None):
        file = disk.open(f"{path}/{name}")
        try:
            for batch in scan_file(file):
                if not batch.is_control:
                    yield from records(batch, where=name)
        finally:
            file.close()
