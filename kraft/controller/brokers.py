"""The records that change a broker's state (Kafka: `ReplicationControlManager.handleBrokerFenced` and its neighbours).

Partitions move away before a broker is marked, and come back after it: a reader between the two sees no leader that
cannot lead.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from kraft.controller.partition_updates import (
    ELR_FEATURE,
    NOBODY,
    BrokerUpdate,
    Member,
    all_partitions_by_steps,
    partition_updates,
    where,
)
from kraft.controller.result import Records, VersionedRecord
from kraft.controller.topic_configs import TopicDefaults
from metadata_log.image import Broker, MetadataImage
from metadata_log.image.topics import memberships_by_steps
from metadata_log.records.metadata import BrokerRegistrationChangeRecord, UnregisterBrokerRecord

_FENCE: Final = 1
_UNFENCE: Final = -1
_ENTER_SHUTDOWN: Final = 1
_LEADERLESS: Final = NOBODY


def fence(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> Records:
    """The broker is gone: its session has expired, or its shutdown was granted."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=_FENCE)
    yield from _moves_away(image, broker.id, defaults)
    yield VersionedRecord(change)


def unfence(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> Records:
    """The broker is back: partitions without a leader that it can lead get one."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=_UNFENCE)
    leaderless = memberships_by_steps(image.topics, _LEADERLESS)
    yield VersionedRecord(change)
    yield from partition_updates(image, leaderless, BrokerUpdate(added=broker.id), defaults)


def begin_controlled_shutdown(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> Records:
    """The broker wants to stop: leaders move while it still serves."""
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=_ENTER_SHUTDOWN
    )
    if not broker.in_controlled_shutdown:
        yield VersionedRecord(change, 1)
    yield from _moves_away(image, broker.id, defaults)


def restart(image: MetadataImage, broker_id: int, defaults: TopicDefaults, *, is_clean: bool) -> Records:
    """A new incarnation of a broker registers: what the former one was in sync for is no longer served.

    After an unclean shutdown it may lack committed records, so that it is not eligible to lead, either (KIP-966).
    """
    if is_clean or image.features.level(ELR_FEATURE) == 0:
        yield from _moves_away(image, broker_id, defaults)
    else:
        everywhere = _everywhere(image, broker_id)
        yield from partition_updates(image, everywhere, BrokerUpdate(unclean=broker_id), defaults)


def unregister(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> Records:
    """The broker is removed for good. It stays eligible where it was: only an unclean shutdown ends that.

    The partitions that it is eligible in are looked at all the same, as by Kafka: something else may be due there.
    """
    change = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    everywhere = _everywhere(image, broker.id)
    yield from partition_updates(image, everywhere, BrokerUpdate(removed=broker.id), defaults)
    yield VersionedRecord(change)


def leads_something(image: MetadataImage, broker_id: int) -> Generator[None, None, bool]:
    """Whether a broker leads a partition."""
    for member in where(memberships_by_steps(image.topics, broker_id), lambda member: member[2].leader == broker_id):
        if member is not None:
            return True
        yield None
    return False


def eligible_memberships(image: MetadataImage, broker_id: int) -> Iterator[Member | None]:
    """The partitions that a broker is an eligible leader replica of. There is no index: this is asked for rarely."""
    return where(all_partitions_by_steps(image), lambda member: broker_id in member[2].elr)


def _everywhere(image: MetadataImage, broker_id: int) -> Iterator[Member | None]:
    yield from memberships_by_steps(image.topics, broker_id)
    yield from eligible_memberships(image, broker_id)


def _moves_away(image: MetadataImage, broker_id: int, defaults: TopicDefaults) -> Records:
    return partition_updates(
        image, memberships_by_steps(image.topics, broker_id), BrokerUpdate(removed=broker_id), defaults
    )
