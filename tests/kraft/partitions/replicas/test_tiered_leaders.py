"""A follower whose leader has the next records in tiered storage alone: it waits, keeps its log, and says so once."""

from __future__ import annotations

from msgspec.structs import replace

from kraft.partitions.replicas import ReplicaManager
from metadata_log.image import MetadataImage
from metadata_log.records import metadata as records
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from support.broker.data_brokers import KEY, NOW_MS, TOPIC, cluster, new_topic, part_of, replayed, started
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

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


def image() -> MetadataImage:
    return replayed(cluster(LEADER, FOLLOWER), *new_topic((LEADER, FOLLOWER)))


def answered(manager: ReplicaManager, data: PartitionData, now_ms: int) -> None:
    request = manager.followers.request(LEADER, BROKER_EPOCH, now_ms)
    assert isinstance(request, FetchRequest)
    topic = FetchableTopicResponse(topic_id=TOPIC, partitions=[data])
    manager.followers.on_answer(LEADER, FetchResponse(responses=[topic]), now_ms)


def test_it_waits_and_asks_again() -> None:
    manager = started(FOLLOWER, image())
    sound = replace(MOVED, error_code=0, high_watermark=0, log_start_offset=0)
    backoff_ms = manager.settings.replication.fetch_backoff_ms
    for turn in range(3):
        now_ms = NOW_MS + turn * backoff_ms
        answered(manager, MOVED, now_ms)
        assert manager.followers.request(LEADER, BROKER_EPOCH, now_ms + backoff_ms - 1) is None
    log = part_of(manager).log
    assert (log.start_offset, log.high_watermark, log.end_offset) == (0, 0, 0), "it takes nothing of such an answer"
    assert manager.findings == [
        "t-0 waits at offset 0: its leader has what follows in tiered storage alone, which this broker does not read"
    ]
    # Another leader may have the whole log, and this one may have less in tiered storage later.
    answered(
        manager,
        replace(sound, records=write_batch([Record(0, NOW_MS, 0, None, b"a")], epoch=0)),
        NOW_MS + 3 * backoff_ms,
    )
    assert log.end_offset == 1
    later = replayed(image(), records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=LEADER))
    manager.on_image(later)
    manager.on_partition(KEY, later.topics.by_id[TOPIC].partitions[0], NOW_MS)
    answered(manager, MOVED, NOW_MS + 9 * backoff_ms)
    assert len(manager.findings) == 2, "once for each leader epoch"
