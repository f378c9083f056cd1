"""What readers of committed records may see of a partition, from the batches of its log alone (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct as Layout
from typing import Final

from kraft.invariants.stored_batches import NO_PRODUCER, StoredBatch

_RECORDS_AT: Final = 61
_KEY: Final = Layout(">hh")
_KEY_AT: Final = 5
"""The position of the key in a marker's record: behind length, attributes, both deltas and the key's size."""
_COMMIT: Final = 1


def is_commit(marker: StoredBatch) -> bool:
    """Whether a control batch commits the transaction of its producer; else the batch aborts it."""
    _, kind = _KEY.unpack_from(marker.content, _RECORDS_AT + _KEY_AT)
    return bool(kind == _COMMIT)


def stable_end(batches: Iterable[StoredBatch], watermark: int, reloaded: int = 0) -> int:
    """The offset up to which a reader of committed records may read.

    A transaction is over once its marker is below the high watermark. A start and a truncation, of which `reloaded` is
    the log end at the last one, take every marker in the log for one that ends its transaction, as in Kafka
    (`ProducerStateManager.truncateAndReload`).
    """
    bound = max(watermark, reloaded)
    firsts: dict[int, int] = {}
    for batch in batches:
        if batch.next_offset > bound:
            break
        if batch.is_control:
            firsts.pop(batch.producer_id, None)
        elif batch.is_transactional:
            firsts.setdefault(batch.producer_id, batch.base_offset)
    return min((*firsts.values(), watermark))


def was_committed(batches: Sequence[StoredBatch], batch: StoredBatch) -> bool | None:
    """Whether the transaction of a batch of this log was committed; None while no marker has ended it."""
    if not batch.is_transactional:
        return True
    markers = (
        one
        for one in batches
        if one.is_control and one.producer_id == batch.producer_id and one.base_offset > batch.base_offset
    )
    first = next(markers, None)
    return None if first is None else is_commit(first)


def shown_to_reader(read: Iterable[StoredBatch], aborted: Iterable[tuple[int, int]]) -> list[tuple[StoredBatch, bool]]:
    """The data batches of an answer, and whether a consumer of committed records passes each to its user. The aborted
    transactions are those in the answer: the producer, and the first offset.
    """
    waiting, dropped = sorted(aborted, key=lambda one: one[1]), set[int]()
    shown = list[tuple[StoredBatch, bool]]()
    for batch in read:
        while waiting and waiting[0][1] < batch.next_offset:
            dropped.add(waiting.pop(0)[0])
        if not batch.is_control:
            shown.append((batch, not batch.is_transactional or batch.producer_id not in dropped))
        elif batch.producer_id != NO_PRODUCER and not is_commit(batch):
            dropped.discard(batch.producer_id)
    return shown
