"""What a leader knows of one follower, from the follower's fetches (Kafka: `Replica`, `ReplicaState`)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.broker.partitions.watermarks import UNKNOWN_OFFSET, is_caught_up
from kraft.broker.settings import NO_EPOCH

_NEVER_MS: Final = 0
"""The time of an event that has not happened under this leadership."""


class RemoteReplica(Struct):
    """A follower as its leader sees it. Times are ms since 1970.

    Args:
        broker_epoch: The incarnation of the broker that fetched; -1 if unknown.
        start_offset: The log start of the follower; -1 before its first fetch.
        end_offset: The end of the follower's log; -1 before its first fetch.
        caught_up_ms: When the follower last had every record of the leader; 0 if never.
        leader_end: The end of the leader's log at the last fetch; -1 before the first one.
        fetched_ms: When the follower last fetched.
    """

    broker_epoch: int = NO_EPOCH
    start_offset: int = UNKNOWN_OFFSET
    end_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = _NEVER_MS
    leader_end: int = UNKNOWN_OFFSET
    fetched_ms: int = _NEVER_MS

    def on_fetch(self, fetch_offset: int, start_offset: int, leader_end: int, broker_epoch: int, now_ms: int) -> None:
        """Note a fetch (`Replica.updateFetchStateOrThrow`).

        A fetch at the end of the leader's log proves that the follower is caught up now. A fetch at the end that the
        log had at the fetch before proves that the follower was caught up then: a leader that grows all the time is
        never reached exactly.
        """
        if fetch_offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif fetch_offset >= self.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.start_offset, self.end_offset = start_offset, fetch_offset
        self.leader_end = max(self.leader_end, leader_end)
        self.fetched_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether the follower has the whole log, or had it within `replica.lag.time.max.ms`."""
        return is_caught_up(self.end_offset, leader_end, self.caught_up_ms, now_ms, lag_time_max_ms)


def at_new_epoch(known: RemoteReplica | None, *, is_in_isr: bool, leader_end: int, now_ms: int) -> RemoteReplica:
    """A follower at the start of a leader epoch (`Replica.resetReplicaState`).

    Args:
        known: What this broker knew under its last leadership, if that ended with the epoch before; else None.
        is_in_isr: Whether the follower is in the ISR; a member has the full lag time to fetch.
        leader_end: The end of the leader's log.
        now_ms: The time in ms since 1970.
    """
    since_ms = now_ms if is_in_isr else _NEVER_MS
    if known is None:
        return RemoteReplica(caught_up_ms=since_ms)
    return RemoteReplica(known.broker_epoch, known.start_offset, known.end_offset, since_ms, leader_end, since_ms)
