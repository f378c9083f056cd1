"""The feature levels that controllers and brokers support (Kafka: `QuorumFeatures`; KIP-584, KIP-778)."""

from __future__ import annotations

from typing import Final

from metadata_log.errors import MetadataLogError
from metadata_log.image import METADATA_VERSION, FeaturesImage
from metadata_log.image.features import KRAFT_VERSION
from metadata_log.releases import FEATURES, LATEST_LEVEL, OLDEST_LEVEL

ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"

REFUSALS_OF_4_4: Final = 31
"""The metadata.version (4.4-IV0) from which a controller refuses what 4.4.0 refuses and 4.3.1 takes."""
GROUPS_OF_4_4: Final = REFUSALS_OF_4_4
"""The metadata.version from which a coordinator writes the records of groups as 4.4.0 does, and not as 4.3.1."""

SUPPORTED_FEATURES: Final[tuple[tuple[str, int, int], ...]] = (
    *sorted(
        (
            (KRAFT_VERSION, 0, 1),
            (METADATA_VERSION, OLDEST_LEVEL, LATEST_LEVEL),
            *((name, 0, feature.highest) for name, feature in FEATURES.items()),
        )
    ),
)
"""Each feature's lowest and highest supported level, by name."""


def check_supported(features: FeaturesImage) -> None:
    """Stop if the software does not support the finalized levels of the cluster; raises `MetadataLogError`."""
    ranges = {name: (lowest, highest) for name, lowest, highest in SUPPORTED_FEATURES}
    for name, level in features.all_levels():
        if name not in ranges:
            raise MetadataLogError(f"the cluster uses feature {name}, which this software does not know")
        lowest, highest = ranges[name]
        if not lowest <= level <= highest:
            raise MetadataLogError(
                f"the cluster uses {name} {level}, and this software supports {lowest} to {highest}",
                hint="Run a release that supports the level on every node.",
            )
