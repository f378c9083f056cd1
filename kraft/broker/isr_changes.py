"""ISR changes, reported to the controller in one request at a time (Kafka: `AlterPartitionManager`, and the answer
handling of `Partition`).
"""

from __future__ import annotations

from typing import Final

from kraft.broker.replicas import LedPartition, PartitionKey
from kraft.broker.replicas_protocol import BrokerReplicas
from kraft.broker.settings import NO_EPOCH
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)

RETRY_MS: Final = 50
_RECOVERED: Final = 0
_BACK_TO_COMMITTED: Final = (Error.OPERATION_NOT_ATTEMPTED, Error.INELIGIBLE_REPLICA)
_THE_CONTROLLER_KNOWS_BETTER: Final = (
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.UNKNOWN_TOPIC_ID,
    Error.FENCED_LEADER_EPOCH,
    Error.INVALID_UPDATE_VERSION,
    Error.INVALID_REQUEST,
    Error.NEW_LEADER_ELECTED,
)


class IsrChanges:
    """At most one outstanding AlterPartition request."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._asked: dict[PartitionKey, int] | None = None
        """The partition epoch of each change in the outstanding request."""
        self._not_before_ms = 0

    def deadline_ms(self, replicas: BrokerReplicas) -> int:
        """When the next `request_due` is due; `NEVER_MS` with nothing to send, or with a request outstanding."""
        return self._not_before_ms if replicas.proposals and self._asked is None else NEVER_MS

    def request_due(
        self, replicas: BrokerReplicas, image: MetadataImage, broker_epoch: int, now_ms: int
    ) -> AlterPartitionRequest | None:
        """The due request, if any; the caller passes exactly one answer to `on_answer`."""
        if self._asked is not None or now_ms < self._not_before_ms or not replicas.proposals:
            return None
        topics: dict[Uuid, list[AlterPartitionRequestPartitionData]] = {}
        asked: dict[PartitionKey, int] = {}
        for (topic_id, number), led in replicas.take_proposals():
            asked[topic_id, number] = led.partition_epoch
            topics.setdefault(topic_id, []).append(self._change(number, led, image, broker_epoch))
        if not asked:
            return None
        self._asked = asked
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=broker_epoch,
            topics=[
                AlterPartitionRequestTopicData(topic_id=topic_id, partitions=parts)
                for topic_id, parts in topics.items()
            ],
        )

    def _change(
        self, number: int, led: LedPartition, image: MetadataImage, broker_epoch: int
    ) -> AlterPartitionRequestPartitionData:
        assert led.proposed is not None, led
        return AlterPartitionRequestPartitionData(
            partition_index=number,
            leader_epoch=led.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=one, broker_epoch=self._epoch_of(one, led, image, broker_epoch))
                for one in led.proposed
            ],
            leader_recovery_state=_RECOVERED,
            partition_epoch=led.partition_epoch,
        )

    def _epoch_of(self, one: int, led: LedPartition, image: MetadataImage, broker_epoch: int) -> int:
        """The broker epoch of a proposed member: that of its last fetch, else the registered one."""
        if one == self._broker_id:
            return broker_epoch
        fetched = led.followers[one].broker_epoch
        if fetched != NO_EPOCH:
            return fetched
        broker = image.brokers.by_id.get(one)
        return NO_EPOCH if broker is None else broker.epoch

    def on_answer(self, replicas: BrokerReplicas, response: Message | None, now_ms: int) -> None:
        """Process the controller's answer for each change; None if the request failed."""
        asked, self._asked = self._asked, None
        assert asked is not None, "an answer without a request"
        assert response is None or isinstance(response, AlterPartitionResponse), response
        answers = {}
        if response is not None and response.error_code == Error.NONE:
            answers = {
                (topic.topic_id, one.partition_index): one for topic in response.topics for one in topic.partitions
            }
        for key, partition_epoch in asked.items():
            self._judge(replicas, key, partition_epoch, answers.get(key), now_ms)

    def _judge(
        self,
        replicas: BrokerReplicas,
        key: PartitionKey,
        partition_epoch: int,
        answer: AlterPartitionResponsePartitionData | None,
        now_ms: int,
    ) -> None:
        error = Error.NOT_CONTROLLER if answer is None else Error.of(answer.error_code)
        if answer is not None and error is Error.NONE:
            replicas.accepted(key, answer.leader_epoch, tuple(answer.isr), answer.partition_epoch)
        elif error in _BACK_TO_COMMITTED:
            replicas.withdrawn(key, partition_epoch)
        elif error in _THE_CONTROLLER_KNOWS_BETTER:
            replicas.given_up(key, partition_epoch)
        else:
            self._not_before_ms = now_ms + RETRY_MS
            replicas.again(key, partition_epoch)
