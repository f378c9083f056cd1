"""The cluster's metadata at one offset, and its changes by records (Kafka: `MetadataImage`, `MetadataDelta`).

An image is immutable. A `MetadataDelta` is the only mutable object: it collects records and makes the next image.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.errors import ReplayError
from metadata_log.image.acls import AclsImage, replay_acl, replay_remove_acl
from metadata_log.image.brokers import (
    FENCE,
    UNFENCE,
    BrokersImage,
    replay_register_broker,
    replay_registration_change,
    replay_unregister_broker,
)
from metadata_log.image.configs import ConfigsImage, ResourceType, replay_config, without
from metadata_log.image.controllers import ControllersImage, replay_register_controller, replay_unregister_controller
from metadata_log.image.features import FeaturesImage, replay_feature_level
from metadata_log.image.producer_ids import ProducerIdsImage, replay_producer_ids
from metadata_log.image.quotas import QuotasImage, replay_quota
from metadata_log.image.scram import ScramImage, replay_remove_scram, replay_scram
from metadata_log.image.tokens import TokensImage, replay_remove_token, replay_token
from metadata_log.image.topics import Shared, TopicImage, TopicsImage
from metadata_log.image.topics_delta import TopicsDelta
from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch

NOTHING: Final = OffsetAndEpoch(epoch=0, offset=0)


class OpenTransaction(Struct, frozen=True):
    """An unfinished metadata transaction (KIP-866, `MetadataTransaction`).

    `start_offset` is the offset of its BeginTransaction record; `before` is the image to restore after an abort.
    """

    start_offset: int
    name: str | None
    before: MetadataImage


class MetadataImage(Struct, frozen=True):
    """The state after all records below `end.offset`, all families in one value.

    `end` is the offset after the last replayed record and the epoch of that record. `features_offset` is the offset of
    the last record of the batch that last changed a feature level, or -1: the epoch of the finalized features
    (KIP-584).
    """

    end: OffsetAndEpoch = NOTHING
    features: FeaturesImage = FeaturesImage()
    controllers: ControllersImage = ControllersImage()
    brokers: BrokersImage = BrokersImage()
    topics: TopicsImage = TopicsImage()
    configs: ConfigsImage = ConfigsImage()
    acls: AclsImage = AclsImage()
    quotas: QuotasImage = QuotasImage()
    scram: ScramImage = ScramImage()
    tokens: TokensImage = TokensImage()
    producer_ids: ProducerIdsImage = ProducerIdsImage()
    transaction: OpenTransaction | None = None
    features_offset: int = -1

    @property
    def stable(self) -> MetadataImage:
        """The image for readers: during a transaction, the image from before the transaction."""
        return self if self.transaction is None else self.transaction.before

    def with_config(self, record: records.ConfigRecord, end: OffsetAndEpoch) -> MetadataImage:
        """The image after a batch with this record alone, as a `MetadataDelta` would make it; raises `ReplayError`."""
        return replace(self, end=end, configs=replay_config(self.configs, record))


class MetadataDelta:
    """A collection of changes to an image, which stays unchanged.

    After a faulty record the delta is as before that record. `is_snapshot` states that the records are those of a
    snapshot, which cannot have transactions.
    """

    __slots__ = (
        "_features_before",
        "_features_offset",
        "_is_snapshot",
        "_shared",
        "_topics_before",
        "_topics_delta",
        "acls",
        "brokers",
        "configs",
        "controllers",
        "end",
        "features",
        "producer_ids",
        "quotas",
        "scram",
        "tokens",
        "transaction",
    )

    def __init__(self, image: MetadataImage, *, is_snapshot: bool = False, shared: Shared | None = None) -> None:
        """`shared` is for a snapshot that several deltas replay in turn: equal lists are stored once."""
        self._is_snapshot = is_snapshot
        self._shared = {} if is_snapshot and shared is None else shared
        self._features_before = image.features
        self._features_offset = image.features_offset
        self._restore(image)

    def _restore(self, image: MetadataImage) -> None:
        self.end = image.end
        self.features = image.features
        self.controllers = image.controllers
        self.brokers = image.brokers
        self.configs = image.configs
        self.acls = image.acls
        self.quotas = image.quotas
        self.scram = image.scram
        self.tokens = image.tokens
        self.producer_ids = image.producer_ids
        self.transaction = image.transaction
        self._topics_before = image.topics
        self._topics_delta: TopicsDelta | None = None

    @property
    def topics(self) -> TopicsDelta:
        """The changed topics."""
        if self._topics_delta is None:
            self._topics_delta = TopicsDelta(self._topics_before, self._shared)
        return self._topics_delta

    def replay(self, record: Message, offset: int) -> None:
        """Apply the record at `offset`; raises `ReplayError` for a record that no correct controller writes."""
        change = _CHANGES.get(type(record))
        if change is None:
            raise ReplayError(f"a {type(record).__name__} at offset {offset} is no metadata record")
        try:
            change(self, record, offset)
        except ReplayError as fault:
            name = type(record).__name__
            raise ReplayError(f"the {name} at offset {offset} contradicts the image: {fault.what}") from fault

    @property
    def removed_topics(self) -> Collection[TopicImage]:
        """The removed topics of the image."""
        return () if self._topics_delta is None else self._topics_delta.removed

    @property
    def is_whole(self) -> bool:
        """Whether every topic has all partitions up to its last one, so that `apply` may be called."""
        return self._topics_delta is None or self._topics_delta.is_whole

    def apply(self, end: OffsetAndEpoch) -> MetadataImage:
        """The image after all replayed records, with this `end`; raises `ReplayError` if a partition is missing."""
        features = self.features
        return MetadataImage(
            end,
            features,
            self.controllers,
            self.brokers,
            self._topics_before if self._topics_delta is None else self._topics_delta.apply(),
            self.configs,
            self.acls,
            self.quotas,
            self.scram,
            self.tokens,
            self.producer_ids,
            self.transaction,
            self._features_offset if features is self._features_before else end.offset - 1,
        )


def _change_feature(delta: MetadataDelta, record: records.FeatureLevelRecord, offset: int) -> None:
    delta.features = replay_feature_level(delta.features, record)


def _register_controller(delta: MetadataDelta, record: records.RegisterControllerRecord, offset: int) -> None:
    delta.controllers = replay_register_controller(delta.controllers, record)


def _unregister_controller(delta: MetadataDelta, record: records.UnregisterControllerRecord, offset: int) -> None:
    delta.controllers = replay_unregister_controller(delta.controllers, record)


def _register_broker(delta: MetadataDelta, record: records.RegisterBrokerRecord, offset: int) -> None:
    delta.brokers = replay_register_broker(delta.brokers, record)


def _unregister_broker(delta: MetadataDelta, record: records.UnregisterBrokerRecord, offset: int) -> None:
    delta.brokers = replay_unregister_broker(delta.brokers, record)


def _change_registration(delta: MetadataDelta, record: records.BrokerRegistrationChangeRecord, offset: int) -> None:
    delta.brokers = replay_registration_change(delta.brokers, record)


def _fence_broker(delta: MetadataDelta, record: records.FenceBrokerRecord, offset: int) -> None:
    change = records.BrokerRegistrationChangeRecord(broker_id=record.id, broker_epoch=record.epoch, fenced=FENCE)
    delta.brokers = replay_registration_change(delta.brokers, change)


def _unfence_broker(delta: MetadataDelta, record: records.UnfenceBrokerRecord, offset: int) -> None:
    change = records.BrokerRegistrationChangeRecord(broker_id=record.id, broker_epoch=record.epoch, fenced=UNFENCE)
    delta.brokers = replay_registration_change(delta.brokers, change)


def _put_topic(delta: MetadataDelta, record: records.TopicRecord, offset: int) -> None:
    delta.topics.replay_topic(record)


def _remove_topic(delta: MetadataDelta, record: records.RemoveTopicRecord, offset: int) -> None:
    name = delta.topics.replay_remove_topic(record)
    # A topic's configuration is removed with the topic, without records of its own.
    delta.configs = without(delta.configs, (ResourceType.TOPIC, name))


def _put_partition(delta: MetadataDelta, record: records.PartitionRecord, offset: int) -> None:
    delta.topics.replay_partition(record)


def _change_partition(delta: MetadataDelta, record: records.PartitionChangeRecord, offset: int) -> None:
    (delta._topics_delta or delta.topics).replay_partition_change(record)


def _clear_elr(delta: MetadataDelta, record: records.ClearElrRecord, offset: int) -> None:
    delta.topics.replay_clear_elr(record)


def _change_config(delta: MetadataDelta, record: records.ConfigRecord, offset: int) -> None:
    delta.configs = replay_config(delta.configs, record)


def _put_acl(delta: MetadataDelta, record: records.AccessControlEntryRecord, offset: int) -> None:
    delta.acls = replay_acl(delta.acls, record)


def _remove_acl(delta: MetadataDelta, record: records.RemoveAccessControlEntryRecord, offset: int) -> None:
    delta.acls = replay_remove_acl(delta.acls, record)


def _change_quota(delta: MetadataDelta, record: records.ClientQuotaRecord, offset: int) -> None:
    delta.quotas = replay_quota(delta.quotas, record)


def _put_scram(delta: MetadataDelta, record: records.UserScramCredentialRecord, offset: int) -> None:
    delta.scram = replay_scram(delta.scram, record)


def _remove_scram(delta: MetadataDelta, record: records.RemoveUserScramCredentialRecord, offset: int) -> None:
    delta.scram = replay_remove_scram(delta.scram, record)


def _put_token(delta: MetadataDelta, record: records.DelegationTokenRecord, offset: int) -> None:
    delta.tokens = replay_token(delta.tokens, record)


def _remove_token(delta: MetadataDelta, record: records.RemoveDelegationTokenRecord, offset: int) -> None:
    delta.tokens = replay_remove_token(delta.tokens, record)


def _give_producer_ids(delta: MetadataDelta, record: records.ProducerIdsRecord, offset: int) -> None:
    delta.producer_ids = replay_producer_ids(delta.producer_ids, record)


def _begin_transaction(delta: MetadataDelta, record: records.BeginTransactionRecord, offset: int) -> None:
    if delta._is_snapshot:
        raise ReplayError("a snapshot holds no transactions")
    if delta.transaction is not None:
        raise ReplayError(f"the transaction from offset {delta.transaction.start_offset} is open")
    delta.transaction = OpenTransaction(offset, record.name, delta.apply(replace(delta.end, offset=offset)))


def _end_transaction(delta: MetadataDelta, record: records.EndTransactionRecord, offset: int) -> None:
    if delta.transaction is None:
        raise ReplayError("no transaction is open")
    delta.transaction = None


def _abort_transaction(delta: MetadataDelta, record: records.AbortTransactionRecord, offset: int) -> None:
    if delta.transaction is None:
        raise ReplayError("no transaction is open")
    delta._restore(delta.transaction.before)


def _pass_over(delta: MetadataDelta, record: Message, offset: int) -> None:
    """Ignore a record that changes nothing: NoOpRecord, and leftovers of the ZooKeeper migration."""


Change = Callable[[MetadataDelta, Any, int], None]
_CHANGES: Final[dict[type[Message], Change]] = {
    records.NoOpRecord: _pass_over,
    records.PartitionChangeRecord: _change_partition,
    records.PartitionRecord: _put_partition,
    records.TopicRecord: _put_topic,
    records.RemoveTopicRecord: _remove_topic,
    records.ClearElrRecord: _clear_elr,
    records.ConfigRecord: _change_config,
    records.RegisterBrokerRecord: _register_broker,
    records.UnregisterBrokerRecord: _unregister_broker,
    records.BrokerRegistrationChangeRecord: _change_registration,
    records.FenceBrokerRecord: _fence_broker,
    records.UnfenceBrokerRecord: _unfence_broker,
    records.RegisterControllerRecord: _register_controller,
    records.UnregisterControllerRecord: _unregister_controller,
    records.FeatureLevelRecord: _change_feature,
    records.AccessControlEntryRecord: _put_acl,
    records.RemoveAccessControlEntryRecord: _remove_acl,
    records.ClientQuotaRecord: _change_quota,
    records.UserScramCredentialRecord: _put_scram,
    records.RemoveUserScramCredentialRecord: _remove_scram,
    records.DelegationTokenRecord: _put_token,
    records.RemoveDelegationTokenRecord: _remove_token,
    records.ProducerIdsRecord: _give_producer_ids,
    records.BeginTransactionRecord: _begin_transaction,
    records.EndTransactionRecord: _end_transaction,
    records.AbortTransactionRecord: _abort_transaction,
    records.ZkMigrationStateRecord: _pass_over,
}
