"""Records for a streams group, each replayed at once, so that what follows sees the group with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraft.coordinators.groups.consumer.hashing import in_java_order
from kraft.coordinators.groups.streams.group import StreamsGroup, StreamsMember
from kraft.coordinators.groups.streams.replaying import StreamsGroupKey, replay
from kraft.coordinators.groups.streams.tasks import TaskIds, Tasks
from kraft.coordinators.runtime.shard import Record
from metadata_log.records import consumer_offsets as records
from metadata_log.records.consumer_offsets import StreamsGroupTargetAssignmentMemberValueTaskIds as TargetIds
from metadata_log.serde import Message


class StreamsDraft:
    """The records of one operation, and the group with them (Kafka: `StreamsCoordinatorRecordHelpers`).

    Args:
        group: The group; a new one has no record yet.
        before: Records that end what had the name of the group before it.
    """

    def __init__(self, group: StreamsGroup, before: Iterable[Record] = ()) -> None:
        self.group = group
        self.records: list[Record] = list(before)

    def _add(self, key: StreamsGroupKey, value: Message | None) -> None:
        after = replay(self.group, key, value)
        assert after is not None, key
        self.records.append(Record(key, value, found=(self.group, after)))
        self.group = after

    def metadata(self, member: StreamsMember) -> None:
        """Add the record of who a member is."""
        self._add(records.StreamsGroupMemberMetadataKey(self.group.group_id, member.member_id), member.metadata())

    def assignment(self, member: StreamsMember) -> None:
        """Add the record of the tasks that a member has."""
        key = records.StreamsGroupCurrentMemberAssignmentKey(self.group.group_id, member.member_id)
        self._add(key, member.assignment())

    def target(self, member_id: str, target: Tasks) -> None:
        """Add the record of the tasks that a member should have."""
        value = records.StreamsGroupTargetAssignmentMemberValue(
            _recorded(target.active), _recorded(target.standby), _recorded(target.warmup)
        )
        self._add(records.StreamsGroupTargetAssignmentMemberKey(self.group.group_id, member_id), value)

    def target_epoch(self, epoch: int, now_ms: int) -> None:
        """The epoch of all targets."""
        key = records.StreamsGroupTargetAssignmentMetadataKey(self.group.group_id)
        self._add(key, records.StreamsGroupTargetAssignmentMetadataValue(epoch, now_ms))

    def epoch(self, metadata_hash: int, validated_epoch: int, configs: Mapping[str, str]) -> None:
        """The next epoch of the group, with what is known of its topics and its assignor."""
        group = self.group
        value = records.StreamsGroupMetadataValue(
            group.epoch + 1,
            metadata_hash,
            validated_epoch,
            tuple(records.LastAssignmentConfig(key, configs[key]) for key in in_java_order(configs)),
            group.stored_description,
            group.failed_description,
        )
        self._add(records.StreamsGroupMetadataKey(group.group_id), value)

    def topology(self, topology: records.StreamsGroupTopologyValue) -> None:
        """The topology that the members run."""
        self._add(records.StreamsGroupTopologyKey(self.group.group_id), topology)

    def end_member(self, member_id: str) -> None:
        """Add the records that remove a member."""
        group_id = self.group.group_id
        self._add(records.StreamsGroupCurrentMemberAssignmentKey(group_id, member_id), None)
        self._add(records.StreamsGroupTargetAssignmentMemberKey(group_id, member_id), None)
        self._add(records.StreamsGroupMemberMetadataKey(group_id, member_id), None)


def _recorded(tasks: TaskIds) -> tuple[TargetIds, ...]:
    return tuple(TargetIds(one, tasks[one]) for one in in_java_order(tasks))


def tombstones(group: StreamsGroup) -> list[Record]:
    """The records that end a group. Only a log of which something was removed has members then, or targets."""
    group_id = group.group_id
    keys: list[Message] = [
        *(records.StreamsGroupCurrentMemberAssignmentKey(group_id, one) for one in sorted(group.members)),
        *(records.StreamsGroupTargetAssignmentMemberKey(group_id, one) for one in sorted(group.targets)),
        records.StreamsGroupTargetAssignmentMetadataKey(group_id),
        *(records.StreamsGroupMemberMetadataKey(group_id, one) for one in sorted(group.members)),
        records.StreamsGroupMetadataKey(group_id),
        records.StreamsGroupTopologyKey(group_id),
    ]
    return [Record(key) for key in keys]
