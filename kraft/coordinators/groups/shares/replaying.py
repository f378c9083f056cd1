"""The records of a share group, and the group after each (Kafka: `GroupMetadataManager.replay`).

Cleaning removes what later records replace, and old tombstones, as of the records of consumer groups.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kraft.coordinators.groups.shares.group import (
    FIRST_EPOCH,
    NO_STATES,
    NOTHING,
    NamedPartitions,
    ShareGroup,
    ShareMember,
    States,
    StateTopics,
    with_member,
    without_member,
)
from kraft.coordinators.runtime.weights import text_bytes
from metadata_log.errors import ReplayError
from metadata_log.image.persistent_map import with_entry, without_key
from metadata_log.records import consumer_offsets as records
from metadata_log.serde import Message

ShareGroupKey = (
    records.ShareGroupMemberMetadataKey
    | records.ShareGroupMetadataKey
    | records.ShareGroupTargetAssignmentMetadataKey
    | records.ShareGroupTargetAssignmentMemberKey
    | records.ShareGroupCurrentMemberAssignmentKey
    | records.ShareGroupStatePartitionMetadataKey
)
"""The keys of the records of share groups."""
_MEMBER_BYTES = 800
_TOPIC_BYTES = 300
_PARTITION_BYTES = 36
_NAME_BYTES = 100
"""How much memory each of these takes besides the texts that clients choose."""
_PLACES = 3
"""Where the name of a member is kept, at most, each time as a text of its own."""


def replay(group: ShareGroup | None, key: ShareGroupKey, value: Message | None) -> ShareGroup | None:
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
        group = ShareGroup(key.group_id)
    match key, value:
        case records.ShareGroupMetadataKey(), records.ShareGroupMetadataValue():
            return replace(group, epoch=value.epoch, metadata_hash=value.metadata_hash)
        case records.ShareGroupMetadataKey(), None:
            return None
        case records.ShareGroupMemberMetadataKey(), records.ShareGroupMemberMetadataValue():
            member = group.members.get(key.member_id) or ShareMember(key.member_id)
            names = frozenset(value.subscribed_topic_names)
            rack_id, client_id, host = value.rack_id, value.client_id, value.client_host
            return with_member(
                group, replace(member, rack_id=rack_id, client_id=client_id, client_host=host, names=names)
            )
        case records.ShareGroupMemberMetadataKey(), None:
            return without_member(group, key.member_id) if key.member_id in group.members else group
        case records.ShareGroupTargetAssignmentMetadataKey(), records.ShareGroupTargetAssignmentMetadataValue():
            return replace(group, assignment_epoch=value.assignment_epoch, assignment_ms=value.assignment_timestamp)
        case records.ShareGroupTargetAssignmentMetadataKey(), None:
            return replace(group, assignment_epoch=FIRST_EPOCH, assignment_ms=0)
        case records.ShareGroupTargetAssignmentMemberKey(), records.ShareGroupTargetAssignmentMemberValue():
            target = {one.topic_id: one.partitions for one in value.topic_partitions}
            return replace(group, targets=with_entry(group.targets, key.member_id, target))
        case records.ShareGroupTargetAssignmentMemberKey(), None:
            known = key.member_id in group.targets
            return replace(group, targets=without_key(group.targets, key.member_id)) if known else group
        case records.ShareGroupCurrentMemberAssignmentKey(), records.ShareGroupCurrentMemberAssignmentValue():
            member = group.members.get(key.member_id) or ShareMember(key.member_id)
            assigned = {one.topic_id: one.partitions for one in value.assigned_partitions}
            epoch, previous = value.member_epoch, value.previous_member_epoch
            return with_member(group, replace(member, epoch=epoch, previous_epoch=previous, assigned=assigned))
        case records.ShareGroupCurrentMemberAssignmentKey(), None:
            return _without_assignment(group, key.member_id)
        case records.ShareGroupStatePartitionMetadataKey(), records.ShareGroupStatePartitionMetadataValue():
            return replace(group, states=_states(value))
        case records.ShareGroupStatePartitionMetadataKey(), None:
            return replace(group, states=NO_STATES)
    raise ReplayError(f"{type(key).__name__} with a {type(value).__name__} is no record of a share group")


def _states(value: records.ShareGroupStatePartitionMetadataValue) -> States:
    return States(
        _by_id(value.initializing_topics),
        _by_id(value.initialized_topics),
        {one.topic_id: one.topic_name for one in value.deleting_topics},
    )


def _by_id(topics: Iterable[records.TopicPartitionsInfo]) -> StateTopics:
    return {one.topic_id: NamedPartitions(one.topic_name, tuple(sorted(one.partitions))) for one in topics}


def _without_assignment(group: ShareGroup, member_id: str) -> ShareGroup:
    member = group.members.get(member_id)
    if member is None:
        return group
    if not member.has_subscription:
        return without_member(group, member_id)
    return with_member(group, replace(member, epoch=0, previous_epoch=-1, assigned=NOTHING))


def is_nothing(group: ShareGroup) -> bool:
    """Whether no record of a group is left, after a tombstone."""
    return not (group.members or group.targets) and group.is_new


def lacking(group: ShareGroup, key: ShareGroupKey, value: Message | None) -> str:
    """The part of the log that was removed before a record on which it follows; empty if nothing was."""
    if value is not None:
        return ""
    match key:
        case records.ShareGroupMetadataKey() if group.members or group.targets:
            members, targets = len(group.members), len(group.targets)
            return f"share group {group.group_id} ends with {members} members and {targets} targets"
        case records.ShareGroupMemberMetadataKey():
            member = group.members.get(key.member_id)
            if (member is not None and member.epoch) or key.member_id in group.targets:
                return f"member {key.member_id} of share group {group.group_id} ends before its assignment"
    return ""


# --------------------------------------------------------------------------------------------------------------- memory


def part_bytes(group: ShareGroup, key: ShareGroupKey) -> int:
    """The memory of the one part of a group that a record with this key sets, in bytes."""
    match key:
        case records.ShareGroupMemberMetadataKey():
            member = group.members.get(key.member_id)
            if member is None or not member.has_subscription:
                return 0
            own = _MEMBER_BYTES + text_bytes(member.rack_id) + text_bytes(member.client_id)
            own += _PLACES * text_bytes(member.member_id)
            return own + sum([2 * _NAME_BYTES + 2 * text_bytes(one) for one in member.names])
        case records.ShareGroupTargetAssignmentMemberKey():
            return _held_bytes(group.targets.get(key.member_id, NOTHING).values())
        case records.ShareGroupCurrentMemberAssignmentKey():
            member = group.members.get(key.member_id)
            return 0 if member is None else _held_bytes(member.assigned.values())
        case records.ShareGroupStatePartitionMetadataKey():
            states = group.states
            topics = [*states.initializing.values(), *states.initialized.values()]
            named = sum([text_bytes(one.name) for one in topics])
            deleted = sum([_TOPIC_BYTES + text_bytes(name) for name in states.deleting.values()])
            return _held_bytes([one.partitions for one in topics]) + named + deleted
    return 0


def _held_bytes(held: Iterable[tuple[int, ...]]) -> int:
    return sum([_TOPIC_BYTES + _PARTITION_BYTES * len(numbers) for numbers in held])


def parts_bytes(group: ShareGroup) -> int:
    """The memory of all parts of a group, in bytes."""
    group_id = group.group_id
    keys: list[ShareGroupKey] = [records.ShareGroupStatePartitionMetadataKey(group_id)]
    keys += [records.ShareGroupTargetAssignmentMemberKey(group_id, one) for one in group.targets]
    for part in (records.ShareGroupCurrentMemberAssignmentKey, records.ShareGroupMemberMetadataKey):
        keys += [part(group_id, one) for one in group.members]
    return sum([part_bytes(group, key) for key in keys])
