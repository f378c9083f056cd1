"""Brokers and their disks fail and return: our controllers write what Kafka's write, and all replicas come back."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartitionReplica
from kafka.admin import ConfigResource, KafkaAdminClient
from kafka.errors import InvalidReplicationFactorError

from metadata_log import replay
from metadata_log.disk import OsDisk
from metadata_log.image import MetadataImage, Partition, ResourceType
from metadata_log.reading.entries import Entry, read_entries
from metadata_log.reading.reader import read_file
from metadata_log.records.batch import RecordBatch
from metadata_log.records.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord, RegisterBrokerRecord
from support.interop.broker_cluster import BROKERS, NO_LEADER, BrokerCluster, broker_cluster
from support.interop.dumps import logs_of
from support.interop.mixed_quorum import TERMINATED, Make
from support.interop.real_kafka import KafkaInstallation, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
TOPICS = {
    "everywhere": {0: [101, 102, 103], 1: [102, 103, 101], 2: [103, 101, 102]},
    "twice": {0: [102, 101]},
    "alone": {0: [101]},
}
MOVED = (("everywhere", 1), ("twice", 0))
MAKES: tuple[Make, ...] = ("kafka", "ours")
Name = tuple[str, int]
Written = dict[tuple[object, ...], list[tuple[object, ...]]]


def watched(image: MetadataImage) -> dict[Name, Partition]:
    """The partitions that this is about."""
    return {(topic, number): image.topics[topic].partitions[number] for topic in TOPICS for number in TOPICS[topic]}


def partitions(cluster: BrokerCluster) -> dict[Name, Partition]:
    """The present state of the watched partitions."""
    return watched(cluster.image())


def is_whole(cluster: BrokerCluster) -> bool:
    """Whether every replica is in sync, and no partition lacks a leader or has eligible leader replicas."""
    return all(
        sorted(one.isr) == sorted(one.replicas) and one.leader != NO_LEADER and not one.elr and not one.last_known_elr
        for one in partitions(cluster).values()
    )


def lost(cluster: BrokerCluster, *brokers: int) -> None:
    """Kill brokers one after the other, each once the controllers have fenced the last one."""
    for broker in brokers:
        cluster.brokers[broker].kill()
        eventually(lambda broker=broker: cluster.registration(broker).fenced, f"broker {broker} is missed")


def returned(cluster: BrokerCluster, *brokers: int) -> None:
    """Start brokers one after the other, each when the last one is in sync wherever there is a leader."""
    for broker in brokers:
        cluster.start_broker(broker)
        cluster.wait_until_started(broker)
        eventually(
            lambda broker=broker: all(
                broker in one.isr or broker not in one.replicas or one.leader == NO_LEADER
                for one in partitions(cluster).values()
            ),
            f"broker {broker} is in sync",
        )


def story_of_brokers(cluster: BrokerCluster) -> None:
    """Stop, kill, kill and start at once, kill all; a clean restart and unclean ones (KIP-966)."""
    assert cluster.brokers[101].stop(timeout=120) == TERMINATED
    assert 101 not in {one.leader for one in partitions(cluster).values()}
    returned(cluster, 101)
    eventually(lambda: is_whole(cluster), "the stopped one is back")

    lost(cluster, 102)
    returned(cluster, 102)
    eventually(lambda: is_whole(cluster), "the killed one is back")

    epoch = cluster.registration(103).epoch
    cluster.brokers[103].kill()
    returned(cluster, 103)
    assert cluster.registration(103).epoch > epoch
    eventually(lambda: is_whole(cluster), "the one that was away for a moment is back")

    lost(cluster, 103, 102)
    first = partitions(cluster)["everywhere", 0]
    assert (first.isr, first.elr) == ((101,), (102,))
    returned(cluster, 103, 102)
    eventually(lambda: is_whole(cluster), "two are back")

    lost(cluster, 102)
    assert cluster.brokers[103].stop(timeout=120) == TERMINATED
    lost(cluster, 101)
    assert {one.leader for one in partitions(cluster).values()} == {NO_LEADER}
    returned(cluster, 103)
    returned(cluster, 101, 102)
    eventually(lambda: is_whole(cluster), "all are back")


def written_to(partition: Path) -> Written:
    """The records of each watched partition, in order, and of each registration, without ids that are drawn.

    The changes of a registration are a set, since that of cordoned directories may come before or after the unfencing.
    Fencing is left out: the session of a broker may run out before it is back, or it may just have been let in.
    """
    topics = {replay(str(partition)).topics[name].id: name for name in TOPICS}
    registrations: Counter[int] = Counter()
    found: Written = defaultdict(list)
    for entry in entries_of(partition):
        match entry.record:
            case PartitionChangeRecord() as record if record.topic_id in topics:
                isr = None if record.isr is None else sorted(record.isr)
                state = (isr, record.leader, record.leader_recovery_state)
                spare = (record.eligible_leader_replicas, record.last_known_elr)
                found[topics[record.topic_id], record.partition_id].append((*state, *spare))
            case RegisterBrokerRecord() as record:
                registrations[record.broker_id] += 1
                facts = (record.fenced, record.in_controlled_shutdown, len(record.log_dirs), record.rack)
                found["broker", record.broker_id, registrations[record.broker_id]].append(facts)
            case BrokerRegistrationChangeRecord() as record if record.fenced != 1:
                changed = (record.fenced, record.in_controlled_shutdown, len(record.log_dirs), record.cordoned_log_dirs)
                of = found["broker", record.broker_id, registrations[record.broker_id]]
                if changed not in of:
                    of.append(changed)
    return {of: sorted(records, key=repr) if of[0] == "broker" else records for of, records in found.items()}


def entries_of(partition: Path) -> Iterator[Entry]:
    """The records of a metadata log."""
    for file in logs_of([partition]):
        for batch in read_file(OsDisk(), str(file)):
            if isinstance(batch, RecordBatch):
                yield from (entry for entry in read_entries(batch, str(file)) if isinstance(entry, Entry))


def administrator(cluster: BrokerCluster) -> Any:
    """kafka-python's admin client, closed at the end of the block."""
    return closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(",")))


@contextmanager
def with_topics(kafka: KafkaInstallation, root: Path, make: Make) -> Iterator[BrokerCluster]:
    """Brokers with the topics, and controllers of this make."""
    with broker_cluster(kafka, root, make) as cluster:
        with administrator(cluster) as admin:
            configs = {"min.insync.replicas": "2"}
            wanted = {name: {"assignments": replicas, "configs": configs} for name, replicas in TOPICS.items()}
            admin.create_topics(wanted, wait_for_metadata=True)
        yield cluster


@pytest.fixture(scope="module", params=MAKES)
def cluster(
    request: pytest.FixtureRequest, kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster]:
    """The same brokers, first with Kafka's controllers, then with ours."""
    with with_topics(kafka, tmp_path_factory.mktemp(request.param), request.param) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def stories() -> dict[Make, Written]:
    """The records of the story of brokers, by the make of the controllers."""
    return {}


def written_in_the_story(cluster: BrokerCluster) -> Written:
    """The records of the story of brokers."""
    story_of_brokers(cluster)
    return written_to(cluster.partitions()[cluster.leader()])


def test_brokers(
    cluster: BrokerCluster, stories: dict[Make, Written], kafka: KafkaInstallation, tmp_path: Path
) -> None:
    """The records of each partition and each broker are the same with controllers of either make."""
    stories[cluster.make] = written_in_the_story(cluster)
    if "kafka" not in stories:  # This case has its turn without the other one.
        with with_topics(kafka, tmp_path, "kafka") as reference:
            stories["kafka"] = written_in_the_story(reference)
    first = stories["kafka"]
    for of, records in stories[cluster.make].items():
        assert records == first[of], of


def on_disk(image: MetadataImage, broker: int, directory: object) -> set[Name]:
    """The watched partitions that a broker has in a directory."""
    return {
        name
        for name, one in watched(image).items()
        if broker in one.replicas and one.directories[one.replicas.index(broker)] == directory
    }


def test_disks(cluster: BrokerCluster) -> None:
    """Replicas move between two directories of a broker; one directory fails, and is mended."""
    broker, (first, second) = 102, cluster.log_dirs(102)
    with administrator(cluster) as admin:
        admin.alter_replica_log_dirs({TopicPartitionReplica(*name, broker): str(second) for name in MOVED})
    eventually(
        lambda: any(
            set(MOVED) <= on_disk(cluster.image(), broker, one) for one in cluster.registration(broker).directories
        ),
        "the replicas are in the second directory",
    )
    # The broker tells the controller first, and then lets the copy take the place of the log.
    former = [first / f"{topic}-{partition}" for topic, partition in MOVED]
    eventually(lambda: not any(path.exists() for path in former), "the logs in the first directory are gone")
    eventually(lambda: is_whole(cluster), "all replicas are in sync")
    image = cluster.image()
    place = watched(image)[MOVED[0]].directories[0]
    there = on_disk(image, broker, place)
    away = second.with_name("away")
    second.rename(away)
    second.touch()

    eventually(lambda: place not in cluster.registration(broker).directories, "the directory is reported")
    assert not cluster.registration(broker).fenced
    for name, one in partitions(cluster).items():
        assert (broker in one.isr) == (broker in one.replicas and name not in there), name
        assert one.leader != broker or name not in there

    assert cluster.brokers[broker].stop(timeout=120) == TERMINATED
    second.unlink()
    away.rename(second)
    returned(cluster, broker)
    eventually(lambda: is_whole(cluster), "all replicas are in sync again")
    assert place in cluster.registration(broker).directories


def test_cordoned_directories(cluster: BrokerCluster) -> None:
    """A broker gets no new replicas while all of its directories are cordoned (KIP-1066)."""
    broker, key = 103, "cordoned.log.dirs"
    with administrator(cluster) as admin:

        def cordon(value: str) -> None:
            admin.alter_configs([ConfigResource("BROKER", str(broker), {key: value})], raise_on_unknown=False)
            expected = len(cluster.registration(broker).directories) if value else 0
            eventually(
                lambda: len(cluster.registration(broker).cordoned_directories or ()) == expected, "it is reported"
            )
            assert cluster.image().configs.of((ResourceType.BROKER, str(broker)))[key] == value

        cordon("*")
        admin.create_topics({"elsewhere": {"num_partitions": 6, "replication_factor": 2}})
        assert {id for one in cluster.image().topics["elsewhere"].partitions for id in one.replicas} == {101, 102}
        with pytest.raises(InvalidReplicationFactorError):
            admin.create_topics({"too-wide": {"num_partitions": 1, "replication_factor": len(BROKERS)}})
        cordon("")
        admin.create_topics({"too-wide": {"num_partitions": 1, "replication_factor": len(BROKERS)}})
