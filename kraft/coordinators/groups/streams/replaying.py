"""The records of a streams group, and the group after each (Kafka: `GroupMetadataManager.replay`).

Cleaning removes what later records replace, and old tombstones, as of the records of consumer groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from kraft.coordinators.groups.streams.group import (
    FIRST_EPOCH,
    MemberState,
    StreamsGroup,
    StreamsMember,
    with_member,
    without_member,
)
from kraft.coordinators.groups.streams.tasks import HOLDS_NOTHING, NOTHING, HeldTasks, TaskEpochs, Tasks, task_ids
from kraft.coordinators.runtime.weights import text_bytes
from metadata_log.errors import ReplayError
from metadata_log.image.persistent_map import with_entry, without_key
from metadata_log.records import consumer_offsets as records
from metadata_log.serde import Message
from metadata_log.types import NO_EPOCH

StreamsGroupKey = (
    records.StreamsGroupMetadataKey
    | records.StreamsGroupMemberMetadataKey
    | records.StreamsGroupTargetAssignmentMetadataKey
    | records.StreamsGroupTargetAssignmentMemberKey
    | records.StreamsGroupCurrentMemberAssignmentKey
    | records.StreamsGroupTopologyKey
)
"""The keys of the records of streams groups."""
_MEMBER_BYTES = 1200
_SUBTOPOLOGY_BYTES = 900
_TOPIC_BYTES = 300
_TASK_BYTES = 100
_TEXT_BYTES = 100
"""How much memory each of these takes besides the texts that clients choose."""
_PLACES = 3
"""Where the name of a member is kept, at most, each time as a text of its own."""


def replay(group: StreamsGroup | None, key: StreamsGroupKey, value: Message | None) -> StreamsGroup | None:
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
        group = StreamsGroup(key.group_id)
    match key, value:
        case records.StreamsGroupMetadataKey(), records.StreamsGroupMetadataValue():
            return replace(
                group,
                epoch=value.epoch,
                metadata_hash=value.metadata_hash,
                validated_epoch=value.validated_topology_epoch,
                assignment_configs={one.key: one.value for one in value.last_assignment_configs or ()},
                stored_description=value.stored_description_topology_epoch,
                failed_description=value.failed_description_topology_epoch,
            )
        case records.StreamsGroupMetadataKey(), None:
            return None
        case records.StreamsGroupTopologyKey(), records.StreamsGroupTopologyValue():
            return replace(group, topology=value)
        case records.StreamsGroupTopologyKey(), None:
            return replace(group, topology=None)
        case records.StreamsGroupMemberMetadataKey(), records.StreamsGroupMemberMetadataValue():
            return with_member(group, _with_metadata(_member(group, key.member_id), value))
        case records.StreamsGroupMemberMetadataKey(), None:
            return without_member(group, key.member_id) if key.member_id in group.members else group
        case records.StreamsGroupTargetAssignmentMetadataKey(), records.StreamsGroupTargetAssignmentMetadataValue():
            return replace(group, assignment_epoch=value.assignment_epoch, assignment_ms=value.assignment_timestamp)
        case records.StreamsGroupTargetAssignmentMetadataKey(), None:
            return replace(group, assignment_epoch=FIRST_EPOCH, assignment_ms=0)
        case records.StreamsGroupTargetAssignmentMemberKey(), records.StreamsGroupTargetAssignmentMemberValue():
            target = Tasks(task_ids(value.active_tasks), task_ids(value.standby_tasks), task_ids(value.warmup_tasks))
            return replace(group, targets=with_entry(group.targets, key.member_id, target))
        case records.StreamsGroupTargetAssignmentMemberKey(), None:
            known = key.member_id in group.targets
            return replace(group, targets=without_key(group.targets, key.member_id)) if known else group
        case records.StreamsGroupCurrentMemberAssignmentKey(), records.StreamsGroupCurrentMemberAssignmentValue():
            return with_member(group, _with_assignment(_member(group, key.member_id), value))
        case records.StreamsGroupCurrentMemberAssignmentKey(), None:
            return _without_assignment(group, key.member_id)
    raise ReplayError(f"{type(key).__name__} with a {type(value).__name__} is no record of a streams group")


def _member(group: StreamsGroup, member_id: str) -> StreamsMember:
    return group.members.get(member_id) or StreamsMember(member_id)


def _with_metadata(member: StreamsMember, value: records.StreamsGroupMemberMetadataValue) -> StreamsMember:
    endpoint = value.user_endpoint
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        client_tags={one.key: one.value for one in value.client_tags},
    )


def _with_assignment(member: StreamsMember, value: records.StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
    epoch = value.member_epoch
    return replace(
        member,
        epoch=epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=HeldTasks(
            _epochs(value.active_tasks, epoch), task_ids(value.standby_tasks), task_ids(value.warmup_tasks)
        ),
        revoking=HeldTasks(
            _epochs(value.active_tasks_pending_revocation, epoch),
            task_ids(value.standby_tasks_pending_revocation),
            task_ids(value.warmup_tasks_pending_revocation),
        ),
    )


def _epochs(named: Iterable[records.StreamsGroupCurrentMemberAssignmentValueTaskIds], epoch: int) -> TaskEpochs:
    """The active tasks with their epochs; with that of the member, if the record has not one for each."""
    found: dict[str, Mapping[int, int]] = {}
    for one in named:
        numbers, epochs = one.partitions, one.assignment_epochs or ()
        if numbers:
            found[one.subtopology_id] = (
                dict(zip(numbers, epochs, strict=True))
                if len(epochs) == len(numbers)
                else dict.fromkeys(numbers, epoch)
            )
    return found


def _without_assignment(group: StreamsGroup, member_id: str) -> StreamsGroup:
    member = group.members.get(member_id)
    if member is None:
        return group
    if not member.has_metadata:
        return without_member(group, member_id)
    return with_member(
        group,
        replace(
            member,
            epoch=NO_EPOCH,
            previous_epoch=NO_EPOCH,
            state=MemberState.STABLE,
            assigned=HOLDS_NOTHING,
            revoking=HOLDS_NOTHING,
        ),
    )


def holds(group: StreamsGroup, key: StreamsGroupKey) -> bool:
    """Whether a tombstone of an assignment would change a group."""
    match key:
        case records.StreamsGroupCurrentMemberAssignmentKey():
            member = group.members.get(key.member_id)
            return member is not None and member.epoch != NO_EPOCH
        case records.StreamsGroupTargetAssignmentMemberKey():
            return key.member_id in group.targets
    return False


def is_nothing(group: StreamsGroup) -> bool:
    """Whether no record of a group is left, after a tombstone."""
    return not (group.members or group.targets) and group.is_new


def lacking(group: StreamsGroup, key: StreamsGroupKey, value: Message | None) -> str:
    """The part of the log that was removed before a record on which it follows; empty if nothing was."""
    if value is not None:
        return ""
    match key:
        case records.StreamsGroupMetadataKey() if group.members or group.targets:
            members, targets = len(group.members), len(group.targets)
            return f"streams group {group.group_id} ends with {members} members and {targets} targets"
        case records.StreamsGroupMemberMetadataKey():
            member = group.members.get(key.member_id)
            if (member is not None and member.epoch != NO_EPOCH) or key.member_id in group.targets:
                return f"member {key.member_id} of streams group {group.group_id} ends before its assignment"
    return ""


# --------------------------------------------------------------------------------------------------------------- memory


def part_bytes(group: StreamsGroup, key: StreamsGroupKey) -> int:
    """The memory of the one part of a group that a record with this key sets, in bytes."""
    match key:
        case records.StreamsGroupMemberMetadataKey():
            member = group.members.get(key.member_id)
            return 0 if member is None or not member.has_metadata else _metadata_bytes(member)
        case records.StreamsGroupTargetAssignmentMemberKey():
            target = group.targets.get(key.member_id, NOTHING)
            return _held_bytes((target.active, target.standby, target.warmup))
        case records.StreamsGroupCurrentMemberAssignmentKey():
            member = group.members.get(key.member_id)
            if member is None:
                return 0
            held = (member.assigned, member.revoking)
            return _held_bytes([role for one in held for role in (one.active, one.standby, one.warmup)])
        case records.StreamsGroupTopologyKey():
            return 0 if group.topology is None else sum([_topology_bytes(one) for one in group.topology.subtopologies])
    return 0


def _metadata_bytes(member: StreamsMember) -> int:
    texts = [member.instance_id, member.instance_id, member.rack_id, member.client_id, member.process_id]
    if member.endpoint is not None:
        texts.append(member.endpoint[0])
    own = _MEMBER_BYTES + _PLACES * text_bytes(member.member_id) + sum(map(text_bytes, texts))
    return own + sum([_TEXT_BYTES + text_bytes(key) + text_bytes(value) for key, value in member.client_tags.items()])


def _held_bytes(held: Iterable[Mapping[str, Iterable[int]]]) -> int:
    return sum([_TOPIC_BYTES + text_bytes(one) + _TASK_BYTES * _length(of[one]) for of in held for one in of])


def _length(numbers: Iterable[int]) -> int:
    assert isinstance(numbers, (tuple, Mapping)), numbers
    return len(numbers)


def _topology_bytes(one: records.Subtopology) -> int:
    named = [*one.source_topics, *one.source_topic_regex, *one.repartition_sink_topics]
    topics = [*one.state_changelog_topics, *one.repartition_source_topics]
    own = _SUBTOPOLOGY_BYTES + text_bytes(one.subtopology_id) + sum([_TEXT_BYTES + text_bytes(each) for each in named])
    of_topics = [
        _TOPIC_BYTES
        + text_bytes(topic.name)
        + sum([2 * _TEXT_BYTES + text_bytes(each.key) + text_bytes(each.value) for each in topic.topic_configs])
        for topic in topics
    ]
    of_groups = [
        _TEXT_BYTES * (1 + len(each.source_topics) + len(each.source_topic_regex) + len(each.repartition_source_topics))
        for each in one.copartition_groups
    ]
    return own + sum(of_topics) + sum(of_groups)


def parts_bytes(group: StreamsGroup) -> int:
    """The memory of all parts of a group, in bytes."""
    group_id = group.group_id
    keys: list[StreamsGroupKey] = [records.StreamsGroupTopologyKey(group_id)]
    keys += [records.StreamsGroupTargetAssignmentMemberKey(group_id, one) for one in group.targets]
    for part in (records.StreamsGroupCurrentMemberAssignmentKey, records.StreamsGroupMemberMetadataKey):
        keys += [part(group_id, one) for one in group.members]
    return sum([part_bytes(group, key) for key in keys])
