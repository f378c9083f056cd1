"""The log directories of a broker that take no new replicas (Kafka: `LogManager.cordonedLogDirs`; KIP-1066)."""

from __future__ import annotations

from collections.abc import Iterable

from kraft.config.definitions import CORDONED, elements
from kraft.partitions.replicas.settings import DataSettings
from metadata_log.image import MetadataImage, ResourceType
from metadata_log.image.features import CORDONED_SINCE
from metadata_log.types import Uuid


def cordoned_directories(
    image: MetadataImage, broker_id: int, places: Iterable[tuple[Uuid, str]], file: str
) -> frozenset[Uuid]:
    """The directories of a broker that take no new replicas, by its dynamic configuration or else by its file.

    Args:
        image: The metadata.
        broker_id: The broker.
        places: Its directories, with their paths.
        file: `cordoned.log.dirs` in its file.
    """
    own = image.configs.of((ResourceType.BROKER, str(broker_id)))
    named = elements(own.get(CORDONED, file))
    return frozenset(directory for directory, path in places if path in named or "*" in named)


def knows_cordoned(image: MetadataImage) -> bool:
    """Whether the cluster's level has cordoned directories."""
    return (image.features.metadata_version or 0) >= CORDONED_SINCE


def cordoned_by(settings: DataSettings, image: MetadataImage) -> frozenset[Uuid]:
    """The directories of the broker with these settings that take no new replicas."""
    places = ((one.id, one.path) for one in settings.directories)
    return cordoned_directories(image, settings.broker_id, places, settings.static.get(CORDONED, ""))
