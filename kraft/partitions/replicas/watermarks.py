"""The arithmetic of high watermark and ISR (Kafka: `Partition.maybeIncrementLeaderHW`, `PartitionState`).

A leaf: plain numbers in, numbers out. The tests compare each function with a brute-force definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def maximal_isr(isr: Sequence[int], proposed: Sequence[int] | None) -> tuple[int, ...]:
    """Every replica that the controller may hold for a member of the ISR.

    Args:
        isr: The committed ISR.
        proposed: The ISR that was requested from the controller; None without an open request.

    Returns:
        The brokers in ascending order: the committed ISR and, of a proposal that adds replicas, the added ones. A
        proposal that removes replicas removes nothing before the controller has accepted the request.
    """
    return tuple(sorted({*isr, *(proposed or ())}))


def effective_min_isr(min_isr: int, replica_count: int) -> int:
    """The least number of members in sync for a write with acks=all, and for the watermark to move.

    Args:
        min_isr: The setting `min.insync.replicas`.
        replica_count: The number of assigned replicas.
    """
    return min(min_isr, replica_count)


def next_high_watermark(
    current: int, leader_end: int, follower_ends: Iterable[int], *, isr_size: int, min_isr: int
) -> int:
    """The high watermark of a leader; a watermark never falls here.

    Args:
        current: The present high watermark.
        leader_end: The end of the leader's log.
        follower_ends: The end of the log of each follower that holds the watermark back: the members of the maximal
            ISR, and the followers that are about to join; `NO_OFFSET` before the first fetch.
        isr_size: The number of members of the committed ISR, the leader included.
        min_isr: The effective min ISR. Below it the watermark stands still (KIP-966).
    """
    if isr_size < min_isr:
        return current
    return max(current, min((leader_end, *follower_ends)))


def is_caught_up(end: int, leader_end: int, caught_up_ms: int, now_ms: int, lag_time_max_ms: int) -> bool:
    """Whether a follower has the whole log, or had it recently (`Replica.isCaughtUp`).

    Args:
        end: The end of the follower's log.
        leader_end: The end of the leader's log.
        caught_up_ms: When the follower last had the whole log, in ms since 1970.
        now_ms: The time in ms since 1970.
        lag_time_max_ms: The setting `replica.lag.time.max.ms`.
    """
    return end == leader_end or now_ms - caught_up_ms <= lag_time_max_ms


def may_join(end: int, high_watermark: int, epoch_start: int) -> bool:
    """Whether a follower has caught up far enough for the ISR (`Partition.isFollowerInSync`).

    Args:
        end: The end of the follower's log.
        high_watermark: The high watermark of the leader.
        epoch_start: The end of the leader's log at the start of its leader epoch: a follower below that offset may
            still lack committed records, because the watermark of a new leader may be behind.
    """
    return end >= high_watermark and end >= epoch_start
