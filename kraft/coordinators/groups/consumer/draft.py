"""Records for a consumer group, each replayed at once, so that what follows sees the group with them."""

from __future__ import annotations

from collections.abc import Iterable

from kraft.coordinators.groups.assignors import PartitionsByTopic
from kraft.coordinators.groups.consumer.group import ConsumerGroup, ResolvedRegex
from kraft.coordinators.groups.consumer.hashing import in_java_order
from kraft.coordinators.groups.consumer.member import Member
from kraft.coordinators.groups.consumer.replaying import GroupKey, replay
from kraft.coordinators.runtime.shard import Record
from metadata_log.records import consumer_offsets as records
from metadata_log.records.consumer_offsets import ConsumerGroupTargetAssignmentMemberValueTopicPartition as TopicTarget
from metadata_log.serde import Message


class Draft:
    """The records of one operation, and the group with them (Kafka: `GroupCoordinatorRecordHelpers`).

    Args:
        group: The group; a new one has no record yet.
        before: Records that come first, as those that end a classic group of this name.
    """

    def __init__(self, group: ConsumerGroup, before: Iterable[Record] = ()) -> None:
        self.group = group
        self.records = list(before)

    def _add(self, key: GroupKey, value: Message | None) -> None:
        after = replay(self.group, key, value)
        assert after is not None, key
        self.records.append(Record(key, value, found=(self.group, after)))
        self.group = after

    def subscription(self, member: Member) -> None:
        """Add the record of the topics that a member wants."""
        self._add(records.ConsumerGroupMemberMetadataKey(self.group.group_id, member.member_id), member.subscription())

    def assignment(self, member: Member) -> None:
        """Add the record of the partitions that a member has."""
        key = records.ConsumerGroupCurrentMemberAssignmentKey(self.group.group_id, member.member_id)
        self._add(key, member.assignment())

    def target(self, member_id: str, target: PartitionsByTopic) -> None:
        """Add the record of the partitions that a member should have."""
        value = records.ConsumerGroupTargetAssignmentMemberValue(
            tuple(
                TopicTarget(topic_id, tuple(sorted(numbers))) for topic_id, numbers in sorted(target.items()) if numbers
            )
        )
        self._add(records.ConsumerGroupTargetAssignmentMemberKey(self.group.group_id, member_id), value)

    def target_epoch(self, epoch: int, now_ms: int) -> None:
        """The epoch of all targets."""
        key = records.ConsumerGroupTargetAssignmentMetadataKey(self.group.group_id)
        self._add(key, records.ConsumerGroupTargetAssignmentMetadataValue(epoch, now_ms))

    def epoch(self, epoch: int, metadata_hash: int) -> None:
        """The epoch of the group, with the hash of its topics."""
        key = records.ConsumerGroupMetadataKey(self.group.group_id)
        self._add(key, records.ConsumerGroupMetadataValue(epoch, metadata_hash))

    def regex(self, regex: str, found: ResolvedRegex) -> None:
        """The topics of a regular expression."""
        value = records.ConsumerGroupRegularExpressionValue(
            tuple(in_java_order(found.topics)), found.version, found.timestamp_ms
        )
        self._add(records.ConsumerGroupRegularExpressionKey(self.group.group_id, regex), value)

    def end_regex(self, regex: str) -> None:
        """Nobody uses a regular expression any more."""
        self._add(records.ConsumerGroupRegularExpressionKey(self.group.group_id, regex), None)

    def end_partition_metadata(self) -> None:
        """The hash replaces the record of Kafka before 4.1."""
        self._add(records.ConsumerGroupPartitionMetadataKey(self.group.group_id), None)

    def end_member(self, member_id: str) -> None:
        """Add the records that remove a member."""
        group_id = self.group.group_id
        self._add(records.ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)
        self._add(records.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)
        self._add(records.ConsumerGroupMemberMetadataKey(group_id, member_id), None)


def tombstones(group: ConsumerGroup) -> list[Record]:
    """The records that end a group with all its members."""
    group_id, member_ids = group.group_id, sorted(group.members)
    # A log of which something was removed may have the target of a member that is not there.
    targets = sorted({*group.targets, *member_ids})
    keys: list[Message] = [
        *(records.ConsumerGroupCurrentMemberAssignmentKey(group_id, one) for one in member_ids),
        *(records.ConsumerGroupTargetAssignmentMemberKey(group_id, one) for one in targets),
        records.ConsumerGroupTargetAssignmentMetadataKey(group_id),
        *(records.ConsumerGroupMemberMetadataKey(group_id, one) for one in member_ids),
        *(records.ConsumerGroupRegularExpressionKey(group_id, one) for one in sorted(group.resolved)),
        records.ConsumerGroupPartitionMetadataKey(group_id),
        records.ConsumerGroupMetadataKey(group_id),
    ]
    return [Record(key) for key in keys]
