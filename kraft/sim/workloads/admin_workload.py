"""The administrative workload of a cluster in a run: creates, changes and deletes topics, all drawn from the seed."""

from __future__ import annotations

from random import Random
from typing import Final

from metadata_log.image import MetadataImage, TopicImage
from metadata_log.serde import Message
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

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"
NAMES: Final = ("t1", "t2", "t3", "t4", "t5")
MAX_PARTITIONS: Final = 6
_TOPIC: Final = 2
_SET: Final = 0
_DELETE: Final = 1
_PREFERRED: Final = 0
_UNCLEAN: Final = 1


class AdminWorkload:
    """Draws requests; `allows_unclean` states whether the workload of this run requests unclean elections."""

    def __init__(self, rng: Random, broker_ids: tuple[int, ...]) -> None:
        self._rng = rng
        self._broker_ids = broker_ids
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
