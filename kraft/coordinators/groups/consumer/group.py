"""A consumer group as an immutable value, with what follows from its members (Kafka: `ConsumerGroup`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.coordinators.groups.assignors import PartitionsByTopic
from kraft.coordinators.groups.consumer.member import Member
from kraft.coordinators.groups.consumer.owners import Block, Owners, changed_owners, held_near
from kraft.limits import HEARTBEAT_TOPICS
from metadata_log.image.persistent_map import Map, with_changes, with_entry, without_key
from metadata_log.types import Uuid

NO_TARGET: Final = -1
"""The assignment epoch of a group without a target."""


class GroupState(Enum):
    """The state of a consumer group as requests name it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ResolvedRegex(Struct, frozen=True, gc=False):
    """The topics that a regular expression stands for, by the metadata at an offset (`ResolvedRegularExpression`)."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup(Struct, frozen=True, gc=False):
    """A group. The maps from `instances` on follow from `members`, and none of their numbers is zero."""

    group_id: str
    epoch: int = 1
    metadata_hash: int = 0
    assignment_epoch: int = NO_TARGET
    assignment_ms: int = 0
    members: Map[str, Member] = Map()
    targets: Map[str, PartitionsByTopic] = Map()
    resolved: Map[str, ResolvedRegex] = Map()
    has_partition_metadata: bool = False
    """Whether a record of Kafka before 4.1 is still there, instead of the hash."""
    instances: Map[str, str] = Map()
    """The member of each static instance."""
    names: Map[str, int] = Map()
    """How many members name each topic."""
    regexes: Map[str, int] = Map()
    """How many members use each regular expression."""
    assignors: Map[str, int] = Map()
    """How many members ask for each assignor."""
    classic_protocols: Map[str, int] = Map()
    """How many members of the classic protocol know each of its protocols."""
    classic_members: int = 0
    owners: Owners = Map()
    """The member epoch at which each partition is held: nobody else may be given it."""
    joins: int = 0
    """How many members the group has had."""

    @property
    def is_new(self) -> bool:
        """Whether nothing of the group is recorded."""
        return replace(self, joins=0) == ConsumerGroup(self.group_id)

    @property
    def state(self) -> GroupState:
        """The state, which takes a look at all members."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def held_near(self, topic_id: Uuid, numbers: Collection[int]) -> Block:
        """The partitions of a topic that are held, at least of these, each with the member epoch at which it is."""
        return held_near(self.owners, topic_id, numbers)

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member of a static instance."""
        member_id = None if instance_id is None else self.instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def topics_of(self, member: Member) -> frozenset[str]:
        """The names of all topics that a member wants."""
        resolved = self.resolved.get(member.regex) if member.regex else None
        return member.names if resolved is None else member.names | resolved.topics

    @property
    def topics(self) -> set[str]:
        """The names of all topics that some member wants."""
        return set(self.names).union(*(one.topics for one in self.resolved.values()))

    @property
    def has_many_topics(self) -> bool:
        """Whether a target for the group, and what a member does to reach it, take a turn each."""
        return len(self.names) + sum([len(one.topics) for one in self.resolved.values()]) >= HEARTBEAT_TOPICS

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members want the same topics (Kafka: `SubscriptionType`)."""
        if not self.regexes:
            return all(count == len(self.members) for count in self.names.values())
        return not self.names and set(self.regexes.values()) == {len(self.members)}

    def subscribes_to(self, topic: str) -> bool:
        """Whether some member wants a topic."""
        return topic in self.names or any(topic in one.topics for one in self.resolved.values())


def changed(counts: Mapping[str, int], minus: Iterable[str], plus: Iterable[str]) -> dict[str, int | None]:
    """The new values of the counts that change; None for those that become zero."""
    delta = Counter(plus)
    delta.subtract(minus)
    return {key: counts.get(key, 0) + number or None for key, number in delta.items() if number}


def with_member(group: ConsumerGroup, member: Member) -> ConsumerGroup:
    """The group with a new or changed member."""
    old = group.members.get(member.member_id)
    if old is None:
        member, group = replace(member, joined=group.joins), replace(group, joins=group.joins + 1)
    group = replace(_recounted(group, old, member), members=with_entry(group.members, member.member_id, member))
    if old is not None and old.instance_id != member.instance_id:
        group = _without_instance(group, old)
    if member.instance_id is not None:
        group = replace(group, instances=with_entry(group.instances, member.instance_id, member.member_id))
    return replace(group, owners=changed_owners(group.owners, old, member))


def without_member(group: ConsumerGroup, member_id: str) -> ConsumerGroup:
    """The group without a member."""
    old = group.members[member_id]
    group = replace(_recounted(group, old, None), members=without_key(group.members, member_id))
    group = _without_instance(group, old)
    return replace(group, owners=changed_owners(group.owners, old, None))


def _without_instance(group: ConsumerGroup, old: Member) -> ConsumerGroup:
    """The group without the static instance of a member, unless it is another one's meanwhile."""
    if old.instance_id is None or group.instances.get(old.instance_id) != old.member_id:
        return group
    return replace(group, instances=without_key(group.instances, old.instance_id))


def _recounted(group: ConsumerGroup, old: Member | None, new: Member | None) -> ConsumerGroup:
    """Only what a record of a subscription changes is looked at: records of assignments are the frequent ones."""
    if old is not None and new is not None and _wish(old) == _wish(new):
        return group
    return replace(
        group,
        names=with_changes(group.names, changed(group.names, names_of(old), names_of(new))),
        regexes=with_changes(group.regexes, changed(group.regexes, regex_of(old), regex_of(new))),
        assignors=with_changes(group.assignors, changed(group.assignors, assignor_of(old), assignor_of(new))),
        classic_protocols=with_changes(
            group.classic_protocols, changed(group.classic_protocols, _protocols_of(old), _protocols_of(new))
        ),
        classic_members=group.classic_members + _is_classic(new) - _is_classic(old),
    )


def _wish(member: Member) -> tuple[object, ...]:
    return member.names, member.regex, member.assignor, member.classic


def names_of(member: Member | None) -> Iterable[str]:
    """The topics that a member names."""
    return () if member is None else member.names


def regex_of(member: Member | None) -> tuple[str, ...]:
    """The regular expression of a member, if it has one."""
    return () if member is None or not member.regex else (member.regex,)


def assignor_of(member: Member | None) -> tuple[str, ...]:
    """The assignor that a member asks for, if it does."""
    return () if member is None or member.assignor is None else (member.assignor,)


def _protocols_of(member: Member | None) -> Iterable[str]:
    return () if member is None or member.classic is None else (one.name for one in member.classic.supported_protocols)


def _is_classic(member: Member | None) -> bool:
    return member is not None and member.classic is not None
