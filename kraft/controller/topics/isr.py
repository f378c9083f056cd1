"""Serves AlterPartition, by which a leader changes the ISR (Kafka: `ReplicationControlManager.alterPartition`;
KIP-497)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft.access.errors import ApiError
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Steps
from kraft.controller.decision.topic_configs import unclean_election
from kraft.controller.topics.leader_selection import Election
from kraft.controller.topics.partition_change import RECOVERED, RECOVERING, PartitionTarget, Rules, partition_change
from kraft.controller.topics.partition_updates import is_active, rules_by_topic, versioned
from metadata_log.image import MetadataImage, Partition, TopicImage, merge
from metadata_log.records.frame import VersionedRecord
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)

_WITH_EPOCHS_SINCE: Final = 3
_ANY_EPOCH: Final = -1


def alter_partition(context: RequestContext, request: AlterPartitionRequest) -> Steps:
    """Judge each partition separately; raises `ApiError` for a request from another incarnation of the broker."""
    broker = context.image.brokers.by_id.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        raise ApiError(Error.STALE_BROKER_EPOCH)
    topics = []
    rules = rules_by_topic(context.image, context.defaults)
    for asked in request.topics:
        topic = context.image.topics.by_id.get(asked.topic_id)
        answers = []
        if topic is None:
            for change in asked.partitions:
                answers.append(_refused(change, Error.UNKNOWN_TOPIC_ID))
                yield None
        else:
            unclean = unclean_election(context.image, topic.name, context.defaults)
            election = Election.UNCLEAN if unclean else Election.ONLINE
            for change in asked.partitions:
                answer, record = _alter(context, request.broker_id, topic, change, rules(topic.id), election)
                answers.append(answer)
                yield None
                yield from record
        topics.append(AlterPartitionResponseTopicData(topic_id=asked.topic_id, partitions=answers))
    return ControllerResult((), AlterPartitionResponse(topics=topics), is_atomic=False)


def _alter(
    context: RequestContext,
    caller: int,
    topic: TopicImage,
    change: AlterPartitionRequestPartitionData,
    rules: Rules,
    election: Election,
) -> tuple[AlterPartitionResponsePartitionData, list[VersionedRecord]]:
    image, number = context.image, change.partition_index
    if number not in range(len(topic.partitions)):
        return _refused(change, Error.UNKNOWN_TOPIC_OR_PARTITION), []
    partition = topic.partitions[number]
    members = list(_members(context, change))
    error = _error(image, caller, partition, change, members)
    if error is not Error.NONE:
        return _refused(change, error), []
    target = PartitionTarget(
        isr=tuple(member.broker_id for member in members), leader_recovery_state=change.leader_recovery_state
    )
    record = partition_change(topic.id, number, partition, target, rules, election)
    if record is None:
        return _accepted(number, partition), []
    written = [versioned(image, record)]
    after = merge(partition, record)
    if after.leader != caller:
        # The change completed a reassignment away from the caller. This error makes the caller resign its leadership.
        return _refused(change, Error.NEW_LEADER_ELECTED), written
    return _accepted(number, after), written


def _members(context: RequestContext, change: AlterPartitionRequestPartitionData) -> Iterator[BrokerState]:
    """The requested ISR; older request versions lack the epochs of its members."""
    if context.version >= _WITH_EPOCHS_SINCE:
        yield from change.new_isr_with_epochs
    else:
        yield from (BrokerState(broker_id=broker_id, broker_epoch=_ANY_EPOCH) for broker_id in change.new_isr)


def _error(
    image: MetadataImage,
    caller: int,
    partition: Partition,
    change: AlterPartitionRequestPartitionData,
    members: list[BrokerState],
) -> Error:
    """The first error of a change, checked in Kafka's order."""
    ids = [member.broker_id for member in members]
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        return Error.NOT_CONTROLLER  # the caller has seen a newer epoch, so this controller must be deposed
    if change.leader_epoch < partition.leader_epoch:
        return Error.FENCED_LEADER_EPOCH
    if caller != partition.leader:
        return Error.INVALID_REQUEST
    if change.partition_epoch < partition.partition_epoch:
        return Error.INVALID_UPDATE_VERSION
    if len(dict.fromkeys(ids)) < len(ids) or any(broker_id not in partition.replicas for broker_id in ids):
        return Error.INVALID_REQUEST
    if partition.leader not in ids or change.leader_recovery_state not in {RECOVERED, RECOVERING}:
        return Error.INVALID_REQUEST
    if change.leader_recovery_state == RECOVERING and (len(ids) > 1 or partition.leader_recovery_state == RECOVERED):
        return Error.INVALID_REQUEST
    if not all(_is_eligible(image, member) for member in members):
        return Error.INELIGIBLE_REPLICA
    return Error.NONE


def _is_eligible(image: MetadataImage, member: BrokerState) -> bool:
    """Whether a broker may enter an ISR: active, and in the requested incarnation (KIP-903)."""
    broker = image.brokers.by_id.get(member.broker_id)
    return is_active(image, member.broker_id) and (
        member.broker_epoch == _ANY_EPOCH or (broker is not None and broker.epoch == member.broker_epoch)
    )


def _refused(change: AlterPartitionRequestPartitionData, error: Error) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(partition_index=change.partition_index, error_code=error)


def _accepted(number: int, partition: Partition) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(
        partition_index=number,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )
