"""A share group as an immutable value (Kafka: `ShareGroup`, `ShareGroupMember`, `ShareGroupStatePartitionMetadata`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.coordinators.groups.assignors import PartitionsByTopic
from kraft.coordinators.groups.consumer.hashing import in_java_order
from metadata_log.image.persistent_map import Map, with_changes, with_entry, without_key
from metadata_log.records.consumer_offsets import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupCurrentMemberAssignmentValueTopicPartitions,
    ShareGroupMemberMetadataValue,
)
from metadata_log.types import Uuid

FIRST_EPOCH: Final = 1
"""The epochs of a group without a record of them, as one that only an alteration of offsets has made."""
LEAVING: Final = -1
"""The epoch of a member that leaves."""
EMPTY: Final = "Empty"
STABLE: Final = "Stable"
NOTHING: Final[PartitionsByTopic] = {}


class ShareMember(Struct, frozen=True, gc=False):
    """A member. Several may have the same partition."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: frozenset[str] = frozenset()
    assigned: PartitionsByTopic = NOTHING
    joined: int = 0
    """How many members the group has had before it."""

    @property
    def has_subscription(self) -> bool:
        """Whether a record has told what the member wants; of one without, only an assignment is left in the log."""
        return bool(self.client_host or self.client_id or self.names)

    def subscription(self) -> ShareGroupMemberMetadataValue:
        """The record of what the member wants."""
        names = tuple(in_java_order(self.names))
        return ShareGroupMemberMetadataValue(self.rack_id, self.client_id, self.client_host, names)

    def assignment(self) -> ShareGroupCurrentMemberAssignmentValue:
        """The record of what the member has. A member has no other state than stable (0)."""
        topics = tuple(
            ShareGroupCurrentMemberAssignmentValueTopicPartitions(topic_id, numbers)
            for topic_id, numbers in sorted(self.assigned.items())
        )
        return ShareGroupCurrentMemberAssignmentValue(self.epoch, self.previous_epoch, 0, topics)


class NamedPartitions(Struct, frozen=True, gc=False):
    """Partitions of a topic, in ascending order, with the name of the topic."""

    name: str
    partitions: tuple[int, ...]


StateTopics = Mapping[Uuid, NamedPartitions]


class States(Struct, frozen=True, gc=False):
    """The share partitions of a group that have a state at their share coordinators."""

    initializing: StateTopics = {}
    """A state is asked for. A partition that is initialized, too, gets another state."""
    initialized: StateTopics = {}
    deleting: Mapping[Uuid, str] = {}
    """The names of the topics of which all states are to be deleted."""


NO_STATES: Final = States()


class ShareGroup(Struct, frozen=True, gc=False):
    """A group. `names` follows from `members`."""

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = FIRST_EPOCH
    assignment_ms: int = 0
    members: Map[str, ShareMember] = Map()
    targets: Map[str, PartitionsByTopic] = Map()
    states: States = NO_STATES
    names: Map[str, int] = Map()
    """How many members name each topic."""
    joins: int = 0
    """How many members the group has had."""

    @property
    def is_new(self) -> bool:
        """Whether nothing of the group is recorded."""
        return replace(self, joins=0) == ShareGroup(self.group_id)

    @property
    def state(self) -> str:
        """The state as requests name it."""
        return STABLE if self.members else EMPTY

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members want the same topics (Kafka: `SubscriptionType`)."""
        return all(count == len(self.members) for count in self.names.values())


def with_member(group: ShareGroup, member: ShareMember) -> ShareGroup:
    """The group with a new or changed member."""
    old = group.members.get(member.member_id)
    if old is None:
        member, group = replace(member, joined=group.joins), replace(group, joins=group.joins + 1)
    return replace(
        group,
        members=with_entry(group.members, member.member_id, member),
        names=_recounted(group.names, () if old is None else old.names, member.names),
    )


def without_member(group: ShareGroup, member_id: str) -> ShareGroup:
    """The group without a member."""
    old = group.members[member_id]
    return replace(group, members=without_key(group.members, member_id), names=_recounted(group.names, old.names, ()))


def _recounted(names: Map[str, int], minus: Iterable[str], plus: Iterable[str]) -> Map[str, int]:
    if minus == plus:
        return names
    delta = Counter(plus)
    delta.subtract(minus)
    changes = {name: names.get(name, 0) + number or None for name, number in delta.items() if number}
    return with_changes(names, changes)
