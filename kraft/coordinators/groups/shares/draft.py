"""Records for a share group, each replayed at once, so that what follows sees the group with them."""

from __future__ import annotations

from kraft.coordinators.groups.assignors import PartitionsByTopic
from kraft.coordinators.groups.shares.group import ShareGroup, ShareMember, States, StateTopics
from kraft.coordinators.groups.shares.replaying import ShareGroupKey, replay
from kraft.coordinators.runtime.shard import Record
from metadata_log.records import consumer_offsets as records
from metadata_log.records.consumer_offsets import ShareGroupTargetAssignmentMemberValueTopicPartition as TopicTarget
from metadata_log.serde import Message


class ShareDraft:
    """The records of one operation, and the group with them (Kafka: `GroupCoordinatorRecordHelpers`).

    Args:
        group: The group; a new one has no record yet.
    """

    def __init__(self, group: ShareGroup) -> None:
        self.group = group
        self.records: list[Record] = []

    def _add(self, key: ShareGroupKey, value: Message | None) -> None:
        after = replay(self.group, key, value)
        assert after is not None, key
        self.records.append(Record(key, value, found=(self.group, after)))
        self.group = after

    def subscription(self, member: ShareMember) -> None:
        """Add the record of the topics that a member wants."""
        self._add(records.ShareGroupMemberMetadataKey(self.group.group_id, member.member_id), member.subscription())

    def assignment(self, member: ShareMember) -> None:
        """Add the record of the partitions that a member has."""
        key = records.ShareGroupCurrentMemberAssignmentKey(self.group.group_id, member.member_id)
        self._add(key, member.assignment())

    def target(self, member_id: str, target: PartitionsByTopic) -> None:
        """Add the record of the partitions that a member should have."""
        value = records.ShareGroupTargetAssignmentMemberValue(
            tuple(TopicTarget(topic_id, numbers) for topic_id, numbers in sorted(target.items()))
        )
        self._add(records.ShareGroupTargetAssignmentMemberKey(self.group.group_id, member_id), value)

    def target_epoch(self, epoch: int, now_ms: int) -> None:
        """The epoch of all targets."""
        key = records.ShareGroupTargetAssignmentMetadataKey(self.group.group_id)
        self._add(key, records.ShareGroupTargetAssignmentMetadataValue(epoch, now_ms))

    def epoch(self, epoch: int, metadata_hash: int) -> None:
        """The epoch of the group, with the hash of its topics."""
        key = records.ShareGroupMetadataKey(self.group.group_id)
        self._add(key, records.ShareGroupMetadataValue(epoch, metadata_hash))

    def states(self, states: States) -> None:
        """The partitions that have a state, and those that are to get one or to lose it."""
        key = records.ShareGroupStatePartitionMetadataKey(self.group.group_id)
        self._add(
            key,
            records.ShareGroupStatePartitionMetadataValue(
                _recorded(states.initializing),
                _recorded(states.initialized),
                tuple(
                    records.ShareGroupStatePartitionMetadataValueTopicInfo(topic_id, name)
                    for topic_id, name in sorted(states.deleting.items())
                ),
            ),
        )

    def end_member(self, member_id: str) -> None:
        """Add the records that remove a member."""
        group_id = self.group.group_id
        self._add(records.ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None)
        self._add(records.ShareGroupTargetAssignmentMemberKey(group_id, member_id), None)
        self._add(records.ShareGroupMemberMetadataKey(group_id, member_id), None)


def _recorded(topics: StateTopics) -> tuple[records.TopicPartitionsInfo, ...]:
    return tuple(
        records.TopicPartitionsInfo(topic_id, one.name, one.partitions) for topic_id, one in sorted(topics.items())
    )


def tombstones(group: ShareGroup) -> list[Record]:
    """The records that end a group. Only a log of which something was removed has members then, or targets."""
    group_id = group.group_id
    keys: list[Message] = [
        *(records.ShareGroupCurrentMemberAssignmentKey(group_id, one) for one in sorted(group.members)),
        *(records.ShareGroupTargetAssignmentMemberKey(group_id, one) for one in sorted(group.targets)),
        records.ShareGroupTargetAssignmentMetadataKey(group_id),
        *(records.ShareGroupMemberMetadataKey(group_id, one) for one in sorted(group.members)),
        records.ShareGroupStatePartitionMetadataKey(group_id),
        records.ShareGroupMetadataKey(group_id),
    ]
    return [Record(key) for key in keys]
