"""A member of a consumer group (Kafka: `ConsumerGroupMember`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.coordinators.groups.assignors import PartitionsByTopic
from kraft.coordinators.groups.consumer.hashing import in_java_order
from metadata_log.records.consumer_offsets import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupCurrentMemberAssignmentValueTopicPartitions,
    ConsumerGroupMemberMetadataValue,
)
from metadata_log.types import Uuid

Assigned = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic, each with the epoch at which the member got it (KIP-1251)."""
NOTHING: Final[Assigned] = {}
LEAVING: Final = -1
"""The epoch of a member that leaves."""
AWAY: Final = -2
"""The epoch of a static member that will be back: nobody else gets its partitions until its session ends."""


class MemberState(IntEnum):
    """How far a member is with its assignment (`MemberState`)."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class Member(Struct, frozen=True, gc=False):
    """A member; `assigned` and `revoking` are what nobody else may be given."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    names: frozenset[str] = frozenset()
    regex: str | None = ""
    assignor: str | None = None
    assigned: Assigned = NOTHING
    revoking: Assigned = NOTHING
    classic: ClassicMemberMetadata | None = None
    """The data that a member of the classic protocol has sent with its JoinGroup; None for the consumer protocol."""
    joined: int = 0
    """How many members the group has had before it."""

    @property
    def has_subscription(self) -> bool:
        """Whether a record has told what the member wants; of one without, only an assignment is left in the log."""
        return bool(self.client_host or self.client_id or self.names) or self.rebalance_timeout_ms != -1

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has what the target of an epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def subscription(self) -> ConsumerGroupMemberMetadataValue:
        """The record of what the member wants."""
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=tuple(in_java_order(self.names)),
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )

    def assignment(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """The record of what the member has."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=int(self.state),
            assigned_partitions=_recorded(self.assigned),
            partitions_pending_revocation=_recorded(self.revoking),
        )


def with_subscription(member: Member, value: ConsumerGroupMemberMetadataValue) -> Member:
    """The member after a record of what it wants."""
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        names=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=value.classic_member_metadata,
    )


def with_assignment(member: Member, value: ConsumerGroupCurrentMemberAssignmentValue) -> Member:
    """The member after a record of what it has."""
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if value.state in _STATES else MemberState.UNKNOWN,
        assigned=_assigned(value.assigned_partitions, value.member_epoch),
        revoking=_assigned(value.partitions_pending_revocation, value.member_epoch),
    )


_STATES: Final = frozenset(map(int, MemberState))


def _recorded(assigned: Assigned) -> tuple[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions, ...]:
    return tuple(
        ConsumerGroupCurrentMemberAssignmentValueTopicPartitions(
            topic_id, numbers := tuple(sorted(assigned[topic_id])), tuple(map(assigned[topic_id].__getitem__, numbers))
        )
        for topic_id in sorted(assigned)
    )


def _assigned(
    recorded: Iterable[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions], member_epoch: int
) -> Assigned:
    """Before 4.3 records had no epochs of partitions."""
    assigned: dict[Uuid, Mapping[int, int]] = {}
    for topic in recorded:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            assigned[topic.topic_id] = dict.fromkeys(topic.partitions, max(member_epoch, 0))
        else:
            assigned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return assigned


def with_epoch(partitions: PartitionsByTopic, epoch: int) -> Assigned:
    """Partitions that were all given at one epoch."""
    return {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in partitions.items()}


def owns_any(owned: PartitionsByTopic | None, partitions: Assigned) -> bool:
    """Whether a member that says what it owns, or does not say it, may own one of these partitions."""
    if owned is None:
        return True
    return any(number in partitions.get(topic_id, ()) for topic_id, numbers in owned.items() for number in numbers)


def is_subset(owned: PartitionsByTopic | None, partitions: Assigned) -> bool:
    """Whether a member says what it owns, and has nothing else than these partitions."""
    if owned is None:
        return False
    return all(number in partitions.get(topic_id, ()) for topic_id, numbers in owned.items() for number in numbers)
