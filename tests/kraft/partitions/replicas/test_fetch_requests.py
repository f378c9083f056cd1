"""A follower's request names the partitions that have moved since its last one, and no others."""

from __future__ import annotations

from kraft.partitions.replicas import ReplicaManager
from metadata_log.records import metadata as records
from support.broker.data_brokers import NOW_MS, TOPIC, batch, cluster, directory_id, new_topic, replayed, started
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

FOLLOWER, LEADER = 1, 2
EPOCH = 1000 + FOLLOWER
SESSION = 5
PARTITIONS = 4


def follower() -> ReplicaManager:
    """A broker that follows every partition of a topic."""
    replicas = (LEADER, FOLLOWER)
    more = [
        records.PartitionRecord(
            partition_id=number,
            topic_id=TOPIC,
            replicas=replicas,
            isr=replicas,
            leader=LEADER,
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple(directory_id(one) for one in replicas),
        )
        for number in range(1, PARTITIONS)
    ]
    return started(FOLLOWER, replayed(cluster(FOLLOWER, LEADER), *new_topic(replicas), *more))


def asked(manager: ReplicaManager, now_ms: int) -> tuple[dict[int, tuple[int, int]], list[int]]:
    """Fetch offset and log start of the partitions that the next request names, and those that the request forgets."""
    request = manager.followers.request(LEADER, EPOCH, now_ms)
    assert isinstance(request, FetchRequest)
    named = {
        part.partition: (part.fetch_offset, part.log_start_offset)
        for topic in request.topics
        for part in topic.partitions
    }
    return named, [number for topic in request.forgotten_topics_data for number in topic.partitions]


def answer(manager: ReplicaManager, now_ms: int, *parts: PartitionData, error: Error = Error.NONE) -> None:
    topics = [FetchableTopicResponse(topic_id=TOPIC, partitions=list(parts))] if parts else []
    manager.followers.on_answer(LEADER, FetchResponse(error_code=error, session_id=SESSION, responses=topics), now_ms)


def data(number: int, records_: bytes = b"", *, watermark: int = 0, start: int = 0) -> PartitionData:
    """The answer for a partition; the records get the epoch 0 of the leader."""
    return PartitionData(
        partition_index=number,
        high_watermark=watermark,
        log_start_offset=start,
        aborted_transactions=None,
        records=records_[:12] + bytes(4) + records_[16:] if records_ else b"",
    )


def test_a_request_names_the_partitions_that_moved() -> None:
    manager, now_ms = follower(), NOW_MS
    assert asked(manager, now_ms) == (dict.fromkeys(range(PARTITIONS), (0, 0)), [])
    answer(manager, now_ms, *(data(number) for number in range(PARTITIONS)))
    assert asked(manager, now_ms) == ({}, [])
    answer(manager, now_ms, data(1, batch(b"a", b"b"), watermark=2))
    assert asked(manager, now_ms) == ({1: (2, 0)}, [])
    answer(manager, now_ms, data(1, watermark=2, start=1))
    assert asked(manager, now_ms) == ({1: (2, 1)}, [])
    answer(manager, now_ms)
    assert asked(manager, now_ms) == ({}, [])


def test_a_delayed_partition_leaves_the_session_and_returns_after_the_backoff() -> None:
    manager, now_ms = follower(), NOW_MS
    asked(manager, now_ms)
    answer(manager, now_ms, *(data(number) for number in range(PARTITIONS)))
    asked(manager, now_ms)
    answer(manager, now_ms, PartitionData(partition_index=2, error_code=Error.NOT_LEADER_OR_FOLLOWER, records=b""))
    assert asked(manager, now_ms) == ({}, [2])
    answer(manager, now_ms)
    now_ms += manager.settings.replication.fetch_backoff_ms
    assert asked(manager, now_ms) == ({2: (0, 0)}, [])


def test_a_request_after_a_lost_session_names_all_partitions() -> None:
    manager, now_ms = follower(), NOW_MS
    asked(manager, now_ms)
    answer(manager, now_ms, *(data(number, batch(b"a")) for number in range(PARTITIONS)))
    asked(manager, now_ms)
    answer(manager, now_ms, error=Error.FETCH_SESSION_ID_NOT_FOUND)
    assert asked(manager, now_ms) == (dict.fromkeys(range(PARTITIONS), (1, 0)), [])


def test_a_new_leader_epoch_and_a_lost_partition_change_the_session() -> None:
    manager, now_ms = follower(), NOW_MS
    asked(manager, now_ms)
    answer(manager, now_ms, *(data(number) for number in range(PARTITIONS)))
    image = replayed(cluster(FOLLOWER, LEADER), *new_topic((LEADER, FOLLOWER)))
    partition = image.topics.by_id[TOPIC].partitions[0]
    led = replayed(image, records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=FOLLOWER))
    manager.on_partition((TOPIC, 1), led.topics.by_id[TOPIC].partitions[0], now_ms)
    raised = replayed(image, records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=LEADER))
    assert raised.topics.by_id[TOPIC].partitions[0].leader_epoch == partition.leader_epoch + 1
    manager.on_partition((TOPIC, 2), raised.topics.by_id[TOPIC].partitions[0], now_ms)
    assert asked(manager, now_ms) == ({2: (0, 0)}, [1])
