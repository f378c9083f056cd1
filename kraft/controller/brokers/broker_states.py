"""Makes the records that change a broker's state (Kafka: `ReplicationControlManager.handleBrokerFenced` and similar).

Partition changes precede the record that fences a broker, and follow the record that unfences it. A reader between
the two records sees no leader that cannot lead.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from kraft.config.data_settings import TopicDefaults
from kraft.controller.decision.result import Records
from kraft.controller.topics.partition_updates import (
    NO_BROKER,
    BrokerUpdate,
    Member,
    all_partitions_by_steps,
    partition_updates,
    where,
)
from metadata_log.image import Broker, MetadataImage
from metadata_log.image.brokers import ENTER_SHUTDOWN, FENCE, UNFENCE
from metadata_log.image.records import ELR_FEATURE
from metadata_log.image.topics import memberships_by_steps
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import BrokerRegistrationChangeRecord, UnregisterBrokerRecord

_LEADERLESS: Final = NO_BROKER


def fence(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> Records:
    """Fence a broker after its session expired, or after its controlled shutdown was granted."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE)
    yield from _moves_away(image, broker.id, defaults)
    yield VersionedRecord(change)


def unfence(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> Records:
    """Unfence a broker, and elect it for each partition without a leader that it can lead."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE)
    leaderless = memberships_by_steps(image.topics, _LEADERLESS)
    yield VersionedRecord(change)
    yield from partition_updates(image, leaderless, BrokerUpdate(added=broker.id), defaults)


def begin_controlled_shutdown(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> Records:
    """Begin a controlled shutdown: move leadership away while the broker still serves."""
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=ENTER_SHUTDOWN
    )
    if not broker.in_controlled_shutdown:
        yield VersionedRecord(change, 1)
    yield from _moves_away(image, broker.id, defaults)


def restart(image: MetadataImage, broker_id: int, defaults: TopicDefaults, *, is_clean: bool) -> Records:
    """Remove a restarted broker from the ISR of each of its partitions.

    After an unclean shutdown the broker may lack committed records. It then also leaves each ELR (KIP-966).
    """
    if is_clean or image.features.level(ELR_FEATURE) == 0:
        yield from _moves_away(image, broker_id, defaults)
    else:
        everywhere = _everywhere(image, broker_id)
        yield from partition_updates(image, everywhere, BrokerUpdate(unclean=broker_id), defaults)


def unregister(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> Records:
    """Remove a broker for good. The broker stays in each ELR, because only an unclean shutdown ends eligibility.

    As in Kafka, the partitions with the broker in their ELR are examined, since another change may be due there.
    """
    change = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    everywhere = _everywhere(image, broker.id)
    yield from partition_updates(image, everywhere, BrokerUpdate(removed=broker.id), defaults)
    yield VersionedRecord(change)


def leads_something(image: MetadataImage, broker_id: int) -> Generator[None, None, bool]:
    """Whether a broker leads at least one partition."""
    for member in where(memberships_by_steps(image.topics, broker_id), lambda member: member[2].leader == broker_id):
        if member is not None:
            return True
        yield None
    return False


def eligible_memberships(image: MetadataImage, broker_id: int) -> Iterator[Member | None]:
    """The partitions with the broker in their ELR. There is no index, because such searches are rare."""
    return where(all_partitions_by_steps(image), lambda member: broker_id in member[2].elr)


def _everywhere(image: MetadataImage, broker_id: int) -> Iterator[Member | None]:
    yield from memberships_by_steps(image.topics, broker_id)
    yield from eligible_memberships(image, broker_id)


def _moves_away(image: MetadataImage, broker_id: int, defaults: TopicDefaults) -> Records:
    return partition_updates(
        image, memberships_by_steps(image.topics, broker_id), BrokerUpdate(removed=broker_id), defaults
    )
