"""Acknowledgements of records that a member has been given (Kafka: `SharePartition.acknowledge`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import Final

from msgspec import Struct

from kraft.coordinators.shares.in_flight import Batch, Run, State
from kraft.coordinators.shares.share_partition import Move, ShareLimits, SharePartition
from kraft.handling.steps import Handling
from kraft.limits import SHARE_PIECES_PER_STEP, SHARE_RUNS
from transport.protocol.errors import Error


class AckType(IntEnum):
    """How a member acknowledges a record."""

    GAP = 0
    """There is no such record: it was compacted away, or is a control record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Acknowledgement(Struct, frozen=True, gc=False):
    """Acknowledged offsets, both ends included: one type for all, or one for each."""

    first: int
    last: int
    types: Sequence[int]


_AFTER: Final = {
    AckType.GAP: State.ARCHIVED,
    AckType.ACCEPT: State.ACKNOWLEDGED,
}
_Piece = tuple[int, int, AckType]


def acknowledging(
    partition: SharePartition,
    member: str,
    acknowledgements: Sequence[Acknowledgement],
    limits: ShareLimits,
    now_ms: int,
) -> Handling[Move | Error]:
    """Begin the moves of what a member acknowledges, all of them or none, in steps.

    Nobody else touches what has begun to move, so that others may have their turns between two steps.

    Returns:
        The move, which is empty if nothing is to be written, or why there is none.
    """
    move = Move()
    pieces = 0
    room = SHARE_RUNS - partition.runs
    for each in acknowledgements:
        for first, last, kind in _pieces(each, partition.start):
            pieces += 1
            if pieces % SHARE_PIECES_PER_STEP == 0:
                yield None
            # A piece splits a run at each end, at most.
            error = Error.INVALID_RECORD_STATE
            if 2 * pieces <= room:
                error = _move(partition, member, first, last, kind, limits, now_ms, move)
            if error is not Error.NONE:
                partition.undo(move, limits, now_ms)
                return error
    return move


def _pieces(each: Acknowledgement, start: int) -> Iterator[_Piece]:
    """The parts with one type, without what is below the start of the share partition."""
    if each.last < start:
        return
    if len(each.types) == 1:
        yield max(each.first, start), each.last, AckType(each.types[0])
        return
    at = each.first
    for kind, same in groupby(each.types):
        count = sum(1 for _ in same)
        if at + count > start:
            yield max(at, start), at + count - 1, AckType(kind)
        at += count


def _move(
    partition: SharePartition,
    member: str,
    first: int,
    last: int,
    kind: AckType,
    limits: ShareLimits,
    now_ms: int,
    move: Move,
) -> Error:
    """Begin the moves of one piece."""
    batches = partition.around(first, last)
    if not batches:
        return Error.INVALID_RECORD_STATE
    if batches[-1].last < last:
        return Error.INVALID_REQUEST
    if kind is AckType.RENEW and not limits.may_renew:
        return Error.INVALID_RECORD_STATE
    for batch in batches:
        held = batch.within(first, last)
        if not all(run.state is State.ACQUIRED and not run.is_moving and run.member == member for run in held):
            return Error.INVALID_RECORD_STATE
        _begin(partition, batch, batch.cut(first, last), kind, limits, now_ms, move)
    return Error.NONE


def _begin(
    partition: SharePartition,
    batch: Batch,
    runs: Sequence[Run],
    kind: AckType,
    limits: ShareLimits,
    now_ms: int,
    move: Move,
) -> None:
    """Change what a member holds."""
    if kind is AckType.RENEW:
        for run in runs:
            run.lock_ms = now_ms + limits.lock_ms
        partition.lock_ms = min(partition.lock_ms, now_ms + limits.lock_ms)
    else:
        for run in runs:
            match kind:
                case AckType.RELEASE:
                    state = partition.after_delivery(run, limits)
                case AckType.REJECT:
                    state = partition.after_rejection(limits)
                case _:
                    state = _AFTER[kind]
            partition.begin(move, run, state, is_rejected=kind is AckType.REJECT)
    if not move.batches or move.batches[-1] is not batch:
        move.batches.append(batch)
