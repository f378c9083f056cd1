"""A small model of what metadata records mean for brokers and partitions (Kafka: `PartitionRegistration.merge`,
`BrokerRegistration`), so that the invariants share no code with the images under test.

The model knows only what the invariants need: registrations, topics, partitions, configurations and feature levels. A
record that contradicts earlier ones is no matter of the model: the images refuse such a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.image import MetadataImage, Partition
from metadata_log.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.serde import Message
from metadata_log.types import Uuid

PartitionKey = tuple[Uuid, int]
NO_LEADER: Final = -1
_SAME_LEADER: Final = -2
_SAME_STATE: Final = -1
_TOPIC: Final = 2
_BROKER: Final = 4
_FENCED: Final = 1
_UNFENCED: Final = -1
_METADATA_VERSION: Final = "metadata.version"
_KRAFT_VERSION: Final = "kraft.version"


class BrokerModel(Struct, frozen=True):
    """A registration: the present incarnation of a broker, and its state."""

    epoch: int
    incarnation_id: Uuid
    fenced: bool
    in_controlled_shutdown: bool

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead partitions and enter ISRs."""
        return not (self.fenced or self.in_controlled_shutdown)


class PartitionModel(Struct, frozen=True):
    """One partition. The fields have the names of those of the record."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding_replicas or self.removing_replicas)


class TopicModel(Struct):
    """One topic."""

    name: str
    partitions: dict[int, PartitionModel]


class _State(Struct):
    """All that the model knows; an aborted transaction restores the state before the transaction."""

    brokers: dict[int, BrokerModel] = {}
    topics: dict[Uuid, TopicModel] = {}
    settings: dict[tuple[int, str], dict[str, str]] = {}
    levels: dict[str, int] = {}


class ClusterModel:
    """The brokers and partitions after some records."""

    def __init__(self) -> None:
        self._state = _State()
        self._before_transaction: _State | None = None

    @property
    def brokers(self) -> dict[int, BrokerModel]:
        """The registered brokers, by id."""
        return self._state.brokers

    def has(self, key: PartitionKey) -> bool:
        """Whether the partition exists."""
        topic = self._state.topics.get(key[0])
        return topic is not None and key[1] in topic.partitions

    def partition(self, key: PartitionKey) -> PartitionModel:
        """One partition; raises `KeyError` without such a partition."""
        return self._state.topics[key[0]].partitions[key[1]]

    def partitions(self) -> Iterator[tuple[PartitionKey, str, PartitionModel]]:
        """All partitions: the key, the name of the topic with the number, and the partition."""
        for topic_id, topic in self._state.topics.items():
            for number, partition in topic.partitions.items():
                yield (topic_id, number), f"{topic.name}-{number}", partition

    def setting(self, key: PartitionKey, name: str) -> str | None:
        """The value of a setting for the topic of a partition, or else for the cluster."""
        settings = self._state.settings
        own = settings.get((_TOPIC, self._state.topics[key[0]].name), {}).get(name)
        return own if own is not None else settings.get((_BROKER, ""), {}).get(name)

    def level(self, feature: str) -> int:
        """The level of a feature; 0 if the feature is not finalized."""
        return self._state.levels.get(feature, 0)

    # Records

    def begin(self, image: MetadataImage) -> None:
        """Begin with the content of a snapshot."""
        self._state = _State(
            brokers={
                one: BrokerModel(broker.epoch, broker.incarnation_id, broker.fenced, broker.in_controlled_shutdown)
                for one, broker in image.brokers.by_id.items()
            },
            topics={
                topic_id: TopicModel(
                    topic.name, {number: model_of_image(one) for number, one in enumerate(topic.partitions)}
                )
                for topic_id, topic in image.topics.by_id.items()
            },
            settings={resource: dict(values) for resource, values in image.configs.by_resource.items()},
            levels=dict(image.features.all_levels()),
        )
        self._before_transaction = None

    def replay(self, record: Message) -> None:
        """Replay the next record; raises `KeyError` if a subject of the record does not exist."""
        state = self._state
        match record:
            case BeginTransactionRecord():
                self._before_transaction = deepcopy(state)
            case EndTransactionRecord():
                self._before_transaction = None
            case AbortTransactionRecord():
                assert self._before_transaction is not None, record
                self._state, self._before_transaction = self._before_transaction, None
            case RegisterBrokerRecord():
                state.brokers[record.broker_id] = BrokerModel(
                    record.broker_epoch, record.incarnation_id, record.fenced, record.in_controlled_shutdown
                )
            case UnregisterBrokerRecord():
                del state.brokers[record.broker_id]
            case FenceBrokerRecord() | UnfenceBrokerRecord():
                is_fence = isinstance(record, FenceBrokerRecord)
                state.brokers[record.id] = replace(state.brokers[record.id], fenced=is_fence)
            case BrokerRegistrationChangeRecord():
                state.brokers[record.broker_id] = _changed_broker(state.brokers[record.broker_id], record)
            case TopicRecord():
                state.topics[record.topic_id] = TopicModel(record.name, {})
            case PartitionRecord():
                state.topics[record.topic_id].partitions[record.partition_id] = _new(record)
            case PartitionChangeRecord():
                partitions = state.topics[record.topic_id].partitions
                partitions[record.partition_id] = _changed(partitions[record.partition_id], record)
            case ClearElrRecord():
                for topic in state.topics.values():
                    if record.topic_name in ("", topic.name):
                        topic.partitions.update((number, _without_elr(one)) for number, one in topic.partitions.items())
            case RemoveTopicRecord():
                name = state.topics.pop(record.topic_id).name
                state.settings.pop((_TOPIC, name), None)
            case ConfigRecord():
                _configure(state.settings.setdefault((record.resource_type, record.resource_name), {}), record)
            case FeatureLevelRecord() if record.name != _KRAFT_VERSION:
                state.levels[record.name] = record.feature_level

    # Images

    def difference(self, image: MetadataImage) -> str:
        """The first difference of an image from this model; empty if there is none."""
        brokers = {one: _of_broker(image, one) for one in image.brokers.by_id}
        if brokers != self.brokers:
            return f"the brokers are {self.brokers}, and not {brokers}"
        topics, of_image = self._state.topics, image.topics.by_id
        names = {topic_id: topic.name for topic_id, topic in topics.items()}
        if names != {topic_id: topic.name for topic_id, topic in of_image.items()}:
            return f"the topics are {names}, and not {[topic.name for topic in of_image.values()]}"
        if {topic_id: name for name, topic_id in image.topics.by_name.items()} != names:
            return f"the topics are {names}, and by name {dict(image.topics.by_name)}"
        for topic_id, topic in topics.items():
            if len(topic.partitions) != len(of_image[topic_id].partitions):
                return f"{topic.name} has {len(topic.partitions)} partitions"
        different = (self.partition_difference(image, key) for key, _, _ in self.partitions())
        return next(filter(None, different), "") or self._other_difference(image)

    def partition_difference(self, image: MetadataImage, key: PartitionKey) -> str:
        """How a partition of an image differs from this model; empty if there is no difference."""
        topic = image.topics.by_id.get(key[0])
        if topic is None or key[1] >= len(topic.partitions):
            return f"partition {key} is missing"
        expected, actual = self.partition(key), model_of_image(topic.partitions[key[1]])
        return "" if actual == expected else f"{topic.name}-{key[1]} is {expected}, and not {actual}"

    def _other_difference(self, image: MetadataImage) -> str:
        settings = {resource: values for resource, values in self._state.settings.items() if values}
        actual = {resource: dict(values) for resource, values in image.configs.by_resource.items()}
        if actual != settings:
            return f"the configurations are {settings}, and not {actual}"
        levels = {name: level for name, level in self._state.levels.items() if level or name == _METADATA_VERSION}
        if dict(image.features.all_levels()) != levels:
            return f"the feature levels are {levels}, and not {image.features.all_levels()}"
        members: dict[int, dict[Uuid, int]] = {}
        for (topic_id, number), _, partition in self.partitions():
            for one in (*partition.isr, NO_LEADER) if partition.leader == NO_LEADER else partition.isr:
                of_topic = members.setdefault(one, {})
                of_topic[topic_id] = of_topic.get(topic_id, 0) | 1 << number
        index = {one: dict(of_topic) for one, of_topic in image.topics.members.items()}
        return "" if index == members else f"the index of ISRs is {members}, and not {index}"


def _of_broker(image: MetadataImage, broker_id: int) -> BrokerModel:
    broker = image.brokers.by_id[broker_id]
    return BrokerModel(broker.epoch, broker.incarnation_id, broker.fenced, broker.in_controlled_shutdown)


def model_of_image(partition: Partition) -> PartitionModel:
    """The model of a partition of an image."""
    return PartitionModel(
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        elr=partition.elr,
        last_known_elr=partition.last_known_elr,
    )


def _new(record: PartitionRecord) -> PartitionModel:
    return PartitionModel(
        replicas=record.replicas,
        isr=record.isr,
        removing_replicas=record.removing_replicas,
        adding_replicas=record.adding_replicas,
        leader=record.leader,
        leader_recovery_state=record.leader_recovery_state,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=_reported(record.directories, record.replicas),
        elr=record.eligible_leader_replicas or (),
        last_known_elr=record.last_known_elr or (),
    )


def _changed(old: PartitionModel, record: PartitionChangeRecord) -> PartitionModel:
    """A change states only what is new. The partition epoch rises by each change, the leader epoch by each named
    leader.
    """
    names_leader = record.leader != _SAME_LEADER
    recovery = record.leader_recovery_state
    replicas = old.replicas if record.replicas is None else record.replicas
    directories = old.directories if record.directories is None else record.directories
    return PartitionModel(
        replicas=replicas,
        isr=old.isr if record.isr is None else record.isr,
        removing_replicas=old.removing_replicas if record.removing_replicas is None else record.removing_replicas,
        adding_replicas=old.adding_replicas if record.adding_replicas is None else record.adding_replicas,
        leader=record.leader if names_leader else old.leader,
        leader_recovery_state=old.leader_recovery_state if recovery == _SAME_STATE else recovery,
        leader_epoch=old.leader_epoch + names_leader,
        partition_epoch=old.partition_epoch + 1,
        directories=_reported(directories, replicas),
        elr=old.elr if record.eligible_leader_replicas is None else record.eligible_leader_replicas,
        last_known_elr=old.last_known_elr if record.last_known_elr is None else record.last_known_elr,
    )


def _reported(directories: tuple[Uuid, ...], replicas: tuple[int, ...]) -> tuple[Uuid, ...]:
    """The log directories of the replicas; before any is reported, there is no list, or one of zeros."""
    return directories if any(one != Uuid.ZERO for one in directories) else (Uuid.ZERO,) * len(replicas)


def _without_elr(partition: PartitionModel) -> PartitionModel:
    if not partition.elr and not partition.last_known_elr:
        return partition
    return replace(partition, elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1)


def _changed_broker(old: BrokerModel, record: BrokerRegistrationChangeRecord) -> BrokerModel:
    fenced = {_FENCED: True, _UNFENCED: False}.get(record.fenced, old.fenced)
    stops = old.in_controlled_shutdown or record.in_controlled_shutdown == 1
    return replace(old, fenced=fenced, in_controlled_shutdown=stops)


def _configure(values: dict[str, str], record: ConfigRecord) -> None:
    if record.value is None:
        values.pop(record.name, None)
    else:
        values[record.name] = record.value
