"""The batches in what a follower has fetched (Kafka: `UnifiedLog.trimInvalidBytes`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metadata_log.records.batch import RecordBatch, scan


def whole_batches(data: bytes, where: str) -> Iterator[RecordBatch]:
    """The whole batches of fetched bytes, with their checksums verified; an incomplete one at the end is left out.

    Raises:
        CorruptBatch: A batch is damaged.
    """
    end = len(data)
    position = 0
    while end - position >= 12:
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if position + size > end:
            break
        position += size
    yield from scan(data[:position], where=where)


def parts_that_fit(batches: Sequence[RecordBatch], most_bytes: int) -> Iterator[list[RecordBatch]]:
    """The batches in runs of at most `most_bytes`; a larger batch is a run of its own."""
    part: list[RecordBatch] = []
    size = 0
    for batch in batches:
        if part and size + batch.size_bytes > most_bytes:
            yield part
            part, size = [], 0
        part.append(batch)
        size += batch.size_bytes
    if part:
        yield part
