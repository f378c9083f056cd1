"""An image as the records of a snapshot (Kafka: `MetadataImage.write`, `ImageWriterOptions`).

The families are in Kafka's order. Within a family, where Kafka follows its hash maps, the records are in key order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from metadata_log.image.acls import acl_record
from metadata_log.image.brokers import Broker
from metadata_log.image.controllers import ControllerRegistration
from metadata_log.image.features import CORDONED_SINCE, DIRECTORIES_SINCE, METADATA_VERSION, FeaturesImage
from metadata_log.image.image import MetadataImage
from metadata_log.image.persistent_map import in_key_order, in_key_order_by_runs
from metadata_log.image.quotas import in_entity_order
from metadata_log.image.tokens import token_record
from metadata_log.image.topics import Partition, TopicsImage
from metadata_log.records.metadata import (
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerFeature,
    EntityData,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from metadata_log.serde import Message
from metadata_log.types import NO_NODE, Uuid

ELR_FEATURE: Final = "eligible.leader.replicas.version"
_OLDEST_METADATA_VERSION: Final = 7
_SCRAM_SINCE: Final = 11
TOKENS_SINCE: Final = 14
_CONTROLLERS_SINCE: Final = 15
_ELR_SINCE: Final = 23
_MIGRATION_SINCE: Final = 8

Versioned = tuple[Message, int]
"""A record and the version for its encoding."""


def records(image: MetadataImage) -> Iterator[Versioned]:
    """The records that create this image, at its metadata.version; content beyond that version is left out.

    During a transaction its changes are left out too. An image without a metadata.version is written as at the oldest.
    """
    return (entry for entry in records_by_steps(image) if entry is not None)


def records_by_steps(image: MetadataImage) -> Iterator[Versioned | None]:
    """As `records`, with None from time to time, where work may pause."""
    image = image.stable
    level = image.features.metadata_version or _OLDEST_METADATA_VERSION
    yield from _features(image.features)
    for _, broker in in_key_order(image.brokers.by_id):
        yield register_broker(broker, level)
    if level >= _CONTROLLERS_SINCE:
        for _, controller in in_key_order(image.controllers.by_id):
            yield _register_controller(controller), 0
    yield from _topics(image.topics, level, elr=image.features.level(ELR_FEATURE) > 0)
    for entry in in_key_order_by_runs(image.configs.by_resource):
        if entry is None:
            yield None
            continue
        (kind, resource), values = entry
        for name, value in in_key_order(values):
            yield ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value), 0
    for entity, quotas in in_entity_order(image.quotas):
        data = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
        for key, quota in in_key_order(quotas):
            yield ClientQuotaRecord(entity=data, key=key, value=quota, remove=False), 0
    if image.producer_ids.next_producer_id >= 0:
        yield (
            ProducerIdsRecord(broker_id=NO_NODE, broker_epoch=-1, next_producer_id=image.producer_ids.next_producer_id),
            0,
        )
    yield from _acls(image)
    if level >= _SCRAM_SINCE:
        yield from _scram(image)
    if level >= TOKENS_SINCE:
        yield from _tokens(image)


def partition_version(metadata_version: int) -> int:
    """The version of Partition and PartitionChange records under a metadata.version."""
    if metadata_version >= _ELR_SINCE:
        return 2
    return 1 if metadata_version >= DIRECTORIES_SINCE else 0


def register_broker_version(metadata_version: int) -> int:
    """The version of RegisterBroker records under a metadata.version."""
    if metadata_version >= CORDONED_SINCE:
        return 4
    if metadata_version >= DIRECTORIES_SINCE:
        return 3
    return 2 if metadata_version >= _MIGRATION_SINCE else 1


def _features(features: FeaturesImage) -> Iterator[Versioned]:
    if features.metadata_version is not None:
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=features.metadata_version), 0
    for name, level in in_key_order(features.finalized):
        yield FeatureLevelRecord(name=name, feature_level=level), 0


def register_broker(broker: Broker, metadata_version: int) -> Versioned:
    """The registration record of a broker, with all later changes included."""
    cordoned = broker.cordoned_directories if metadata_version >= CORDONED_SINCE else None
    record = RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker and metadata_version >= _MIGRATION_SINCE,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=broker.endpoints,
        features=tuple(
            BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, lowest, highest in broker.features
        ),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.directories if metadata_version >= DIRECTORIES_SINCE else (),
        cordoned_log_dirs=cordoned,
    )
    return record, register_broker_version(metadata_version)


def _register_controller(controller: ControllerRegistration) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=controller.endpoints,
        features=tuple(
            ControllerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, lowest, highest in controller.features
        ),
    )


def _topics(topics: TopicsImage, metadata_version: int, *, elr: bool) -> Iterator[Versioned | None]:
    version = partition_version(metadata_version)
    for entry in in_key_order_by_runs(topics.by_id):
        if entry is None:
            yield None
            continue
        topic_id, topic = entry
        yield TopicRecord(name=topic.name, topic_id=topic_id), 0
        for number, partition in enumerate(topic.partitions):
            yield partition_record(topic_id, number, partition, metadata_version, elr=elr), version


def partition_record(
    topic_id: Uuid, number: int, partition: Partition, metadata_version: int, *, elr: bool
) -> PartitionRecord:
    """The record of a partition. Eligible leader replicas are written only if there are any and the feature is on."""
    return PartitionRecord(
        number,
        topic_id,
        partition.replicas,
        partition.isr,
        partition.removing_replicas,
        partition.adding_replicas,
        partition.leader,
        partition.leader_recovery_state,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.directories if metadata_version >= DIRECTORIES_SINCE else (),
        (partition.elr or None) if elr else None,
        (partition.last_known_elr or None) if elr else None,
    )


def _acls(image: MetadataImage) -> Iterator[Versioned | None]:
    for entry in in_key_order_by_runs(image.acls.by_id):
        yield None if entry is None else (acl_record(*entry), 0)


def _scram(image: MetadataImage) -> Iterator[Versioned | None]:
    for entry in in_key_order_by_runs(image.scram.by_user):
        if entry is None:
            yield None
            continue
        name, credentials = entry
        for mechanism, credential in in_key_order(credentials):
            yield (
                UserScramCredentialRecord(
                    name=name,
                    mechanism=mechanism,
                    salt=credential.salt,
                    stored_key=credential.stored_key,
                    server_key=credential.server_key,
                    iterations=credential.iterations,
                ),
                0,
            )


def _tokens(image: MetadataImage) -> Iterator[Versioned | None]:
    for entry in in_key_order_by_runs(image.tokens.by_id):
        yield None if entry is None else (token_record(entry[1]), 0)
