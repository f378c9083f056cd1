"""The answers of a leader to a follower with another history, and which fetches count as progress."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.wire import Answer
from metadata_log.records import metadata as records
from support.broker.request_brokers import Brokers, NewTopic, batch, epoch_of, only_partition, produce, topic_id
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, FetchTopic, ReplicaState

KEY = (topic_id(1), 0)


def brokers_with_two_epochs() -> Brokers:
    """101 leads in epoch 1: offsets 0 to 2 are of epoch 0, and 3 of epoch 1. The follower 102 has everything."""
    brokers = Brokers([NewTopic("t", KEY[0], ((101, 102),))])
    brokers.ask(101, produce(KEY, batch(b"a", b"b", b"c"), acks=1))
    brokers.replicate(KEY)
    brokers.change(records.PartitionChangeRecord(partition_id=0, topic_id=KEY[0], leader=101))
    brokers.ask(101, produce(KEY, batch(b"d"), acks=1))
    brokers.replicate(KEY)
    return brokers


def fetch_as_102(
    offset: int,
    last_epoch: int,
    *,
    wait_ms: int = 0,
    leader_epoch: int = 1,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    wanted = FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=0,
        partition_max_bytes=1 << 20,
    )
    return FetchRequest(
        replica_state=ReplicaState(102, epoch_of(102)),
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=[FetchTopic(topic_id=KEY[0], partitions=[wanted])],
        session_id=session_id,
        session_epoch=session_epoch,
    )


def remote(brokers: Brokers) -> Any:
    """The follower as the leader knows it."""
    leading = brokers.part(101, KEY).leading
    assert leading is not None
    return leading.remotes[102]


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        (3, 0, None),
        (4, 1, None),
        (2, 0, None),
        (4, 0, EpochEndOffset(0, 3)),  # has a record of epoch 0 that this leader has not
        (6, 1, EpochEndOffset(1, 4)),
    ],
)
def test_a_follower_with_another_history_learns_where_the_logs_part(
    offset: int, last_epoch: int, diverging: EpochEndOffset | None
) -> None:
    brokers = brokers_with_two_epochs()
    part = only_partition(brokers.ask(101, fetch_as_102(offset, last_epoch)))
    assert (part.error_code, part.high_watermark) == (0, 4)
    assert part.diverging_epoch == (diverging or EpochEndOffset())
    assert (part.records == b"") == (diverging is not None or offset == 4)


def test_a_follower_that_has_truncated_its_log_is_told_the_watermark_again() -> None:
    brokers = brokers_with_two_epochs()
    apart = brokers.ask(101, fetch_as_102(6, 1, session_epoch=0))
    assert only_partition(apart).diverging_epoch == EpochEndOffset(1, 4)
    told = only_partition(brokers.ask(101, fetch_as_102(4, 1, session_id=apart.session_id, session_epoch=1)))
    assert (told.high_watermark, told.records, told.diverging_epoch) == (4, b"", EpochEndOffset())
    known = brokers.ask(101, fetch_as_102(4, 1, session_id=apart.session_id, session_epoch=2))
    assert known.responses == []


def test_an_epoch_that_the_leader_does_not_know_is_out_of_range() -> None:
    part = only_partition(brokers_with_two_epochs().ask(101, fetch_as_102(2, 5)))
    assert (part.error_code, part.high_watermark) == (Error.OFFSET_OUT_OF_RANGE, -1)


def test_a_fetch_with_another_history_is_no_progress() -> None:
    brokers = brokers_with_two_epochs()
    before = remote(brokers).end_offset
    brokers.now_ms += 100
    brokers.ask(101, fetch_as_102(6, 1))
    assert (remote(brokers).end_offset, remote(brokers).fetched_ms) == (before, brokers.now_ms - 100)
    brokers.ask(101, fetch_as_102(4, 1))
    assert remote(brokers).fetched_ms == brokers.now_ms


def test_only_the_first_read_of_a_fetch_is_progress() -> None:
    brokers = brokers_with_two_epochs()
    first_ms = brokers.now_ms
    _, outcome = brokers.send(101, fetch_as_102(4, 1, wait_ms=5000))
    assert outcome is None
    brokers.now_ms += 1000
    brokers.ask(101, produce(KEY, batch(b"e"), acks=1))
    [answer] = brokers.poll(101)
    assert isinstance(answer, Answer)
    assert only_partition(answer.message).records
    assert (remote(brokers).end_offset, remote(brokers).fetched_ms) == (4, first_ms)


def test_a_truncation_of_the_leader_ends_the_wait_of_a_follower() -> None:
    """An unclean leader elsewhere and back again: the log of 101 is shorter than what 102 has."""
    brokers = brokers_with_two_epochs()
    _, outcome = brokers.send(101, fetch_as_102(4, 1, wait_ms=5000))
    assert (outcome, brokers.poll(101)) == (None, [])
    brokers.change(records.PartitionChangeRecord(partition_id=0, topic_id=KEY[0], leader=102))
    [answer] = brokers.poll(101)
    assert isinstance(answer, Answer)
    assert only_partition(answer.message).error_code == Error.FENCED_LEADER_EPOCH
