"""The cluster's metadata at one offset, and how records change it (Kafka: `MetadataImage`, `MetadataDelta`).

An image never changes. A `MetadataDelta` is the only mutable thing: it collects records and makes the next image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.errors import MetadataLogError
from metadata_log.image.configs import ConfigsImage, replay_config
from metadata_log.image.controllers import ControllersImage, replay_register_controller
from metadata_log.image.features import FeaturesImage, replay_feature_level
from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch

NOTHING: Final = OffsetAndEpoch(epoch=0, offset=0)


class OpenTransaction(Struct, frozen=True):
    """A metadata transaction that has begun and not ended (KIP-866, `MetadataTransaction`).

    `start_offset` is the offset of its BeginTransaction record, `before` the image that an abort returns to.
    """

    start_offset: int
    name: str | None
    before: MetadataImage


class MetadataImage(Struct, frozen=True):
    """Everything that the records below `end.offset` say, all families in one value.

    `end` is the offset after the last replayed record and the epoch of that record. `features_offset` is that of the
    last record of the batch that last changed a feature level, or -1: the epoch of the finalized features (KIP-584).
    """

    end: OffsetAndEpoch = NOTHING
    features: FeaturesImage = FeaturesImage()
    configs: ConfigsImage = ConfigsImage()
    controllers: ControllersImage = ControllersImage()
    transaction: OpenTransaction | None = None
    features_offset: int = -1

    @property
    def stable(self) -> MetadataImage:
        """What may be shown to others: while a transaction is open, the image from before it."""
        return self if self.transaction is None else self.transaction.before


class ReplayError(MetadataLogError):
    """A record contradicts the image it is applied to: the log does not follow its own rules."""


class MetadataDelta:
    """One batch of changes in the making; the image it starts from never changes."""

    __slots__ = ("_features_before", "_features_offset", "configs", "controllers", "end", "features", "transaction")

    def __init__(self, image: MetadataImage) -> None:
        self._features_before = image.features
        self._features_offset = image.features_offset
        self._restore(image)

    def _restore(self, image: MetadataImage) -> None:
        self.end = image.end
        self.features = image.features
        self.configs = image.configs
        self.controllers = image.controllers
        self.transaction = image.transaction

    def replay(self, record: Message, offset: int) -> None:
        """Apply the record at `offset`; raises `ReplayError` for one that no correct controller would have written."""
        change = _CHANGES.get(type(record))
        if change is None:
            raise ReplayError(f"a {type(record).__name__} at offset {offset} is no metadata record")
        change(self, record, offset)

    def apply(self, end: OffsetAndEpoch) -> MetadataImage:
        """The image with everything replayed so far, as that of `end`."""
        features = self.features
        features_offset = self._features_offset if features is self._features_before else end.offset - 1
        return MetadataImage(end, features, self.configs, self.controllers, self.transaction, features_offset)


def _change_feature(delta: MetadataDelta, record: records.FeatureLevelRecord, offset: int) -> None:
    delta.features = replay_feature_level(delta.features, record)


def _change_config(delta: MetadataDelta, record: records.ConfigRecord, offset: int) -> None:
    delta.configs = replay_config(delta.configs, record)


def _change_controller(delta: MetadataDelta, record: records.RegisterControllerRecord, offset: int) -> None:
    delta.controllers = replay_register_controller(delta.controllers, record)


def _begin_transaction(delta: MetadataDelta, record: records.BeginTransactionRecord, offset: int) -> None:
    if delta.transaction is not None:
        began = delta.transaction.start_offset
        raise ReplayError(f"a transaction begins at offset {offset} while the one from offset {began} is open")
    delta.transaction = OpenTransaction(offset, record.name, delta.apply(replace(delta.end, offset=offset)))


def _end_transaction(delta: MetadataDelta, record: records.EndTransactionRecord, offset: int) -> None:
    if delta.transaction is None:
        raise ReplayError(f"a transaction ends at offset {offset} and none is open")
    delta.transaction = None


def _abort_transaction(delta: MetadataDelta, record: records.AbortTransactionRecord, offset: int) -> None:
    if delta.transaction is None:
        raise ReplayError(f"a transaction is aborted at offset {offset} and none is open")
    delta._restore(delta.transaction.before)


def _pass_over(delta: MetadataDelta, record: Message, offset: int) -> None:
    """The record changes nothing in any family that is kept so far."""


Change = Callable[[MetadataDelta, Any, int], None]
_CHANGES: Final[dict[type[Message], Change]] = {
    records.FeatureLevelRecord: _change_feature,
    records.ConfigRecord: _change_config,
    records.RegisterControllerRecord: _change_controller,
    records.BeginTransactionRecord: _begin_transaction,
    records.EndTransactionRecord: _end_transaction,
    records.AbortTransactionRecord: _abort_transaction,
    # Records that never change anything: the heartbeat of the log, and what is left of the migration from ZooKeeper.
    records.NoOpRecord: _pass_over,
    records.ZkMigrationStateRecord: _pass_over,
    # Families that this image does not keep. Each type is named, so that one nobody has thought of is an error.
    records.RegisterBrokerRecord: _pass_over,
    records.UnregisterBrokerRecord: _pass_over,
    records.BrokerRegistrationChangeRecord: _pass_over,
    records.FenceBrokerRecord: _pass_over,
    records.UnfenceBrokerRecord: _pass_over,
    records.TopicRecord: _pass_over,
    records.RemoveTopicRecord: _pass_over,
    records.PartitionRecord: _pass_over,
    records.PartitionChangeRecord: _pass_over,
    records.ClearElrRecord: _pass_over,
    records.AccessControlEntryRecord: _pass_over,
    records.RemoveAccessControlEntryRecord: _pass_over,
    records.ClientQuotaRecord: _pass_over,
    records.UserScramCredentialRecord: _pass_over,
    records.RemoveUserScramCredentialRecord: _pass_over,
    records.DelegationTokenRecord: _pass_over,
    records.RemoveDelegationTokenRecord: _pass_over,
    records.ProducerIdsRecord: _pass_over,
}
