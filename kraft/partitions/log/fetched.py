"""The batches in what a follower has fetched (Kafka: `UnifiedLog.trimInvalidBytes`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metadata_log.errors import CorruptBatch
from metadata_log.records.batch import BEFORE_LENGTH, LONG, RecordBatch, read_batch


def _end_of_whole(data: bytes) -> int:
    """Where the whole batches in fetched bytes end, by their lengths."""
    position, end = 0, len(data)
    while end - position >= BEFORE_LENGTH:
        size = BEFORE_LENGTH + int.from_bytes(data[position + 8 : position + BEFORE_LENGTH], "big")
        if position + size > end:
            break
        position += size
    return position


def batches_that_follow(data: bytes, end_offset: int, leader_epoch: int, where: str) -> list[RecordBatch]:
    """The whole batches of fetched bytes up to the first of a later epoch than the leader's, with good checksums. An
    incomplete one at the end is left out.

    Args:
        data: What was fetched.
        end_offset: The end of the log: the first batch begins there, or after a hole.
        leader_epoch: The epoch of the leader.
        where: The partition directory, for errors.

    Raises:
        CorruptBatch: A batch is damaged, or has an epoch or offsets that no sound leader gives a batch here.
    """
    batches: list[RecordBatch] = []
    position, end = 0, len(data)
    if BEFORE_LENGTH + int.from_bytes(data[8:BEFORE_LENGTH], "big") != end:
        # Not one whole batch, as most answers are.
        end = _end_of_whole(data)
        data = data[:end]
    while position < end:
        batch = read_batch(data, position, where=where)
        position += batch.size_bytes
        if batch.epoch > leader_epoch:
            break
        following = batch.base_offset + batch.last_offset_delta + 1
        if batch.epoch < 0 or not end_offset <= batch.base_offset < following < LONG:
            raise CorruptBatch(
                f"a fetched batch of epoch {batch.epoch} begins at offset {batch.base_offset}, where the log ends at "
                f"{end_offset}",
                where=where,
                position=batch.position,
                field="order",
                hint="The replica truncates its log to the end that the leader gives for its last epoch.",
            )
        end_offset = following
        batches.append(batch)
    return batches


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
