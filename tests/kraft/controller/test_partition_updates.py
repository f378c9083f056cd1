"""The changes of all partitions of a broker: each as if it were decided alone, though only different ones are."""

from __future__ import annotations

from random import Random

import pytest

from kraft.config.data_settings import TopicDefaults
from kraft.controller.decision.topic_configs import unclean_election
from kraft.controller.topics import partition_updates as module
from kraft.controller.topics.leader_selection import Election
from kraft.controller.topics.partition_change import PartitionTarget, partition_change, record_version
from kraft.controller.topics.partition_updates import (
    NO_BROKER,
    BrokerUpdate,
    all_partitions,
    partition_updates,
    rules_by_topic,
)
from metadata_log.image import MetadataImage
from metadata_log.image.record_values import decode_records
from metadata_log.image.replaying import BatchReplay
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from metadata_log.types import OffsetAndEpoch, Uuid
from support.random_metadata import BROKERS, RandomCluster
from support.work_counted import lines_run

DEFAULTS = TopicDefaults(min_isr=2)
TOPIC = Uuid(b"t" * 16)
LINES_TO_DECIDE = 24
"""The most lines of Python for one partition of many that are alike, its encoding included."""
LINES_TO_REPLAY = 73
"""The same for a follower: to decode and to replay it."""


def one_by_one(
    image: MetadataImage, update: BrokerUpdate, defaults: TopicDefaults
) -> list[tuple[PartitionChangeRecord, bytes]]:
    """The changes and their values, each decided and encoded for itself."""
    rules = rules_by_topic(image, defaults, update)
    leaving = {update.removed, update.unclean}
    version = record_version(image.features.metadata_version or 0)
    found = []
    for topic_id, number, partition in all_partitions(image):
        isr = tuple(replica for replica in partition.isr if replica not in leaving)
        target = PartitionTarget(isr=isr, unclean_shutdown=() if update.unclean == NO_BROKER else (update.unclean,))
        unclean = unclean_election(image, image.topics.by_id[topic_id].name, defaults)
        election = Election.UNCLEAN if unclean else Election.ONLINE
        change = partition_change(topic_id, number, partition, target, rules(topic_id), election)
        if change is not None:
            found.append((change, encode_record(change, version)))
    return found


@pytest.mark.parametrize("most", [1, 4096])
@pytest.mark.parametrize("seed", range(8))
def test_alike_partitions_get_the_changes_that_each_would_get_alone(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PARTITION_SHAPES", most)
    rng = Random(seed)
    has_elr = seed % 2 == 0
    cluster = RandomCluster(rng, 30 if has_elr else rng.choice([11, 17, 30]), elr=has_elr)
    for _ in range(150):
        cluster.step()
    for topic in [cluster.image.topics[name] for name in cluster.image.topics]:
        for number, old in enumerate(topic.partitions * 2, len(topic.partitions)):
            cluster.write(
                PartitionRecord(
                    partition_id=number,
                    topic_id=topic.id,
                    replicas=old.replicas,
                    isr=old.isr,
                    removing_replicas=old.removing_replicas,
                    adding_replicas=old.adding_replicas,
                    leader=old.leader,
                    leader_recovery_state=old.leader_recovery_state,
                    leader_epoch=number,
                    partition_epoch=number + 1,
                    directories=old.directories,
                    eligible_leader_replicas=old.elr or None,
                    last_known_elr=old.last_known_elr or None,
                )
            )
    image = cluster.image
    changed = 0
    for broker in BROKERS:
        for defaults in (DEFAULTS, TopicDefaults(unclean_election=True)):
            for update in (BrokerUpdate(removed=broker), BrokerUpdate(added=broker), BrokerUpdate(unclean=broker)):
                made = [one for one in partition_updates(image, all_partitions(image), update, defaults) if one]
                assert [(one.record, one.value) for one in made] == one_by_one(image, update, defaults)
                assert all(one.version == record_version(image.features.metadata_version or 0) for one in made)
                changed += len(made)
    assert changed > 0


def led_by_one(count: int) -> MetadataImage:
    """Partitions of one topic that broker 1 leads."""
    cluster = RandomCluster(Random(1))
    for broker in (1, 2, 3):
        home = (Uuid(bytes([broker]) * 16),)
        cluster.write(RegisterBrokerRecord(broker_id=broker, broker_epoch=broker, fenced=False, log_dirs=home))
    cluster.write(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0))
    cluster.write(TopicRecord(name="t", topic_id=TOPIC))
    led = [
        PartitionRecord(
            partition_id=number,
            topic_id=TOPIC,
            replicas=(1, 2, 3),
            isr=(1, 2, 3),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple(Uuid(bytes([broker]) * 16) for broker in (1, 2, 3)),
        )
        for number in range(count)
    ]
    replay = BatchReplay(cluster.image, cluster.image.end.offset)
    replay.go_on(led)
    return replay.apply(OffsetAndEpoch(epoch=1, offset=cluster.image.end.offset + count))


def test_a_partition_more_is_a_few_lines_more_on_every_node() -> None:
    """A fenced broker may lead ten thousand: what is decided, encoded, decoded and replayed of each is counted."""
    few, many = led_by_one(100), led_by_one(1100)
    update = BrokerUpdate(removed=1)

    def decide(image: MetadataImage) -> list[bytes]:
        steps = partition_updates(image, all_partitions(image), update, DEFAULTS)
        return [one.value for one in steps if one is not None]

    def replay(image: MetadataImage, values: list[bytes]) -> None:
        batch = BatchReplay(image, image.end.offset)
        batch.go_on(list(decode_records(values)))
        batch.apply(OffsetAndEpoch(epoch=1, offset=image.end.offset + len(values)))

    assert len(decide(few)) == 100
    assert lines_run(lambda: decide(many)) - lines_run(lambda: decide(few)) <= LINES_TO_DECIDE * 1000
    values, more = decide(few), decide(many)
    assert lines_run(lambda: replay(many, more)) - lines_run(lambda: replay(few, values)) <= LINES_TO_REPLAY * 1000
