"""The delivery states of the share partitions of one partition of `__share_group_state`, and their records (Kafka:
`ShareGroupOffset`, `ShareCoordinatorShard.replay`).

A snapshot is the whole state of a share partition, an update what has changed since. An update never goes back, so that
the state is that of the last snapshot with all updates behind it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, structs

from kraft.coordinators.runtime.shard import Record
from kraft.coordinators.runtime.weights import text_bytes
from kraft.coordinators.shares.persister import NO_COUNT, NO_OFFSET, ShareKey, StateBatch
from kraft.coordinators.shares.state_batches import Batches, combined, merged
from metadata_log.image.persistent_map import Map, with_entry, without_key
from metadata_log.records.share_group_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareSnapshotValueStateBatch,
    ShareUpdateKey,
    ShareUpdateValue,
    ShareUpdateValueStateBatch,
)
from metadata_log.types import Uuid

_FIXED_BYTES: Final = 1200
_BATCH_BYTES: Final = 160
"""How much memory a share partition and one of its batches take."""


class ShareState(Struct, frozen=True):
    """The delivery state of one share partition."""

    snapshot_epoch: int
    """The number of the last snapshot."""
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    """The ended records at or behind the start; `NO_COUNT` where nobody knows it."""
    created_ms: int
    """When the last snapshot was written that was not written for its age alone."""
    snapshot_ms: int
    """When the last snapshot was written."""
    batches: Batches = ()
    fenced_leader_epoch: int = 0
    """Leaders of epochs before this one are fenced: the largest epoch of all records."""
    fenced_state_epoch: int = 0
    """The same of state epochs."""
    updates: int = 0
    """The updates since the last snapshot that came for their number."""
    snapshot_at: int = 0
    """The offset of the last snapshot: nothing before it is needed."""

    @property
    def is_cold(self) -> bool:
        """Whether the last snapshot was written for its age alone."""
        return self.created_ms != self.snapshot_ms


class ShareStates(Struct, frozen=True):
    """The replicated state: the share partitions, and what all that takes."""

    by_key: Map[ShareKey, ShareState] = Map()
    bytes: int = 0
    last_offset: int = -1
    """The offset of the last record."""


def weight(key: ShareKey, state: ShareState | None) -> int:
    """The memory of a share partition, in bytes."""
    return 0 if state is None else _FIXED_BYTES + 2 * text_bytes(key.group_id) + _BATCH_BYTES * len(state.batches)


def key_of(record: ShareSnapshotKey | ShareUpdateKey) -> ShareKey:
    """The share partition of a record."""
    return ShareKey(record.group_id, record.topic_id, record.partition)


def replayed(states: ShareStates, record: Record, offset: int, updates_per_snapshot: int) -> ShareStates:
    """The states after a record at an offset."""
    assert isinstance(record.key, (ShareSnapshotKey, ShareUpdateKey)), record
    key = key_of(record.key)
    known = states.by_key.get(key)
    if record.found is not None and record.found[0] is not known:
        record = structs.replace(record, found=None)
    match record.value:
        case ShareSnapshotValue() as value:
            after = _after_snapshot(known, value, record, offset, updates_per_snapshot)
        case ShareUpdateValue() as value:
            after = _after_update(known, value, record, offset)
        case _:
            by_key = states.by_key if known is None else without_key(states.by_key, key)
            return ShareStates(by_key, states.bytes - weight(key, known), offset)
    size = states.bytes + weight(key, after) - weight(key, known)
    return ShareStates(with_entry(states.by_key, key, after), size, offset)


def _after_snapshot(
    known: ShareState | None, value: ShareSnapshotValue, record: Record, offset: int, updates_per_snapshot: int
) -> ShareState:
    updates = 0 if known is None else known.updates
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        created_ms=value.create_timestamp,
        snapshot_ms=value.write_timestamp,
        batches=combined(_read(value.state_batches)) if record.found is None else record.found[1],
        fenced_leader_epoch=value.leader_epoch if known is None else max(known.fenced_leader_epoch, value.leader_epoch),
        fenced_state_epoch=value.state_epoch if known is None else max(known.fenced_state_epoch, value.state_epoch),
        # As in Kafka, a snapshot that comes for another reason does not put off the next one.
        updates=0 if updates >= updates_per_snapshot else updates,
        snapshot_at=offset,
    )


def _after_update(known: ShareState | None, value: ShareUpdateValue, record: Record, offset: int) -> ShareState:
    if known is None:
        # The snapshot before it was deleted, because a later one follows.
        known = ShareState(value.snapshot_epoch, 0, value.leader_epoch, NO_OFFSET, NO_COUNT, 0, 0, snapshot_at=offset)
    start = known.start_offset if value.start_offset == NO_OFFSET else value.start_offset
    return structs.replace(
        known,
        leader_epoch=value.leader_epoch,
        start_offset=start,
        delivery_complete_count=value.delivery_complete_count,
        batches=merged(known.batches, _read(value.state_batches), start) if record.found is None else record.found[1],
        fenced_leader_epoch=max(known.fenced_leader_epoch, value.leader_epoch),
        updates=known.updates + 1,
    )


def _read(
    batches: tuple[ShareSnapshotValueStateBatch, ...] | tuple[ShareUpdateValueStateBatch, ...],
) -> list[StateBatch]:
    return [StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count) for one in batches]


def snapshot_of(key: ShareKey, before: ShareState | None, after: ShareState) -> Record:
    """The record with the whole of a state, which follows on `before`."""
    return Record(
        ShareSnapshotKey(*_fields(key)),
        ShareSnapshotValue(
            snapshot_epoch=after.snapshot_epoch,
            state_epoch=after.state_epoch,
            leader_epoch=after.leader_epoch,
            start_offset=after.start_offset,
            delivery_complete_count=after.delivery_complete_count,
            create_timestamp=after.created_ms,
            write_timestamp=after.snapshot_ms,
            state_batches=tuple(
                ShareSnapshotValueStateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
                for one in after.batches
            ),
        ),
        found=(before, after.batches),
    )


def update_of(key: ShareKey, before: ShareState, after: ShareState, changes: Batches) -> Record:
    """The record with what has changed in a state."""
    return Record(
        ShareUpdateKey(*_fields(key)),
        ShareUpdateValue(
            snapshot_epoch=after.snapshot_epoch,
            leader_epoch=after.leader_epoch,
            start_offset=after.start_offset,
            delivery_complete_count=after.delivery_complete_count,
            state_batches=tuple(
                ShareUpdateValueStateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
                for one in changes
            ),
        ),
        found=(before, after.batches),
    )


def tombstone_of(key: ShareKey) -> Record:
    """The record by which a share partition is forgotten."""
    return Record(ShareSnapshotKey(*_fields(key)))


def _fields(key: ShareKey) -> tuple[str, Uuid, int]:
    return key.group_id, key.topic_id, key.partition
