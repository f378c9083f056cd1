"""The records of a first activation (Kafka: `ActivationRecordsGenerator`, `FeatureControlManager`; KIP-778)."""

from __future__ import annotations

from typing import Final

from kraft.controller.decision.result import ControllerResult
from kraft.supported_features import ELIGIBLE_LEADER_REPLICAS
from metadata_log.errors import MetadataLogError
from metadata_log.image import METADATA_VERSION, MetadataImage, ResourceType
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from metadata_log.releases import LATEST_LEVEL
from metadata_log.serde import Message

TRANSACTIONS_SINCE: Final = 13
"""The first metadata.version with metadata transactions (3.6-IV0)."""

DEFAULT_BOOTSTRAP: Final = (FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_LEVEL),)
"""The first record of a cluster whose directories hold none: no feature but the newest metadata.version, as in Kafka
(`BootstrapMetadata.fromVersion`).
"""


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
