"""Finalized feature levels (Kafka: `FeaturesImage`, `FeaturesDelta`; KIP-584)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from metadata_log.image.persistent_map import Map, with_entry, without_key
from metadata_log.records.metadata import FeatureLevelRecord

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
DIRECTORIES_SINCE: Final = 17
"""The first metadata.version with the log directory of each replica (KIP-858)."""
CORDONED_SINCE: Final = 30
"""The first metadata.version with directories that take no new replicas (KIP-1066)."""


class FeaturesImage(Struct, frozen=True):
    """The finalized levels. `metadata_version` is None before the first FeatureLevelRecord: controllers treat such a
    log as empty.

    `finalized` holds the levels of all other features; a feature at level 0 is not in the map.
    """

    metadata_version: int | None = None
    finalized: Map[str, int] = Map()

    def level(self, name: str) -> int:
        """The level of a feature; 0 if it is not finalized."""
        if name == METADATA_VERSION:
            return self.metadata_version or 0
        return self.finalized.get(name, 0)

    def all_levels(self) -> tuple[tuple[str, int], ...]:
        """Every finalized feature with its level, metadata.version among them, by name."""
        levels = dict(self.finalized)
        if self.metadata_version is not None:
            levels[METADATA_VERSION] = self.metadata_version
        return tuple(sorted(levels.items()))


def replay_feature_level(image: FeaturesImage, record: FeatureLevelRecord) -> FeaturesImage:
    """Set a level. kraft.version belongs to control records; as in Kafka, a feature record of that name is ignored."""
    if record.name == METADATA_VERSION:
        return FeaturesImage(record.feature_level, image.finalized)
    if record.name == KRAFT_VERSION:
        return image
    if record.feature_level == 0:
        without = without_key(image.finalized, record.name) if record.name in image.finalized else image.finalized
        return FeaturesImage(image.metadata_version, without)
    return FeaturesImage(image.metadata_version, with_entry(image.finalized, record.name, record.feature_level))
