"""Updates partitions after a change of a broker's state (Kafka: `generateLeaderAndIsrUpdates`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final

from msgspec import Struct

from kraft.config.data_settings import TopicDefaults
from kraft.controller.decision.result import Records
from kraft.controller.decision.topic_configs import min_isr, unclean_election
from kraft.controller.topics.leader_selection import Election
from kraft.controller.topics.partition_change import UNCHANGED, PartitionTarget, Rules, partition_change, record_version
from kraft.limits import CHEAP_PER_STEP, PARTITION_SHAPES
from metadata_log.image import MetadataImage, Partition, TopicImage
from metadata_log.image.persistent_map import in_key_order, in_key_order_by_runs
from metadata_log.image.record_values import MakeChange, alike
from metadata_log.image.records import ELR_FEATURE
from metadata_log.image.topics import MIGRATING, UNASSIGNED
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import PartitionChangeRecord
from metadata_log.types import Uuid

NO_BROKER: Final = -1

Member = tuple[Uuid, int, Partition]
"""A partition by topic id and number, as in the index of the image."""
_Decided = dict[tuple[object, ...], MakeChange | None]
"""Changes by all that they depend on. Of the thousands of partitions of a broker most are alike."""


class BrokerUpdate(Struct, frozen=True):
    """A pending change of broker states, which the image does not contain yet.

    `removed` leaves each ISR. `added` already counts as active. `unclean` has restarted after an unclean shutdown.
    """

    removed: int = NO_BROKER
    added: int = NO_BROKER
    unclean: int = NO_BROKER


NO_UPDATE: Final = BrokerUpdate()


def is_active(image: MetadataImage, broker_id: int) -> bool:
    """Whether a broker is registered, unfenced and not in controlled shutdown, so that it may lead or enter an ISR."""
    broker = image.brokers.by_id.get(broker_id)
    return broker is not None and broker.is_active


def default_directory(image: MetadataImage, broker_id: int) -> Uuid:
    """The directory of a new replica: known in advance only on brokers with a single directory."""
    broker = image.brokers.by_id.get(broker_id)
    if broker is None:
        return UNASSIGNED
    if not broker.directories:
        return MIGRATING
    return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED


def acceptance(image: MetadataImage, update: BrokerUpdate = NO_UPDATE) -> Callable[[Partition, int], bool]:
    """A predicate that states whether a broker can lead a partition; use one for each decision.

    A fencing repeats the question for few brokers and thousands of partitions, so the predicate caches its answers.
    """

    @cache
    def can_lead(broker_id: int, directory: Uuid) -> bool:
        if broker_id in {update.removed, update.unclean}:
            return False
        if broker_id != update.added and not is_active(image, broker_id):
            return False
        broker = image.brokers.by_id.get(broker_id)
        return broker is None or broker.has_online(directory)

    def is_acceptable(partition: Partition, broker_id: int) -> bool:
        replicas = partition.replicas
        known = broker_id in replicas
        return can_lead(broker_id, partition.directories[replicas.index(broker_id)] if known else UNASSIGNED)

    return is_acceptable


def rules_by_topic(
    image: MetadataImage, defaults: TopicDefaults, update: BrokerUpdate = NO_UPDATE
) -> Callable[[Uuid], Rules]:
    """The cluster's state that a change of a topic's partitions depends on."""
    is_acceptable = acceptance(image, update)

    @cache
    def rules(topic_id: Uuid) -> Rules:
        return Rules(
            is_acceptable=is_acceptable,
            default_directory=lambda broker_id: default_directory(image, broker_id),
            metadata_version=image.features.metadata_version or 0,
            min_isr=min_isr(image, image.topics.by_id[topic_id], defaults),
            elr_enabled=image.features.level(ELR_FEATURE) > 0,
        )

    return rules


def versioned(image: MetadataImage, change: PartitionChangeRecord) -> VersionedRecord:
    """A change in the record version of the cluster's metadata.version."""
    return VersionedRecord(change, record_version(image.features.metadata_version or 0))


def change_of(
    image: MetadataImage,
    topic: TopicImage,
    number: int,
    target: PartitionTarget,
    defaults: TopicDefaults,
    election: Election = Election.ONLINE,
) -> list[VersionedRecord]:
    """The record that changes one partition to `target`, or none if nothing changes."""
    rules = rules_by_topic(image, defaults)(topic.id)
    change = partition_change(topic.id, number, topic.partitions[number], target, rules, election)
    return [] if change is None else [versioned(image, change)]


def all_partitions(image: MetadataImage) -> Iterator[Member]:
    """The partitions of the image, by topic id and number."""
    for topic_id, topic in in_key_order(image.topics.by_id):
        for number, partition in enumerate(topic.partitions):
            yield topic_id, number, partition


def all_partitions_by_steps(image: MetadataImage) -> Iterator[Member | None]:
    """As `all_partitions`, with an occasional None, at which the work may pause."""
    for entry in in_key_order_by_runs(image.topics.by_id):
        yield None
        if entry is not None:
            topic_id, topic = entry
            for number, partition in enumerate(topic.partitions):
                yield topic_id, number, partition


def where(members: Iterable[Member | None], matches: Callable[[Member], bool]) -> Iterator[Member | None]:
    """The members that match. None represents some that do not."""
    skipped = 0
    for member in members:
        if member is not None and matches(member):
            yield member
        else:
            skipped += 1
            if member is None or skipped % CHEAP_PER_STEP == 0:
                yield None


def partition_updates(
    image: MetadataImage, members: Iterable[Member | None], update: BrokerUpdate, defaults: TopicDefaults
) -> Records:
    """The changes that a broker's new state requires in these partitions.

    If the topic permits, an unclean election happens at once.
    """
    rules = rules_by_topic(image, defaults, update)

    @cache
    def election(topic_id: Uuid) -> Election:
        unclean = unclean_election(image, image.topics.by_id[topic_id].name, defaults)
        return Election.UNCLEAN if unclean else Election.ONLINE

    version = record_version(image.features.metadata_version or 0)
    leaving = {update.removed, update.unclean}
    unclean_shutdown = () if update.unclean == NO_BROKER else (update.unclean,)

    def change_like(topic_id: Uuid, number: int, partition: Partition) -> MakeChange | None:
        isr = tuple([replica for replica in partition.isr if replica not in leaving])
        target = PartitionTarget(isr=isr, unclean_shutdown=unclean_shutdown)
        change = partition_change(topic_id, number, partition, target, rules(topic_id), election(topic_id))
        return None if change is None else alike(change, version)

    decided: dict[tuple[int, Election], _Decided] = {}
    last: Uuid | None = None
    of_topic: _Decided = {}
    for member in members:
        if member is None:
            yield None
            continue
        topic_id, number, partition = member
        if topic_id is not last:
            last = topic_id
            of_topic = decided.setdefault((rules(topic_id).min_isr, election(topic_id)), {})
        shape = (
            partition.replicas,
            partition.directories,
            partition.isr,
            partition.removing_replicas,
            partition.adding_replicas,
            partition.elr,
            partition.last_known_elr,
            partition.leader,
            partition.leader_recovery_state,
        )
        try:
            make = of_topic[shape]
        except KeyError:
            if len(of_topic) >= PARTITION_SHAPES:
                of_topic.clear()
            make = of_topic[shape] = change_like(topic_id, number, partition)
        if make is None:
            yield None
        else:
            change, value = make(topic_id, number)
            yield VersionedRecord(change, version, value)


def elect_leaders(
    image: MetadataImage, members: Iterable[Member | None], election: Election, defaults: TopicDefaults
) -> Records:
    """The changes of a requested election (`ElectLeaders`), for the partitions that could be led better."""
    rules = rules_by_topic(image, defaults)

    def is_wanting(member: Member) -> bool:
        partition = member[2]
        wanted = partition.replicas[0] if election is Election.PREFERRED else partition.leader
        return not partition.leader == wanted != NO_BROKER

    for member in where(members, is_wanting):
        if member is None:
            yield None
            continue
        topic_id, number, partition = member
        change = partition_change(topic_id, number, partition, UNCHANGED, rules(topic_id), election)
        yield None if change is None else versioned(image, change)
