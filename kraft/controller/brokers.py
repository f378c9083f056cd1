"""The records that change a broker's state (Kafka: `ReplicationControlManager.handleBrokerFenced` and its neighbours).

Partitions move away before a broker is marked, and come back after it: a reader between the two sees no leader that
cannot lead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft.controller.partition_updates import (
    ELR_FEATURE,
    NOBODY,
    BrokerUpdate,
    Member,
    all_partitions,
    partition_updates,
)
from kraft.controller.result import VersionedRecord
from kraft.controller.topic_configs import TopicDefaults
from metadata_log.image import Broker, MetadataImage, memberships
from metadata_log.records.metadata import BrokerRegistrationChangeRecord, UnregisterBrokerRecord

_FENCE: Final = 1
_UNFENCE: Final = -1
_ENTER_SHUTDOWN: Final = 1
_LEADERLESS: Final = NOBODY


def fence(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> list[VersionedRecord]:
    """The broker is gone: its session has expired, or its shutdown was granted."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=_FENCE)
    return [*_moves_away(image, broker.id, defaults), VersionedRecord(change)]


def unfence(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> list[VersionedRecord]:
    """The broker is back: partitions without a leader that it can lead get one."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=_UNFENCE)
    leaderless = memberships(image.topics, _LEADERLESS)
    return [VersionedRecord(change), *partition_updates(image, leaderless, BrokerUpdate(added=broker.id), defaults)]


def begin_controlled_shutdown(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> list[VersionedRecord]:
    """The broker wants to stop: leaders move while it still serves."""
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=_ENTER_SHUTDOWN
    )
    marked = [] if broker.in_controlled_shutdown else [VersionedRecord(change, 1)]
    return [*marked, *_moves_away(image, broker.id, defaults)]


def restart(image: MetadataImage, broker_id: int, defaults: TopicDefaults, *, is_clean: bool) -> list[VersionedRecord]:
    """A new incarnation of a broker registers: what the former one was in sync for is no longer served.

    After an unclean shutdown it may lack committed records, so that it is not eligible to lead, either (KIP-966).
    """
    members = memberships(image.topics, broker_id)
    if is_clean or image.features.level(ELR_FEATURE) == 0:
        return list(partition_updates(image, members, BrokerUpdate(removed=broker_id), defaults))
    everywhere = (*members, *eligible_memberships(image, broker_id))
    return list(partition_updates(image, everywhere, BrokerUpdate(unclean=broker_id), defaults))


def unregister(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> list[VersionedRecord]:
    """The broker is removed for good. It stays eligible where it was: only an unclean shutdown ends that.

    The partitions that it is eligible in are looked at all the same, as by Kafka: something else may be due there.
    """
    change = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    everywhere = (*memberships(image.topics, broker.id), *eligible_memberships(image, broker.id))
    return [*partition_updates(image, everywhere, BrokerUpdate(removed=broker.id), defaults), VersionedRecord(change)]


def leads_something(image: MetadataImage, broker_id: int) -> bool:
    """Whether a broker leads a partition."""
    return any(partition.leader == broker_id for _, _, partition in memberships(image.topics, broker_id))


def eligible_memberships(image: MetadataImage, broker_id: int) -> Iterator[Member]:
    """The partitions that a broker is an eligible leader replica of. There is no index: this is asked for rarely."""
    return (member for member in all_partitions(image) if broker_id in member[2].elr)


def _moves_away(image: MetadataImage, broker_id: int, defaults: TopicDefaults) -> list[VersionedRecord]:
    return list(
        partition_updates(image, memberships(image.topics, broker_id), BrokerUpdate(removed=broker_id), defaults)
    )
