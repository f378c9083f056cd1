"""Checks that stale requests change nothing: those of former incarnations of brokers, of deposed leaders, and of
leaders with an old view of the partition (Kafka: broker, leader and partition epochs; KIP-497, KIP-903).

The watch judges each request by the metadata that the controller decides on, and later compares the response.
"""

from __future__ import annotations

from kraft.controller import QuorumController
from kraft.invariants.violation import InvariantViolated
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage, Partition
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
)
from transport.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

FromBroker = BrokerHeartbeatRequest | AlterPartitionRequest | AssignReplicasToDirsRequest
ToBroker = BrokerHeartbeatResponse | AlterPartitionResponse | AssignReplicasToDirsResponse


class StaleRequests:
    """Watches one node until its crash. `refused` counts the requests that the node had to refuse."""

    def __init__(self) -> None:
        self.refused = 0
        self._of_former_lives: dict[int, Message] = {}
        self._out_of_date: dict[int, set[tuple[Uuid, int]]] = {}

    def asked(self, request: WireRequest, controller: QuorumController) -> None:
        """A request is about to be decided on."""
        message = request.message
        if not controller.is_active or not isinstance(message, FromBroker):
            return
        image = controller.history.latest
        broker = image.brokers.by_id.get(message.broker_id)
        if broker is None or broker.epoch != message.broker_epoch:
            self._of_former_lives[request.request_id] = message
            self.refused += 1
        elif isinstance(message, AlterPartitionRequest):
            stale = {
                (topic.topic_id, part.partition_index)
                for topic in message.topics
                for part in topic.partitions
                if _is_stale(image, message.broker_id, topic.topic_id, part)
            }
            self._out_of_date[request.request_id] = stale
            self.refused += len(stale)

    def answered(self, request_id: int, response: Message) -> None:
        """A request is answered; raises `InvariantViolated` if it should have been refused."""
        if not self._of_former_lives and not self._out_of_date:
            return
        former = self._of_former_lives.pop(request_id, None)
        stale = self._out_of_date.pop(request_id, set())
        if former is not None:
            assert isinstance(response, ToBroker), response
            if response.error_code == 0:
                raise InvariantViolated(f"the controller accepts a request of a former incarnation: {former}")
        elif stale and isinstance(response, AlterPartitionResponse) and response.error_code == 0:
            for topic in response.topics:
                for part in topic.partitions:
                    if part.error_code == 0 and (topic.topic_id, part.partition_index) in stale:
                        raise InvariantViolated(f"a stale request changes an ISR: {part}")


def _is_stale(image: MetadataImage, broker_id: int, topic_id: Uuid, part: AlterPartitionRequestPartitionData) -> bool:
    topic = image.topics.by_id.get(topic_id)
    if topic is None or part.partition_index >= len(topic.partitions):
        return True
    partition: Partition = topic.partitions[part.partition_index]
    if partition.leader != broker_id or partition.leader_epoch != part.leader_epoch:
        return True
    if partition.partition_epoch != part.partition_epoch:
        return True
    for member in part.new_isr_with_epochs:
        broker = image.brokers.by_id.get(member.broker_id)
        if broker is None or not broker.is_active or member.broker_epoch not in (-1, broker.epoch):
            return True
    return False
