"""Draws AlterPartition requests in the name of the present leaders of partitions (KIP-497, KIP-903).

Most of them carry the present epochs of the partition and of its leader, so that the epochs and the states of the
members decide: a member may be a former incarnation, fenced, or in controlled shutdown.
"""

from __future__ import annotations

from random import Random
from typing import Final

from metadata_log.image import MetadataImage, Partition, TopicImage
from transport.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
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
