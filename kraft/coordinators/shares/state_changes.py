"""The decisions of the share coordinator about one share partition (Kafka: `ShareCoordinatorShard`).

The checks raise `ApiError`, and come before it is known that there is such a partition at all. The others return the
record to write, if any.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

from kraft.access.errors import ApiError
from kraft.coordinators.runtime.shard import Record
from kraft.coordinators.shares.persister import NO_COUNT, NO_OFFSET, PersistedWrite, ShareKey
from kraft.coordinators.shares.state import ShareState, snapshot_of, update_of
from kraft.coordinators.shares.state_batches import Batches, combined, cut, merged
from kraft.limits import SHARE_STATE_BATCHES
from transport.protocol.errors import Error

_UNINITIALIZED: Final = "operation on uninitialized share partition not allowed."
_TOO_MANY: Final = f"A share partition has at most {SHARE_STATE_BATCHES} state batches."


def check_partition(key: ShareKey) -> None:
    """Refuse what no share partition can be."""
    if key.partition < 0:
        raise ApiError(Error.INVALID_REQUEST, "The partition id cannot be a negative number.")


def _check_leader_epoch(leader_epoch: int) -> None:
    if leader_epoch < 0:
        raise ApiError(Error.INVALID_REQUEST, "The leader epoch cannot be a negative number.")


def _check_state_epoch(state_epoch: int) -> None:
    if state_epoch < 0:
        raise ApiError(Error.INVALID_REQUEST, "The state epoch cannot be a negative number.")


def _check_is_current_leader(known: ShareState, leader_epoch: int) -> None:
    if leader_epoch < known.fenced_leader_epoch:
        raise ApiError(Error.FENCED_LEADER_EPOCH)


def _check_is_current_state(known: ShareState | None, state_epoch: int) -> None:
    if known is not None and state_epoch < known.fenced_state_epoch:
        raise ApiError(Error.FENCED_STATE_EPOCH)


def check_initialize(known: ShareState | None, state_epoch: int) -> None:
    """Refuse an Initialize with a former state epoch."""
    _check_state_epoch(state_epoch)
    _check_is_current_state(known, state_epoch)


def check_read(known: ShareState | None, leader_epoch: int) -> ShareState:
    """Refuse a Read of a former leader, or of what was not initialized; returns what is known."""
    _check_leader_epoch(leader_epoch)
    if known is None:
        raise ApiError(Error.INVALID_REQUEST, f"Read {_UNINITIALIZED}")
    _check_is_current_leader(known, leader_epoch)
    return known


def check_write(known: ShareState | None, written: PersistedWrite) -> ShareState:
    """Refuse a Write of a former leader or state, or to what was not initialized; returns what is known."""
    _check_leader_epoch(written.leader_epoch)
    _check_state_epoch(written.state_epoch)
    if known is None:
        raise ApiError(Error.INVALID_REQUEST, f"Write {_UNINITIALIZED}")
    _check_is_current_leader(known, written.leader_epoch)
    _check_is_current_state(known, written.state_epoch)
    return known


def is_repeated(known: ShareState, state_epoch: int, start_offset: int) -> bool:
    """Whether an Initialize is a copy of the one that has begun the state, and comes after the first Write.

    A group coordinator lets the leader choose the begin only while it knows no state. Kafka begins anew, and what was
    accepted meanwhile is delivered again.
    """
    is_written = known.start_offset >= 0 or bool(known.batches)
    return start_offset == NO_OFFSET and state_epoch == known.state_epoch and is_written


def initialized(key: ShareKey, known: ShareState | None, state_epoch: int, start_offset: int, now_ms: int) -> Record:
    """Initialize: the state begins anew. Leaders that were fenced stay so."""
    after = ShareState(
        snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=0,
        start_offset=start_offset,
        delivery_complete_count=NO_COUNT if start_offset == NO_OFFSET else 0,
        created_ms=now_ms,
        snapshot_ms=now_ms,
    )
    return snapshot_of(key, known, after)


def led_by(
    key: ShareKey, known: ShareState, leader_epoch: int, now_ms: int, updates_per_snapshot: int
) -> Record | None:
    """Read: the record by which a new leader fences those before it; None if the leader is known.

    As in Kafka, a leader that was known before the state began anew is known, though the state does not name it.
    """
    if leader_epoch <= known.fenced_leader_epoch:
        return None
    after = structs.replace(known, leader_epoch=leader_epoch)
    return _record(key, known, after, (), now_ms, updates_per_snapshot)


def written_by(
    key: ShareKey, known: ShareState, written: PersistedWrite, now_ms: int, updates_per_snapshot: int
) -> Record:
    """Write: the record of a change. The epochs stay those that are known: only Read and Initialize raise them."""
    if len(written.batches) > SHARE_STATE_BATCHES:
        raise ApiError(Error.POLICY_VIOLATION, _TOO_MANY)
    if any(one.first_offset > one.last_offset for one in written.batches):
        raise ApiError(Error.UNKNOWN_SERVER_ERROR, "A state batch ends before it begins.")
    start = max(written.start_offset, known.start_offset)
    match written.start_offset - known.start_offset:
        case 0:
            count = max(written.delivery_complete_count, known.delivery_complete_count)
        case behind if behind < 0:
            count = known.delivery_complete_count
        case _:
            count = written.delivery_complete_count
    changes = cut(combined(written.batches), start)
    batches = merged(known.batches, changes, start)
    if len(batches) > SHARE_STATE_BATCHES and len(batches) > len(known.batches):
        raise ApiError(Error.POLICY_VIOLATION, _TOO_MANY)
    after = structs.replace(known, start_offset=start, delivery_complete_count=count, batches=batches)
    return _record(key, known, after, changes, now_ms, updates_per_snapshot)


def _record(
    key: ShareKey, known: ShareState, after: ShareState, changes: Batches, now_ms: int, updates_per_snapshot: int
) -> Record:
    """The update, or the snapshot that is due after so many of them."""
    if known.updates < updates_per_snapshot:
        return update_of(key, known, after, changes)
    return snapshot_of(
        key,
        known,
        structs.replace(after, snapshot_epoch=known.snapshot_epoch + 1, created_ms=now_ms, snapshot_ms=now_ms),
    )


def cold(key: ShareKey, known: ShareState, now_ms: int) -> Record:
    """The snapshot of a share partition that had none for long, so that the log before it can be deleted."""
    after = structs.replace(known, snapshot_epoch=known.snapshot_epoch + 1, snapshot_ms=now_ms)
    return snapshot_of(key, known, after)
