"""The encoding of records in portions, where one operation has very many."""

from __future__ import annotations

from collections.abc import Generator

from msgspec.structs import replace

from kraft.coordinators.runtime.shard import Record
from kraft.limits import DRAFT_BYTES_PER_STEP
from metadata_log.errors import EncodeError
from metadata_log.records.coordinator import encode_key, encode_value


def encoding(records: list[Record]) -> Generator[None, None, None]:
    """Encode the records in place, in portions, so that whoever writes them need not."""
    size = 0
    for at, record in enumerate(records):
        try:
            value = None if record.value is None else encode_value(record.value, record.version)
            records[at] = replace(record, encoded=(encode_key(record.key), value))
        except EncodeError:
            # Whoever writes it refuses the request.
            return
        size += len(value or b"")
        if size >= DRAFT_BYTES_PER_STEP:
            size = 0
            yield None
