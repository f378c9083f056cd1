"""Registered brokers (Kafka: the brokers of `ClusterImage`, `BrokerRegistration`, `ClusterDelta`)."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.errors import ReplayError
from metadata_log.image.persistent_map import Map, in_key_order, with_entry, without_key
from metadata_log.image.topics import LOST, MIGRATING, UNASSIGNED
from metadata_log.records.metadata import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.types import Uuid

FENCE: Final = 1
UNFENCE: Final = -1
ENTER_SHUTDOWN: Final = 1
NO_CHANGE: Final = 0


class Broker(Struct, frozen=True):
    """A broker's registration, with later changes.

    `epoch` distinguishes the broker's incarnations; `features` holds the supported levels, as (name, lowest, highest).
    Endpoints and features are sorted by name, because brokers send them in any order. `directories` are the online log
    directories in Kafka's order. `cordoned_directories` take no new replicas; None if the broker has never reported any
    (KIP-1066).
    """

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[tuple[str, int, int], ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    is_migrating_zk_broker: bool
    directories: tuple[Uuid, ...]
    cordoned_directories: tuple[Uuid, ...] | None

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead partitions and be in their ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online(self, directory: Uuid) -> bool:
        """Whether a log directory of a replica is online (`DirectoryId.isOnline`).

        A replica without a known directory counts as online. A registration without directories is older than
        directory ids (KIP-858).
        """
        if directory in {MIGRATING, UNASSIGNED}:
            return True
        return directory != LOST and (not self.directories or directory in self.directories)


class BrokersImage(Struct, frozen=True):
    """Every registered broker."""

    by_id: Map[int, Broker] = Map()


def replay_register_broker(image: BrokersImage, record: RegisterBrokerRecord) -> BrokersImage:
    """Set a broker's registration; raises `ReplayError` for a log directory of another broker."""
    for directory in record.log_dirs:
        _check_owner(image, record.broker_id, directory)
    broker = Broker(
        id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=tuple(sorted(record.end_points, key=attrgetter("name"))),
        features=tuple(
            sorted((one.name, one.min_supported_version, one.max_supported_version) for one in record.features)
        ),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        is_migrating_zk_broker=record.is_migrating_zk_broker,
        directories=in_kafkas_order(record.log_dirs),
        cordoned_directories=record.cordoned_log_dirs,
    )
    return BrokersImage(with_entry(image.by_id, broker.id, broker))


def replay_unregister_broker(image: BrokersImage, record: UnregisterBrokerRecord) -> BrokersImage:
    """Remove a broker; raises `ReplayError` unless the broker is registered with exactly this epoch."""
    return BrokersImage(without_key(image.by_id, _registered(image, record.broker_id, record.broker_epoch).id))


def replay_registration_change(image: BrokersImage, record: BrokerRegistrationChangeRecord) -> BrokersImage:
    """Change the named fields; raises `ReplayError` unless the broker is registered with exactly this epoch."""
    if record.fenced not in (FENCE, NO_CHANGE, UNFENCE):
        raise ReplayError(f"{record.fenced} is no fencing state for broker {record.broker_id}")
    if record.in_controlled_shutdown not in (ENTER_SHUTDOWN, NO_CHANGE):
        raise ReplayError(f"{record.in_controlled_shutdown} is no shutdown state for broker {record.broker_id}")
    old = _registered(image, record.broker_id, record.broker_epoch)
    for directory in record.log_dirs:
        _check_owner(image, old.id, directory)
    new = replace(
        old,
        fenced=old.fenced if record.fenced == NO_CHANGE else record.fenced == FENCE,
        in_controlled_shutdown=old.in_controlled_shutdown or record.in_controlled_shutdown == ENTER_SHUTDOWN,
        # An empty list means no change: a record cannot remove the last directory.
        directories=in_kafkas_order(record.log_dirs) if record.log_dirs else old.directories,
        cordoned_directories=old.cordoned_directories if record.cordoned_log_dirs is None else record.cordoned_log_dirs,
    )
    return BrokersImage(with_entry(image.by_id, new.id, new))


def in_kafkas_order(ids: tuple[Uuid, ...]) -> tuple[Uuid, ...]:
    """Ids in the order of Java: two signed numbers of 64 bits each."""
    return tuple(sorted(ids, key=_as_java))


def _as_java(uuid: Uuid) -> tuple[int, int]:
    return int.from_bytes(uuid[:8], "big", signed=True), int.from_bytes(uuid[8:], "big", signed=True)


def _registered(image: BrokersImage, broker_id: int, epoch: int) -> Broker:
    broker = image.by_id.get(broker_id)
    if broker is None:
        raise ReplayError(f"broker {broker_id} is not registered")
    if broker.epoch != epoch:
        raise ReplayError(f"broker {broker_id} is registered with epoch {broker.epoch}, not {epoch}")
    return broker


def _check_owner(image: BrokersImage, broker_id: int, directory: Uuid) -> None:
    for other_id, other in in_key_order(image.by_id):
        if other_id != broker_id and directory in other.directories:
            raise ReplayError(f"directory {directory} of broker {broker_id} belongs to broker {other_id}")
