"""The feature levels that this controller supports, and the records of a first activation (Kafka: `QuorumFeatures`,
`FeatureControlManager`, `ActivationRecordsGenerator`; KIP-584, KIP-778).
"""

from __future__ import annotations

from typing import Final

from kraft.controller.decision.result import ControllerResult, VersionedRecord
from metadata_log.errors import MetadataLogError
from metadata_log.image import METADATA_VERSION, FeaturesImage, MetadataImage, ResourceType
from metadata_log.image.features import KRAFT_VERSION
from metadata_log.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from metadata_log.releases import FEATURES, LATEST_LEVEL, OLDEST_LEVEL
from metadata_log.serde import Message

ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
TRANSACTIONS_SINCE: Final = 13
"""The first metadata.version with metadata transactions (3.6-IV0)."""

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

DEFAULT_BOOTSTRAP: Final = (FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_LEVEL),)
"""The first record of a cluster whose directories hold none: no feature but the newest metadata.version, as in Kafka
(`BootstrapMetadata.fromVersion`).
"""


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


def activation(latest: MetadataImage, bootstrap: tuple[Message, ...], min_insync_replicas: int) -> ControllerResult:
    """The first records of a new active controller. There are none, unless the log is empty or a transaction is open.

    "Empty" means that no metadata.version has been replayed: the first leader may have failed during activation. Raises
    `MetadataLogError` for a state that no release of Kafka can produce.
    """
    is_open = latest.transaction is not None
    level = latest.features.metadata_version
    if level is not None:
        if not is_open:
            return ControllerResult()
        if level < TRANSACTIONS_SINCE:
            raise MetadataLogError(f"a metadata transaction is open at metadata.version {level}, which has none")
        return ControllerResult((_abort(),))
    return _first_activation(is_open, bootstrap, min_insync_replicas)


def _first_activation(is_open: bool, bootstrap: tuple[Message, ...], min_insync_replicas: int) -> ControllerResult:
    levels = {one.name: one.feature_level for one in bootstrap if isinstance(one, FeatureLevelRecord)}
    level = levels.get(METADATA_VERSION)
    if level is None:
        raise MetadataLogError(
            "the bootstrap records name no metadata.version",
            hint="Format the directory again: its first records are those of no release.",
        )
    transactional = level >= TRANSACTIONS_SINCE
    if is_open and not transactional:
        raise MetadataLogError(f"a metadata transaction is open and the bootstrap metadata.version is {level}")
    records: list[Message] = list(bootstrap)
    if levels.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0:
        # From now on the controller needs this value, which earlier only brokers read from their own files.
        records.append(
            ConfigRecord(
                resource_type=ResourceType.BROKER,
                resource_name="",
                name="min.insync.replicas",
                value=str(min_insync_replicas),
            )
        )
    framed = [VersionedRecord(one) for one in records]
    if not transactional:
        return ControllerResult(tuple(framed))
    begin = VersionedRecord(BeginTransactionRecord(name="Bootstrap records"))
    end = VersionedRecord(EndTransactionRecord())
    return ControllerResult((*((_abort(),) if is_open else ()), begin, *framed, end), is_atomic=False)


def _abort() -> VersionedRecord:
    return VersionedRecord(AbortTransactionRecord(reason="Controller failover"))
