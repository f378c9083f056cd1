"""A follower whose leader has the next records in tiered storage alone asks what it needs to follow the local log. If
the leader does not tell it, the follower waits, keeps its log, and says so once.

That it follows is in `tests/kraft/broker/request/test_tiered_topics.py`, with a leader that answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
from msgspec.structs import replace

from kraft.partitions.replicas import ReplicaManager
from metadata_log.image import MetadataImage
from metadata_log.records import metadata as records
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.serde import Message
from support.broker.data_brokers import KEY, NOW_MS, TOPIC, cluster, new_topic, part_of, replayed, started
from transport.protocol.errors import Error
from transport.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from transport.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from transport.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

LEADER, FOLLOWER = 1, 2
BROKER_EPOCH = 1000 + FOLLOWER
MOVED = PartitionData(
    partition_index=0,
    error_code=Error.OFFSET_MOVED_TO_TIERED_STORAGE,
    high_watermark=90,
    log_start_offset=5,
    aborted_transactions=None,
    records=b"",
)


def moved(**fields: int) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC, partitions=[replace(MOVED, **fields)])])


def local(offset: int, epoch: int, error: int = 0) -> ListOffsetsResponse:
    part = ListOffsetsPartitionResponse(0, error, -1, offset, epoch)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[part])])


def end(epoch: int, offset: int, error: int = 0) -> OffsetForLeaderEpochResponse:
    part = EpochEndOffset(error_code=error, leader_epoch=epoch, end_offset=offset)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("t", [part])])


def active(*told: ProducerState, error: int = 0) -> DescribeProducersResponse:
    part = PartitionResponse(error_code=error, active_producers=list(told))
    return DescribeProducersResponse(topics=[TopicResponse("t", [part])])


KNOWN: Final = (moved(), local(60, 9), end(4, 30), end(3, 5))
"""What leads to the question for the producers: epoch 9 begins at 30, epoch 4 at the log start."""
FAULTS: Final[dict[str, tuple[Sequence[Message], str]]] = {
    "local start without an epoch": ((moved(), local(60, -1)), "NONE"),
    "no local start": ((moved(), local(-1, 9)), "NONE"),
    "local start before the log start": ((moved(), local(4, 9)), "NONE"),
    "negative log start": ((moved(log_start_offset=-1), local(60, 9)), "NONE"),
    "unknown epoch": ((moved(), local(60, 9), end(-1, -1)), "NONE"),
    "refused epoch": ((moved(), local(60, 9), end(-1, -1, Error.UNKNOWN_LEADER_EPOCH)), "UNKNOWN_LEADER_EPOCH"),
    "epoch that does not fall": ((moved(), local(60, 9), end(9, 30)), "NONE"),
    "epoch that ends behind the local start": ((moved(), local(60, 9), end(4, 61)), "NONE"),
    "epoch that ends where the next one does": ((moved(), local(60, 9), end(4, 30), end(3, 30)), "NONE"),
    "no right to read": ((*KNOWN, active(error=Error.TOPIC_AUTHORIZATION_FAILED)), "TOPIC_AUTHORIZATION_FAILED"),
    "negative producer": ((*KNOWN, active(ProducerState(producer_id=-1))), "NONE"),
    "absurd producer epoch": ((*KNOWN, active(ProducerState(producer_epoch=1 << 15))), "NONE"),
    "absurd sequence": ((*KNOWN, active(ProducerState(last_sequence=-2))), "NONE"),
    "transaction in tiered storage": ((*KNOWN, active(ProducerState(current_txn_start_offset=59))), "NONE"),
}
"""Answers that no sound leader gives, or that refuse, and the error that is reported."""


def started_with(tiered: str = "true") -> ReplicaManager:
    setting = records.ConfigRecord(resource_type=2, resource_name="t", name="remote.storage.enable", value=tiered)
    return started(FOLLOWER, replayed(image(), setting))


def asked(manager: ReplicaManager, answers: Sequence[Message], now_ms: int) -> None:
    for answer in answers:
        request = manager.followers.request(LEADER, BROKER_EPOCH, now_ms)
        assert type(request).__name__.removesuffix("Request") == type(answer).__name__.removesuffix("Response")
        manager.followers.on_answer(LEADER, answer, now_ms)


@pytest.mark.parametrize(("answers", "error"), FAULTS.values(), ids=FAULTS)
def test_it_waits_for_what_it_is_not_told(answers: Sequence[Message], error: str) -> None:
    manager = started_with()
    backoff_ms = manager.settings.replication.fetch_backoff_ms
    for turn in range(3):
        now_ms = NOW_MS + turn * backoff_ms
        asked(manager, answers, now_ms)
        assert manager.followers.request(LEADER, BROKER_EPOCH, now_ms + backoff_ms - 1) is None
    log = part_of(manager).log
    assert (log.start_offset, log.high_watermark, log.end_offset) == (0, 0, 0), "it takes nothing of such an answer"
    assert manager.findings == [
        "t-0 waits at offset 0: its leader has what follows in tiered storage alone, and does not tell what is needed "
        f"to follow its local log ({error})"
    ]


def test_it_begins_at_the_local_start() -> None:
    manager = started_with()
    told = (ProducerState(7, 3, 20, NOW_MS, 2), ProducerState(8, 0, -1, NOW_MS, 4, 60))
    asked(manager, (*KNOWN, active(*told)), NOW_MS)
    log = part_of(manager).log
    assert (log.start_offset, log.local_start, log.end_offset, log.high_watermark) == (5, 60, 60, 60)
    assert [(one.epoch, one.offset) for one in log.epochs.entries] == [(4, 5), (9, 30)]
    states = log.producers.states.producers
    assert [(one.epoch, one.last_sequence, one.timestamp, one.coordinator_epoch) for one in states.values()] == [
        (3, 20, NOW_MS, 2),
        (0, -1, NOW_MS, 4),
    ]
    assert log.producers.states.first_unstable_offset is None
    assert log.producers.snapshots == [60]
    assert isinstance(manager.followers.request(LEADER, BROKER_EPOCH, NOW_MS), FetchRequest)


def test_a_topic_without_tiered_storage_waits() -> None:
    manager = started_with("false")
    asked(manager, (moved(), local(60, 9)), NOW_MS)
    assert part_of(manager).log.end_offset == 0
    assert len(manager.findings) == 1


def image() -> MetadataImage:
    return replayed(cluster(LEADER, FOLLOWER), *new_topic((LEADER, FOLLOWER)))


def test_another_leader_may_have_the_whole_log() -> None:
    manager = started_with()
    backoff_ms = manager.settings.replication.fetch_backoff_ms
    refused = moved(), local(60, -1)
    asked(manager, refused, NOW_MS)
    records_of = write_batch([Record(0, NOW_MS, 0, None, b"a")], epoch=0)
    sound = replace(MOVED, error_code=0, high_watermark=0, log_start_offset=0, records=records_of)
    whole = FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC, partitions=[sound])])
    asked(manager, (whole,), NOW_MS + backoff_ms)
    assert part_of(manager).log.end_offset == 1
    later = replayed(image(), records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=LEADER))
    manager.on_image(later)
    manager.on_partition(KEY, later.topics.by_id[TOPIC].partitions[0], NOW_MS)
    asked(manager, refused, NOW_MS + 9 * backoff_ms)
    assert len(manager.findings) == 2, "once for each leader epoch"
