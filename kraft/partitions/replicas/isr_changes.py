"""The ISR changes that a broker's leaders request from the controller (Kafka: `Partition.maybeExpandIsr`,
`maybeShrinkIsr` and `handleAlterPartitionUpdate`; `AlterPartitionManager`).

One change of a partition is open at a time, and one request is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.leading import Leading
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, NO_EPOCH, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)

ISR_RETRY_MS: Final = 50
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
    """The open proposals of a broker's leaders, and the request that asks for them.

    Args:
        broker_id: The broker.
        leading: The leadership of a partition; None for one that this broker does not lead.
        on_change: Called after the controller has answered with an ISR, with the time in ms since 1970.
    """

    def __init__(
        self,
        broker_id: int,
        leading: Callable[[PartitionKey], Leading | None],
        on_change: Callable[[PartitionKey, int], None] | None = None,
    ) -> None:
        self.unsent: dict[PartitionKey, None] = {}
        """The partitions with an unsent proposal, in the order of proposing."""
        self._broker_id = broker_id
        self._leading = leading
        self._on_change = on_change
        self._asked: dict[PartitionKey, int] | None = None
        """The partition epoch of each change in the outstanding request."""
        self._not_before_ms = 0

    # Proposals

    def propose(self, key: PartitionKey, leading: Leading, isr: tuple[int, ...]) -> None:
        """Request an ISR."""
        leading.propose(isr)
        self.unsent[key] = None

    def forget(self, key: PartitionKey) -> None:
        """The partition is not led any more, or metadata has replaced its proposal."""
        self.unsent.pop(key, None)

    # Requests and answers

    def deadline_ms(self) -> int:
        """When the next `request_due` is due; `NEVER_MS` with nothing to send, or with a request outstanding."""
        return self._not_before_ms if self.unsent and self._asked is None else NEVER_MS

    def request_due(self, image: MetadataImage, broker_epoch: int, now_ms: int) -> AlterPartitionRequest | None:
        """The due request, if any; the caller passes exactly one answer to `on_answer`."""
        if self._asked is not None or now_ms < self._not_before_ms or not self.unsent:
            return None
        topics: dict[Uuid, list[AlterPartitionRequestPartitionData]] = {}
        asked: dict[PartitionKey, int] = {}
        unsent, self.unsent = self.unsent, {}
        for key in unsent:
            leading = self._leading(key)
            if leading is not None and leading.proposed is not None:
                asked[key] = leading.partition_epoch
                topics.setdefault(key[0], []).append(self._change(key[1], leading, image, broker_epoch))
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
        self, number: int, leading: Leading, image: MetadataImage, broker_epoch: int
    ) -> AlterPartitionRequestPartitionData:
        assert leading.proposed is not None, leading
        return AlterPartitionRequestPartitionData(
            partition_index=number,
            leader_epoch=leading.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=one, broker_epoch=self._epoch_of(one, leading, image, broker_epoch))
                for one in leading.proposed
            ],
            leader_recovery_state=_RECOVERED,
            partition_epoch=leading.partition_epoch,
        )

    def _epoch_of(self, one: int, leading: Leading, image: MetadataImage, broker_epoch: int) -> int:
        """The broker epoch of a proposed member: that of its last fetch, else the registered one."""
        if one == self._broker_id:
            return broker_epoch
        fetched = leading.remotes[one].broker_epoch
        if fetched != NO_EPOCH:
            return fetched
        broker = image.brokers.by_id.get(one)
        return NO_EPOCH if broker is None else broker.epoch

    def on_answer(self, response: Message | None, now_ms: int) -> None:
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
            self._judge(key, partition_epoch, answers.get(key), now_ms)

    def _judge(
        self, key: PartitionKey, partition_epoch: int, answer: AlterPartitionResponsePartitionData | None, now_ms: int
    ) -> None:
        error = Error.NOT_CONTROLLER if answer is None else Error.of(answer.error_code)
        if answer is not None and error is Error.NONE:
            self._accepted(key, answer, now_ms)
            return
        is_temporary = error not in _BACK_TO_COMMITTED and error not in _THE_CONTROLLER_KNOWS_BETTER
        if is_temporary:
            self._not_before_ms = now_ms + ISR_RETRY_MS
        leading = self._asking(key, partition_epoch)
        if leading is None:
            return
        if is_temporary:
            self.unsent[key] = None
        elif error in _BACK_TO_COMMITTED:
            self._withdraw(key, leading, now_ms)
        else:
            # The controller has newer metadata: wait for it.
            leading.is_given_up = True
            self.forget(key)

    def _accepted(self, key: PartitionKey, answer: AlterPartitionResponsePartitionData, now_ms: int) -> None:
        """The controller answered with the present partition. An answer for an older state changes nothing, nor does
        one that only repeats what metadata has told, if another ISR was proposed since.
        """
        leading = self._leading(key)
        is_of_now = leading is not None and leading.leader_epoch == answer.leader_epoch
        if leading is None or not is_of_now or answer.partition_epoch < leading.partition_epoch:
            return
        if key not in self.unsent or answer.partition_epoch > leading.partition_epoch:
            self._commit(key, leading, tuple(answer.isr), answer.partition_epoch, now_ms)

    def _withdraw(self, key: PartitionKey, leading: Leading, now_ms: int) -> None:
        """A member is not eligible: return to the committed ISR, until a follower fetches again."""
        self._commit(key, leading, leading.isr, leading.partition_epoch, now_ms)

    def _commit(
        self, key: PartitionKey, leading: Leading, isr: tuple[int, ...], partition_epoch: int, now_ms: int
    ) -> None:
        leading.accept(isr, partition_epoch)
        self.forget(key)
        if self._on_change is not None:
            self._on_change(key, now_ms)

    def _asking(self, key: PartitionKey, partition_epoch: int) -> Leading | None:
        """The leadership, if its proposal is still the one of this epoch."""
        leading = self._leading(key)
        if leading is None or leading.proposed is None or leading.is_given_up:
            return None
        return leading if leading.partition_epoch == partition_epoch else None
