"""The administrative workload of a cluster in a run: creates, changes and deletes topics, all drawn from the seed; and
AlterPartition requests in the name of the present leaders of partitions (KIP-497, KIP-903).

Most of the latter carry the present epochs of the partition and of its leader, so that the epochs and the states of the
members decide: a member may be a former incarnation, fenced, or in controlled shutdown.
"""

from __future__ import annotations

from random import Random
from typing import Final

from metadata_log.image import MetadataImage, Partition, TopicImage
from metadata_log.serde import Message
from transport.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from transport.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from transport.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from transport.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from transport.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from transport.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from transport.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

LOOK_MS: Final = 20
"""The interval of looks at the metadata. Only some of them make a request."""
_ANY_EPOCH: Final = -1


class IsrRequests:
    """Draws the requests of one run."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._mean_ms = rng.choice((150, 500))
        self._epochs: dict[int, list[int]] = {}
        """All epochs of each broker so far, by broker id, in ascending order."""

    def registered(self, broker_id: int, epoch: int) -> None:
        """Note the epoch of a broker's present registration."""
        epochs = self._epochs.setdefault(broker_id, [])
        if epoch not in epochs:
            epochs.append(epoch)

    def next_request(self, image: MetadataImage) -> AlterPartitionRequest | None:
        """A request of the leader of one partition, or None; to be called every `LOOK_MS`.

        A controlled shutdown soon ends. While there is one, most calls make a request, for a partition of that broker.
        """
        stopping = _stopping(image)
        if self._rng.random() > (0.5 if stopping else LOOK_MS / self._mean_ms):
            return None
        led = [
            (topic, number, partition)
            for topic in (image.topics[name] for name in image.topics)
            for number, partition in enumerate(topic.partitions)
            if partition.leader in image.brokers.by_id
        ]
        for_stopping = [one for one in led if stopping.intersection(one[2].replicas).difference(one[2].isr)]
        return self._change(image, *self._rng.choice(for_stopping or led)) if led else None

    def renewed(self, request: AlterPartitionRequest, image: MetadataImage) -> AlterPartitionRequest:
        """A repeated request, mostly with the present epochs of the caller and of the partitions that the caller leads.

        The members keep their epochs.
        """
        broker = image.brokers.by_id.get(request.broker_id)
        if broker is None or self._rng.random() < 0.2:
            return request
        topics = [
            AlterPartitionRequestTopicData(
                topic_id=topic.topic_id,
                partitions=[
                    _renewed(image.topics.by_id.get(topic.topic_id), part, broker.id) for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return AlterPartitionRequest(broker_id=broker.id, broker_epoch=broker.epoch, topics=topics)

    def _change(
        self, image: MetadataImage, topic: TopicImage, number: int, partition: Partition
    ) -> AlterPartitionRequest:
        rng = self._rng
        kept = [one for one in partition.isr if one == partition.leader or rng.random() < 0.9]
        added = [one for one in partition.replicas if one not in partition.isr and rng.random() < 0.7]
        part = AlterPartitionRequestPartitionData(
            partition_index=number,
            leader_epoch=partition.leader_epoch - (rng.random() < 0.1),
            new_isr_with_epochs=[
                BrokerState(broker_id=one, broker_epoch=self._epoch(image, one)) for one in (*kept, *added)
            ],
            leader_recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch - (rng.random() < 0.1),
        )
        leader = image.brokers.by_id[partition.leader]
        topics = [AlterPartitionRequestTopicData(topic_id=topic.id, partitions=[part])]
        return AlterPartitionRequest(broker_id=leader.id, broker_epoch=leader.epoch, topics=topics)

    def _epoch(self, image: MetadataImage, broker_id: int) -> int:
        """The epoch of a member: mostly the present one, else a former one or none."""
        broker, draw = image.brokers.by_id.get(broker_id), self._rng.random()
        if broker is None or draw < 0.1:
            return _ANY_EPOCH
        former = [epoch for epoch in self._epochs.get(broker_id, ()) if epoch < broker.epoch]
        return self._rng.choice(former) if former and draw < 0.4 else broker.epoch


def _stopping(image: MetadataImage) -> set[int]:
    """The brokers in controlled shutdown that are not fenced yet."""
    by_id = image.brokers.by_id
    return {one for one, broker in by_id.items() if broker.in_controlled_shutdown and not broker.fenced}


def _renewed(
    topic: TopicImage | None, part: AlterPartitionRequestPartitionData, broker_id: int
) -> AlterPartitionRequestPartitionData:
    """The same change, with the present epochs of the partition if the broker leads the partition."""
    if topic is None or part.partition_index >= len(topic.partitions):
        return part
    partition = topic.partitions[part.partition_index]
    if partition.leader != broker_id:
        return part
    return AlterPartitionRequestPartitionData(
        partition_index=part.partition_index,
        leader_epoch=partition.leader_epoch,
        new_isr=part.new_isr,
        new_isr_with_epochs=part.new_isr_with_epochs,
        leader_recovery_state=part.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"
NAMES: Final = ("t1", "t2", "t3", "t4", "t5")
MAX_PARTITIONS: Final = 6
_TOPIC: Final = 2
_SET: Final = 0
_DELETE: Final = 1
_HARMLESS: Final = ("reassign", "cancel", "elect")
"""The requests that leave the records of a topic alone."""
_PREFERRED: Final = 0
_UNCLEAN: Final = 1


class AdminWorkload:
    """Draws requests; `allows_unclean` states whether the workload of this run requests unclean elections."""

    def __init__(self, rng: Random, broker_ids: tuple[int, ...], spared: tuple[str, ...] = ()) -> None:
        """Draw the settings. No request takes records from the `spared` topics."""
        self._rng = rng
        self._broker_ids = broker_ids
        self._spared = spared
        self._mean_ms = rng.choice((100, 400, 1500))
        self.allows_unclean = rng.random() < 0.3
        self._weights = {
            "create": 4,
            "delete": rng.choice((0, 1)),
            "grow": rng.choice((0, 1, 2)),
            "reassign": rng.choice((0, 2, 4)),
            "cancel": rng.choice((0, 1)),
            "elect": rng.choice((0, 1, 2)),
            "configure": rng.choice((0, 1, 3)),
        }

    def pause_ms(self) -> int:
        """The time until the next request, in ms."""
        return 1 + int(self._rng.expovariate(1 / self._mean_ms))

    def next_request(self, image: MetadataImage) -> Message:
        """A request that may or may not make sense in `image`, or by the time it arrives."""
        rng = self._rng
        (kind,) = rng.choices(list(self._weights), list(self._weights.values()))
        if kind == "create" or not len(image.topics):
            return self._create()
        topic = image.topics[rng.choice(list(image.topics))]
        if topic.name in self._spared and kind not in _HARMLESS:
            return self._create()
        match kind:
            case "delete":
                return DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)])
            case "grow":
                count = min(len(topic.partitions) + rng.randint(1, 2), MAX_PARTITIONS)
                grown = CreatePartitionsTopic(name=topic.name, count=count, assignments=None)
                return CreatePartitionsRequest(topics=[grown])
            case "reassign":
                return self._reassign(topic, self._replicas())
            case "cancel":
                return self._reassign(topic, None)
            case "elect":
                return self._elect(topic)
            case _:
                return self._configure(topic)

    def _replicas(self) -> list[int]:
        return self._rng.sample(self._broker_ids, self._rng.randint(1, len(self._broker_ids)))

    def _number(self, topic: TopicImage) -> int:
        return self._rng.randrange(max(len(topic.partitions), 1))

    def _create(self) -> Message:
        rng = self._rng
        configs = []
        if rng.random() < 0.4:
            configs.append(CreatableTopicConfig(name=MIN_ISR, value="2"))
        if self.allows_unclean and rng.random() < 0.4:
            configs.append(CreatableTopicConfig(name=UNCLEAN, value="true"))
        topic = CreatableTopic(
            name=rng.choice(NAMES),
            num_partitions=rng.randint(1, 3),
            replication_factor=rng.randint(1, len(self._broker_ids)),
            configs=configs,
        )
        return CreateTopicsRequest(topics=[topic])

    def _reassign(self, topic: TopicImage, replicas: list[int] | None) -> Message:
        part = ReassignablePartition(partition_index=self._number(topic), replicas=replicas)
        return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic.name, partitions=[part])])

    def _elect(self, topic: TopicImage) -> Message:
        kind = _UNCLEAN if self.allows_unclean and self._rng.random() < 0.5 else _PREFERRED
        if topic.name in self._spared:
            kind = _PREFERRED
        asked = TopicPartitions(topic=topic.name, partitions=[self._number(topic)])
        return ElectLeadersRequest(election_type=kind, topic_partitions=[asked])

    def _configure(self, topic: TopicImage) -> Message:
        rng = self._rng
        name = UNCLEAN if self.allows_unclean and rng.random() < 0.5 else MIN_ISR
        values = ("true", "false") if name == UNCLEAN else ("1", "2")
        config = AlterableConfig(name=name, config_operation=_SET, value=rng.choice(values))
        if rng.random() < 0.2:
            config = AlterableConfig(name=name, config_operation=_DELETE, value=None)
        resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=topic.name, configs=[config])
        return IncrementalAlterConfigsRequest(resources=[resource])


def is_unclean_election(request: Message) -> bool:
    """Whether a request is for an unclean election, which may elect leaders that lack records."""
    return isinstance(request, ElectLeadersRequest) and request.election_type == _UNCLEAN
