"""Where two logs part: ends of leader epochs, for the leader and for the follower (KIP-101, KIP-279, KIP-595).

Kafka: `LeaderEpochFileCache.endOffsetFor`, `Partition.readRecords`, `AbstractFetcherThread.getOffsetTruncationState`.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from msgspec import Struct

from metadata_log.log.epochs import EpochHistory
from metadata_log.types import OffsetAndEpoch

_epoch = attrgetter("epoch")


def end_of_epoch(history: EpochHistory, epoch: int, log_end: int) -> OffsetAndEpoch | None:
    """The largest known epoch up to `epoch`, and the offset where the next one begins.

    Args:
        history: The epochs of a log.
        epoch: The epoch that is asked for.
        log_end: The end of the log: there the newest epoch ends, not at the high watermark.

    Returns:
        The epoch and its end; for an epoch before the first one, that epoch and the start of the first one. None if the
        log does not know: its epochs are older, or there are none.
    """
    if epoch < 0 or not history.entries or epoch > history.entries[-1].epoch:
        return None
    if epoch == history.entries[-1].epoch:
        return OffsetAndEpoch(epoch=epoch, offset=log_end)
    higher = bisect_right(history.entries, epoch, key=_epoch)
    known = history.entries[higher - 1].epoch if higher else epoch
    return OffsetAndEpoch(epoch=known, offset=history.entries[higher].offset)


class Truncation(Struct, frozen=True):
    """A follower's truncation: the new end, and whether the logs agree below that end for sure."""

    offset: int
    is_complete: bool


def truncation(history: EpochHistory, log_end: int, leader: OffsetAndEpoch) -> Truncation:
    """Where a follower truncates its log, given the end of an epoch in the leader's log.

    Args:
        history: The epochs of the follower's log.
        log_end: The end of the follower's log.
        leader: The epoch and its end as the leader has them.

    Returns:
        The new end. The truncation is not complete if the follower does not know the leader's epoch either: then the
        next fetch asks again, with an older epoch.
    """
    own = end_of_epoch(history, leader.epoch, log_end)
    if own is None:
        return Truncation(min(leader.offset, log_end), is_complete=True)
    if own.epoch != leader.epoch:
        return Truncation(min(own.offset, log_end), is_complete=False)
    return Truncation(min(own.offset, leader.offset, log_end), is_complete=True)


def absurdity(history: EpochHistory, leader: OffsetAndEpoch) -> str | None:
    """Why no sound leader gives this end of an epoch to a follower; None for an end by which a log may be cut.

    A leader names the epoch of the last record of the follower, or an earlier one. Below the log start and the high
    watermark a cut is legal, after an unclean election.

    Args:
        history: The epochs of the follower's log, as in its request.
        leader: The answer.
    """
    if leader.offset < 0:
        return f"its leader ends epoch {leader.epoch} at offset {leader.offset}"
    last = history.last_epoch
    if last is None or leader.epoch > last:
        return f"its leader answers with epoch {leader.epoch}, and the last record here has {last}"
    return None
