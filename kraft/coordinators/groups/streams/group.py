"""A streams group as an immutable value (Kafka: `StreamsGroup`, `StreamsGroupMember`)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.coordinators.groups.consumer.hashing import in_java_order
from kraft.coordinators.groups.streams.tasks import HOLDS_NOTHING, HeldTasks, TaskEpochs, TaskIds, Tasks
from metadata_log.image.persistent_map import Map, with_entry, without_key
from metadata_log.records import consumer_offsets as records
from metadata_log.records.consumer_offsets import StreamsGroupTopologyValue
from metadata_log.types import NO_EPOCH

FIRST_EPOCH: Final = 1
"""The epochs of a group without a record of them."""
LEAVING: Final = -1
"""The epoch of a member that leaves for good."""
AWAY: Final = -2
"""The epoch of a static member that leaves for a while."""
PROTOCOL: Final = "streams"
_TaskIds = records.StreamsGroupCurrentMemberAssignmentValueTaskIds


class GroupState(Enum):
    """The states of a group, as requests name them."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(Enum):
    """The states of a member, by the numbers in records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        """The state with this number; `UNKNOWN` for one that this software does not know."""
        return cls(number) if number in _STATES else cls.UNKNOWN


_STATES: Final = frozenset(one.value for one in MemberState)


class StreamsMember(Struct, frozen=True, gc=False):
    """A member: a thread of a process. Times are in ms."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    """Where the process answers queries of its state."""
    client_tags: Mapping[str, str] = {}
    assigned: HeldTasks = HOLDS_NOTHING
    revoking: HeldTasks = HOLDS_NOTHING
    """The tasks that the member has yet to give up."""
    joined: int = 0
    """How many members the group has had before it."""

    @property
    def has_metadata(self) -> bool:
        """Whether a record has told who the member is; of one without, only an assignment is left in the log."""
        return bool(self.client_host or self.client_id or self.process_id)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has its target of an epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def metadata(self) -> records.StreamsGroupMemberMetadataValue:
        """The record of who the member is."""
        return records.StreamsGroupMemberMetadataValue(
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topology_epoch,
            self.process_id,
            None if self.endpoint is None else records.Endpoint(*self.endpoint),
            tuple(records.KeyValue(key, self.client_tags[key]) for key in in_java_order(self.client_tags)),
        )

    def assignment(self) -> records.StreamsGroupCurrentMemberAssignmentValue:
        """The record of what the member has."""
        return records.StreamsGroupCurrentMemberAssignmentValue(
            self.epoch,
            self.previous_epoch,
            self.state.value,
            _with_epochs(self.assigned.active),
            _without_epochs(self.assigned.standby),
            _without_epochs(self.assigned.warmup),
            _with_epochs(self.revoking.active),
            _without_epochs(self.revoking.standby),
            _without_epochs(self.revoking.warmup),
        )


def _with_epochs(tasks: TaskEpochs) -> tuple[_TaskIds, ...]:
    return tuple(
        _TaskIds(one, tuple(numbers := sorted(tasks[one])), tuple([tasks[one][number] for number in numbers]))
        for one in in_java_order(tasks)
    )


def _without_epochs(tasks: TaskIds) -> tuple[_TaskIds, ...]:
    return tuple(_TaskIds(one, tasks[one]) for one in in_java_order(tasks))


class StreamsGroup(Struct, frozen=True, gc=False):
    """A group. `static` follows from `members`."""

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    validated_epoch: int = NO_EPOCH
    """The epoch of the topology whose topics were found right."""
    assignment_configs: Mapping[str, str] = {}
    """The settings of the assignor by which the last targets were computed."""
    stored_description: int = NO_EPOCH
    failed_description: int = NO_EPOCH
    """The epochs of the topologies whose description a broker of Kafka has stored, or could not store."""
    assignment_epoch: int = FIRST_EPOCH
    assignment_ms: int = 0
    topology: StreamsGroupTopologyValue | None = None
    members: Map[str, StreamsMember] = Map()
    targets: Map[str, Tasks] = Map()
    static: Map[str, str] = Map()
    """The members by their instance ids."""
    joins: int = 0
    """How many members the group has had."""

    @property
    def is_new(self) -> bool:
        """Whether nothing of the group is recorded."""
        return replace(self, joins=0) == StreamsGroup(self.group_id)

    @property
    def state(self) -> GroupState:
        """The state, which follows from the rest."""
        if not self.members:
            return GroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return GroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(one.is_reconciled_to(self.assignment_epoch) for one in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def static_member(self, instance_id: str | None) -> StreamsMember | None:
        """The member with an instance id; None for none."""
        member_id = None if instance_id is None else self.static.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def subscribes_to(self, topic: str) -> bool:
        """Whether a task of the group reads a topic."""
        if not self.members or self.topology is None:
            return False
        return any(topic in source_topics(one) for one in self.topology.subtopologies)


def source_topics(subtopology: records.Subtopology) -> list[str]:
    """The topics that the tasks of a subtopology read."""
    return [*subtopology.source_topics, *(one.name for one in subtopology.repartition_source_topics)]


def required_topics(topology: StreamsGroupTopologyValue) -> list[str]:
    """The topics without which a topology does not run, each once."""
    names: dict[str, None] = {}
    for one in topology.subtopologies:
        names.update(dict.fromkeys(source_topics(one)))
        names.update(dict.fromkeys(changelog.name for changelog in one.state_changelog_topics))
    return list(names)


def with_member(group: StreamsGroup, member: StreamsMember) -> StreamsGroup:
    """The group with a new or changed member."""
    old = group.members.get(member.member_id)
    if old is None:
        member, group = replace(member, joined=group.joins), replace(group, joins=group.joins + 1)
    static = group.static
    if old is not None and old.instance_id is not None and old.instance_id != member.instance_id:
        static = _without_instance(static, old.instance_id, old.member_id)
    if member.instance_id is not None and static.get(member.instance_id) != member.member_id:
        static = with_entry(static, member.instance_id, member.member_id)
    return replace(group, members=with_entry(group.members, member.member_id, member), static=static)


def without_member(group: StreamsGroup, member_id: str) -> StreamsGroup:
    """The group without a member."""
    old, static = group.members[member_id], group.static
    if old.instance_id is not None:
        static = _without_instance(static, old.instance_id, member_id)
    return replace(group, members=without_key(group.members, member_id), static=static)


def _without_instance(static: Map[str, str], instance_id: str, member_id: str) -> Map[str, str]:
    return without_key(static, instance_id) if static.get(instance_id) == member_id else static
