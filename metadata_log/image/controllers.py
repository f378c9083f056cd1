"""Registered controllers (Kafka: the controllers of `ClusterImage`, `ControllerRegistration`; KIP-919)."""

from __future__ import annotations

from operator import attrgetter

from msgspec import Struct

from metadata_log.errors import ReplayError
from metadata_log.image.persistent_map import Map, with_entry, without_key
from metadata_log.records.metadata import ControllerEndpoint, RegisterControllerRecord, UnregisterControllerRecord
from metadata_log.types import Uuid


class ControllerRegistration(Struct, frozen=True):
    """A controller's registration; `incarnation_id` is random for each start of its process.

    `features` holds the supported levels, as (name, lowest, highest). Endpoints and features are sorted by name.
    `zk_migration_ready` is a leftover of 3.x.
    """

    id: int
    incarnation_id: Uuid
    endpoints: tuple[ControllerEndpoint, ...]
    features: tuple[tuple[str, int, int], ...]
    zk_migration_ready: bool = False


class ControllersImage(Struct, frozen=True):
    """The last registration of every controller."""

    by_id: Map[int, ControllerRegistration] = Map()


def replay_register_controller(image: ControllersImage, record: RegisterControllerRecord) -> ControllersImage:
    """Set a controller's registration."""
    registration = ControllerRegistration(
        record.controller_id,
        record.incarnation_id,
        tuple(sorted(record.end_points, key=attrgetter("name"))),
        tuple(sorted((one.name, one.min_supported_version, one.max_supported_version) for one in record.features)),
        record.zk_migration_ready,
    )
    return ControllersImage(with_entry(image.by_id, record.controller_id, registration))


def replay_unregister_controller(image: ControllersImage, record: UnregisterControllerRecord) -> ControllersImage:
    """Remove a controller's registration; raises `ReplayError` without one."""
    if record.controller_id not in image.by_id:
        raise ReplayError(f"controller {record.controller_id} is not registered")
    return ControllersImage(without_key(image.by_id, record.controller_id))
