"""The records of a consumer group, and the group after each (Kafka: `GroupMetadataManager.replay`).

Cleaning removes what later records replace, and old tombstones. What a record follows on may therefore be missing: the
tombstones of a member before that of the group, or the value before a tombstone. Replay ends where the whole log would,
and `lacking` tells what was missing. Kafka 4.4.0 refuses such a log.
"""

from __future__ import annotations

from msgspec.structs import replace

from kraft.coordinators.groups.consumer.group import (
    NO_TARGET,
    ConsumerGroup,
    ResolvedRegex,
    with_member,
    without_member,
)
from kraft.coordinators.groups.consumer.member import NOTHING, Member, with_assignment, with_subscription
from metadata_log.errors import ReplayError
from metadata_log.image.persistent_map import with_entry, without_key
from metadata_log.records import consumer_offsets as records
from metadata_log.serde import Message

GroupKey = (
    records.ConsumerGroupMetadataKey
    | records.ConsumerGroupPartitionMetadataKey
    | records.ConsumerGroupMemberMetadataKey
    | records.ConsumerGroupTargetAssignmentMetadataKey
    | records.ConsumerGroupTargetAssignmentMemberKey
    | records.ConsumerGroupCurrentMemberAssignmentKey
    | records.ConsumerGroupRegularExpressionKey
)
"""The keys of the records of consumer groups."""


def replay(group: ConsumerGroup | None, key: GroupKey, value: Message | None) -> ConsumerGroup | None:
    """The group after a record.

    Args:
        group: The group that the record names; None if there is none of this kind.
        key: The key.
        value: The value; None for a tombstone.

    Returns:
        The group; None if there is none, or no longer.

    Raises:
        ReplayError: Key and value are of different types.
    """
    if group is None:
        if value is None:
            return None
        group = ConsumerGroup(key.group_id)
    match key, value:
        case records.ConsumerGroupMetadataKey(), records.ConsumerGroupMetadataValue():
            return replace(group, epoch=value.epoch, metadata_hash=value.metadata_hash)
        case records.ConsumerGroupMetadataKey(), None:
            return None
        case records.ConsumerGroupPartitionMetadataKey(), _:
            return replace(group, has_partition_metadata=value is not None)
        case records.ConsumerGroupMemberMetadataKey(), records.ConsumerGroupMemberMetadataValue():
            return with_member(group, with_subscription(_member(group, key.member_id), value))
        case records.ConsumerGroupMemberMetadataKey(), None:
            return without_member(group, key.member_id) if key.member_id in group.members else group
        case records.ConsumerGroupTargetAssignmentMetadataKey(), None:
            return replace(group, assignment_epoch=NO_TARGET, assignment_ms=0)
        case records.ConsumerGroupTargetAssignmentMetadataKey(), records.ConsumerGroupTargetAssignmentMetadataValue():
            return replace(group, assignment_epoch=value.assignment_epoch, assignment_ms=value.assignment_timestamp)
        case records.ConsumerGroupTargetAssignmentMemberKey(), records.ConsumerGroupTargetAssignmentMemberValue():
            target = {one.topic_id: one.partitions for one in value.topic_partitions}
            return replace(group, targets=with_entry(group.targets, key.member_id, target))
        case records.ConsumerGroupTargetAssignmentMemberKey(), None:
            known = key.member_id in group.targets
            return replace(group, targets=without_key(group.targets, key.member_id)) if known else group
        case records.ConsumerGroupCurrentMemberAssignmentKey(), records.ConsumerGroupCurrentMemberAssignmentValue():
            return with_member(group, with_assignment(_member(group, key.member_id), value))
        case records.ConsumerGroupCurrentMemberAssignmentKey(), None:
            return _without_assignment(group, key.member_id)
        case records.ConsumerGroupRegularExpressionKey(), records.ConsumerGroupRegularExpressionValue():
            resolved_regex = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            return replace(group, resolved=with_entry(group.resolved, key.regular_expression, resolved_regex))
        case records.ConsumerGroupRegularExpressionKey(), None:
            known = key.regular_expression in group.resolved
            return replace(group, resolved=without_key(group.resolved, key.regular_expression)) if known else group
    raise ReplayError(f"{type(key).__name__} with a {type(value).__name__} is no record of a consumer group")


def _member(group: ConsumerGroup, member_id: str) -> Member:
    return group.members.get(member_id) or Member(member_id)


def lacking(group: ConsumerGroup, key: GroupKey, value: Message | None) -> str:
    """The part of the log that was removed before a record on which it follows; empty if nothing was."""
    match key, value:
        case records.ConsumerGroupMetadataKey(), None:
            members, targets = len(group.members), len(group.targets)
            if members or targets or group.assignment_epoch != NO_TARGET:
                return f"group {group.group_id} ends with {members} members and {targets} targets"
        case records.ConsumerGroupMemberMetadataKey(), None:
            member = group.members.get(key.member_id)
            if (member is not None and member.epoch != -1) or key.member_id in group.targets:
                return f"member {key.member_id} of group {group.group_id} ends before its assignment"
    return ""


def is_nothing(group: ConsumerGroup) -> bool:
    """Whether no record of a group is left, after a tombstone."""
    return not (group.members or group.targets or group.resolved) and group.is_new


def _without_assignment(group: ConsumerGroup, member_id: str) -> ConsumerGroup:
    member = group.members.get(member_id)
    if member is None:
        return group
    if not member.has_subscription:
        return without_member(group, member_id)
    return with_member(group, replace(member, epoch=-1, previous_epoch=-1, assigned=NOTHING, revoking=NOTHING))
